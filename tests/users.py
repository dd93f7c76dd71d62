"""Somebody who types commands in a folder of their own, as the guide has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class User:
    """Has the package installed: `import torch` is enough."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: object, code: int = 0, **environment: str) -> str:
        """What a command prints. code: its exit status."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env={**os.environ, "NPU_CORE": "910A", **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def script(self, text: str) -> str:
        """Run a script of this text."""
        (self.folder / "train.py").write_text(text)
        return self.run(sys.executable, "train.py")

    def msaccucmp(self, *arguments: object, code: int = 0, **environment: str) -> str:
        """Run the program."""
        program = ROOT / "scripts" / "msaccucmp.py"
        return self.run(sys.executable, program, *arguments, code=code, **environment)
