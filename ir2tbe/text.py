"""Arrays as text that `np.loadtxt` reads: two lines of header, and every digit.

# shape: [2, 3]
# dtype: float32
0.100000001 0.5 -1
inf nan 3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

_FORMATS = {2: "%.9g", 4: "%.9g", 8: "%.17g"}


def write_text(file: BinaryIO, values: np.ndarray, shape: Sequence[int], dtype: str) -> None:
    """Write a header and a line for each last dimension, numbers apart by blanks.

    values: numbers of a dtype of numpy's own. shape, dtype: what the header says.
    """
    file.write(f"# shape: {list(shape)}\n# dtype: {dtype}\n".encode())
    if not values.size:
        return
    rows = values.reshape(-1, values.shape[-1] if values.ndim else 1)
    if values.dtype.kind in "iub":
        form = "%d"
    else:
        form = _FORMATS[values.real.dtype.itemsize]
    if values.dtype.kind == "c":
        form = [f"({form}{form.replace('%', '%+')}j)"] * rows.shape[1]
    np.savetxt(file, rows, fmt=form)
