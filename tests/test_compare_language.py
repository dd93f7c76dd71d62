"""`--lang zh`: people read Chinese; files stay as they are, and no console makes it fail."""

from __future__ import annotations

import json
import re
import shutil
import string
from pathlib import Path

import chains
import pytest
from answers import Trainer, record
from dumps import dump

from compare import phrases

CHINESE = re.compile(r"[\u4e00-\u9fff]")
WORDS = {
    "golden": "标杆", "differ": "不同", "rounding": "舍入", "inherited": "继承", "margin": "倍数",
    "verdict": "结论", "what to do next": "下一步", "started equal:": "起点一致：",
}  # fmt: skip
"""What stands in a Chinese answer in place of an English word."""


@pytest.fixture(autouse=True)
def english_afterwards():
    """The language is chosen once a process, which here runs other tests too."""
    yield
    phrases.speak("en")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `npu.h5`, one op of which is wrong, and `cpu.h5`."""
    folder = tmp_path_factory.mktemp("language")
    dump(folder / "npu.h5", chains.chain([[1, 2], [2, 4.5], [2, 4.5], [6.5]]), 10)
    dump(folder / "cpu.h5", chains.chain(chains.GOOD), 0)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of two real steps that are equal."""
    folder = tmp_path_factory.mktemp("trained")
    for name in ("npu", "cpu"):
        record(Trainer(), folder / f"{name}.h5")
    return folder


def compared(folder: Path, monkeypatch: pytest.MonkeyPatch, out: str, *more: str):
    """The command in that folder, so that both languages name the same paths."""
    monkeypatch.chdir(folder)
    shutil.rmtree(out, ignore_errors=True)
    return chains.compare("npu.h5", "cpu.h5", "-out", out, *more)


def test_what_people_read_is_chinese(files, trained, monkeypatch):
    for folder, status in ((files, 1), (trained, 0)):
        english = compared(folder, monkeypatch, "en").stdout
        done = compared(folder, monkeypatch, "zh", "--lang", "zh")
        assert done.exit_code == status
        for word, chinese in WORDS.items():
            assert (word in english) <= (chinese in done.stdout), word
            assert word not in done.stdout, word
        lines = done.stdout.splitlines()
        for line in lines:
            said = line.removeprefix("json: ").removeprefix("result: ") == line
            assert not said or CHINESE.search(line) or "/" in line, line


def test_the_default_is_english(files, monkeypatch):
    plain, asked = (
        compared(files, monkeypatch, "out", *more).stdout for more in ((), ("--lang", "en"))
    )
    assert not CHINESE.search(plain)
    assert plain.splitlines()[:-2] == asked.splitlines()[:-2]  # the last two bear the time


def test_files_are_the_same_in_both_languages(files, monkeypatch):
    for language in ("en", "zh"):
        compared(files, monkeypatch, language, "--lang", language)
    for kind in ("csv", "json"):
        english, chinese = (list((files / name).glob(f"*.{kind}")) for name in ("en", "zh"))
        assert len(english) == len(chinese) == 1
        assert english[0].read_bytes() == chinese[0].read_bytes()


@pytest.mark.parametrize("command", [("report",), ("judge", "--c", "1")])
def test_report_and_judge_speak_it_too(files, monkeypatch, command):
    compared(files, monkeypatch, "out")
    path = next((files / "out").glob("*.json"))
    english, chinese = (
        chains.run(command[0], path, *command[1:], "--lang", each).stdout for each in ("en", "zh")
    )
    assert "标杆" in chinese and not CHINESE.search(english)
    assert len(chinese.splitlines()) == len(english.splitlines())


def test_one_command_leaves_the_next_one_its_language(files, monkeypatch):
    compared(files, monkeypatch, "out", "--lang", "zh")
    assert not CHINESE.search(compared(files, monkeypatch, "out").stdout)


def test_errors_stay_english(files, monkeypatch):
    monkeypatch.chdir(files)
    done = chains.compare("missing.h5", "cpu.h5", "--lang", "zh")
    assert done.exit_code == 2 and not CHINESE.search(done.stderr)


@pytest.mark.parametrize("language", ["de", "", "EN", "zh_CN"])
def test_no_other_language(files, monkeypatch, language):
    done = compared(files, monkeypatch, "out", "--lang", language)
    assert done.exit_code == 2 and "--lang" in done.stderr
    with pytest.raises(ValueError):
        phrases.speak(language)


@pytest.mark.parametrize("encoding", ["gbk", "ascii", "latin-1", "utf-8"])
def test_no_console_makes_it_fail(files, encoding):
    """Whatever a console cannot show is shown otherwise."""
    done = chains.script(
        "compare", "-m", "npu.h5", "-g", "cpu.h5", "-out", encoding, "--lang", "zh",
        cwd=files, encoding=encoding, PYTHONIOENCODING=encoding,
    )  # fmt: skip
    assert done.returncode == 1 and not done.stderr
    shown = encoding in ("gbk", "utf-8")
    assert bool(CHINESE.search(done.stdout)) == shown
    assert ("标杆" in done.stdout) == shown
    result = next((files / encoding).glob("*.json"))
    assert json.loads(result.read_text())["summary"]["first_difference"]["ir"] == "mul"


def test_both_languages_fill_the_same_places():
    """A phrase that asks for less says less; Chinese has words of its own only for codes."""
    fields = string.Formatter().parse
    for name, (english, chinese) in phrases._PHRASES.items():
        if not english or name == "why":
            continue
        places = [
            {field for _, field, _, _ in fields(text) if field} for text in (english, chinese)
        ]
        assert places[0] == places[1], name
