"""Scripts as processes of their own, forked from one that has imported torch and done nothing else.

Importing torch and its compiler, which a dump needs, takes two seconds of a core: most of what such
a test would cost. A child runs its script as `__main__` to the end and is finalized as any
interpreter is, or dies as it may. Scripts that ask how things are imported, registered or started
need an interpreter of their own instead: those tests use subprocess.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_SERVER = """
import json, os, sys
import {imports}
for line in sys.stdin.buffer:
    request = json.loads(line)
    child = os.fork()
    if not child:
        break
    os.write(1, b"%d\\n" % child)
    os.write(1, b"%d\\n" % os.waitpid(child, 0)[1])
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for name, fd in (("out", 1), ("err", 2)):
    os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
exec(compile(request["script"], "<string>", "exec"))
"""


class Forked:
    """Runs scripts one at a time. imports: what the first process imports, as after `import`."""

    def __init__(self, imports: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER.format(imports=imports)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._folder = tempfile.TemporaryDirectory(prefix="forked-")

    def run(
        self, script: str, meanwhile: Callable[[int], object] = lambda child: None
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end; the exit status is as subprocess gives it.

        meanwhile: called with the number of the script's process once it runs. Raises
        subprocess.TimeoutExpired where the script ends in no two minutes after that.
        """
        files = {name: f"{self._folder.name}/{name}" for name in ("out", "err")}
        request = {"script": textwrap.dedent(script), **files}
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        child = self._number()
        try:
            meanwhile(child)
            status = os.waitstatus_to_exitcode(self._number())
        except BaseException:  # its end must be read, or the next script would get it
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            self._number()
            raise
        out, err = (Path(path).read_text() for path in files.values())
        return subprocess.CompletedProcess("forked", status, out, err)

    def close(self) -> None:
        """End the first process."""
        self._server.communicate()
        self._folder.cleanup()

    def _number(self) -> int:
        if not select.select([self._server.stdout], [], [], 120)[0]:
            raise subprocess.TimeoutExpired("forked", 120)
        return int(self._server.stdout.readline())
