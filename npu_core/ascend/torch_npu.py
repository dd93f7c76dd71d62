"""The module that `import torch_npu` finds under NPU_CORE: Ascend's names over our parts.

A name of the real package that is not here is an AttributeError that says so.
"""

from __future__ import annotations

from typing import Any

import torch

from ..status import alloc_float_status as npu_alloc_float_status  # noqa: F401
from ..status import clear_float_status as npu_clear_float_status  # noqa: F401
from ..status import get_float_status as npu_get_float_status  # noqa: F401
from ..storage import format_cast as npu_format_cast  # noqa: F401
from ..storage import format_cast_ as npu_format_cast_  # noqa: F401
from ..storage import get_format as get_npu_format  # noqa: F401
from . import optimizers as optim  # noqa: F401
from . import profiler  # noqa: F401
from . import surface as npu  # noqa: F401
from .attention import npu_fusion_attention  # noqa: F401
from .custom_ops import (  # noqa: F401
    fast_gelu,
    npu_apply_adam,
    npu_bmmV2,
    npu_confusion_transpose,
    npu_dtype_cast,
    npu_linear,
    npu_rms_norm,
    npu_rotary_mul,
    npu_scaled_masked_softmax,
    npu_swiglu,
    npu_transpose,
)

__path__: list[str] = []  # makes it a package; import_hook finds what is in it
__version__ = torch.__version__.partition("+")[0] + "+npu_core"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"torch_npu.{name} is not emulated by npu_core; docs/npu_core.md lists what is"
    )
