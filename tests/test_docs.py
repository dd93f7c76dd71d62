"""Every fenced command and snippet of the README and of docs/ runs, page by page, in order.

A page's Python blocks share one namespace, and one folder with its bash commands. What must hold of
a topic is asserted by that topic's tests; here, that nothing a page tells people to type fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RUNNER = """
import json, subprocess, sys
namespace = {"__name__": "__main__"}
for language, text in json.load(open("blocks.json", encoding="utf-8")):
    if language == "python":
        exec(compile(text, "page", "exec"), namespace)
        continue
    for line in text.replace("\\\\\\n", " ").splitlines():
        if line.strip():
            done = subprocess.run(["bash", "-c", line])
            differs = "compare" in line and done.returncode == 1
            assert done.returncode == 0 or differs, f"{line!r} ended with {done.returncode}"
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    fences = page.read_text(encoding="utf-8").count("\n```") // 2
    assert len(found) == fences, "every fence is marked python or bash, so that it runs"
    if not found:
        return
    (tmp_path / "blocks.json").write_text(json.dumps(found), encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{ROOT / 'scripts'}{os.pathsep}"
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=tmp_path,
        env={**os.environ, "PATH": path + os.environ["PATH"], "NPU_CORE": "910A"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pages_link_to_files_that_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"docs/{page.name}" not in readme] == []
