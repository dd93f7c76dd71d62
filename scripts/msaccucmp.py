#!/usr/bin/env python3
"""The command `msaccucmp` from a checkout: python3 scripts/msaccucmp.py compare ..."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from compare.cli import main  # noqa: E402 - found through the line above

if __name__ == "__main__":
    main()
