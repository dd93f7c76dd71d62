"""Whether two results of one op are apart by more than arithmetic, and what they were given, allow.

`judge` is the way in; docs/tolerance.md says what is allowed and why.
"""

from . import words
from .classes import Class, OpClass, class_of
from .judge import Context, Row, judge
from .numerics import Numerics, numerics_of
from .verdict import Kind, Verdict

__all__ = [
    "Class",
    "Context",
    "Kind",
    "Numerics",
    "OpClass",
    "Row",
    "Verdict",
    "class_of",
    "judge",
    "numerics_of",
    "words",
]
