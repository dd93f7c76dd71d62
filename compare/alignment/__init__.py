"""Which calls of one run are which calls of another: two sequences of records aligned.

`align` is the whole of it for callers; docs/alignment.md tells it to people. `names` and
`op_map.json` know how ops are spelled, `same` is the one pass over two runs that do the same,
`facts` turns records into numbers that can be compared, `pairs` and `gaps` match them, `doubt`
says how sure a match is, `calls`, `lists` and `joined` pair what each side expands in its own way.
Pure functions of records: no torch, no files.
"""

from .align import align, value_name
from .doubt import HIGH, LOW
from .match import Match
from .names import OpMap

__all__ = ["HIGH", "LOW", "Match", "OpMap", "align", "value_name"]
