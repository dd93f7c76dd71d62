"""What the compiled loops take, by name: a letter an argument. No numba here.

n is an integer; the others are pointers, to float32 (f), float64 (d), bytes (b), and integers of 16
(s), 32 (i) and 64 (l) bits.
"""

from __future__ import annotations

import sys

SIGNATURES = {
    "first_32": "ffiinnddld",
    "first_64": "ddllnnddld",
    "first_16": "ssnnnddldffii",
    "first_wide": "llnnnddld",
    "second_32": "ffnddd",
    "second_64": "ddnddd",
    "second_16": "ssnndddffii",
    "second_wide": "llnnlddd",
    "count_pairs": "bbnl",
    "first_table": "ldldl",
    "second_table": "lddd",
    "find_pair": "bbndndl",
}
if sys.platform != "win32":  # which has no pread
    SIGNATURES |= {
        "direct_32": "lnnnnnnnffiiffiiddld",
        "direct_64": "lnnnnnnnddllffiiddld",
        "direct_16": "lnnnnnnnssiiffiiddld",
    }
