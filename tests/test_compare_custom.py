"""Algorithms of the user's own: files that are run, and what happens when they are wrong."""

import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from compare.columns import is_taken
from compare.custom import Custom, load, parse
from dumper.errors import DumpError

GOOD = "def compare(my, golden, args):\n    return str(float(abs(my - golden).max())), ''\n"


def folder(path, **files):
    """A folder of algorithms, a text each."""
    (path / "algorithm").mkdir(parents=True)
    for name, text in files.items():
        (path / "algorithm" / f"{name}.py").write_text(text)
    return path


def only(path, text, **options):
    (custom,) = load(folder(path, alg_Mine=text), {"Mine": options} if options else {})
    return custom


@pytest.mark.parametrize("name", ["plain", "with space", "a+b~c:d", "目录"])
def test_every_file_is_an_algorithm_in_the_order_of_names(tmp_path, name):
    """Whatever the folder is called; other files of it are none."""
    place = folder(tmp_path / name, alg_B=GOOD, alg_a_1=GOOD, helper="1/0")
    (place / "algorithm" / "alg_notes.txt").write_text("no Python")
    path, before = list(sys.path), set((place / "algorithm").iterdir())
    customs = load(place, {})
    assert [custom.name for custom in customs] == ["B", "a_1"]
    assert all(isinstance(custom, Custom) for custom in customs)
    assert customs[0].compare(np.float32([1, 2]), np.float32([1, 5])) == ("3.0", "")
    assert sys.path == path and set((place / "algorithm").iterdir()) == before


def test_options_are_attributes_of_args(tmp_path):
    text = "def compare(my, golden, args):\n    return args.max + args.get_dict()['min'], args.max"
    assert only(tmp_path, text, max="1", min="0").compare(np.ones(1), np.ones(1)) == ("10", "1")


def test_a_dataclass_in_a_file_works(tmp_path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\n"
        "class C:\n    v: str\ndef compare(my, golden, args):\n    return C('x').v, ''\n"
    )
    assert only(tmp_path, text).compare(np.ones(1), np.ones(1)) == ("x", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A:k=v", {"A": {"k": "v"}}),
        ("A:k=v,k2=v2;B:x=1;", {"A": {"k": "v", "k2": "v2"}, "B": {"x": "1"}}),
        (" A : k = v ;A:k2=w", {"A": {"k": "v", "k2": "w"}}),
        ("A:path=C:/x=y z", {"A": {"path": "C:/x=y z"}}),
    ],
)
def test_options_are_taken_apart(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["A", "A:", "A:k", "A:k=", "A:=v", ":k=v", "A:k=v;B", "A:1k=v"])
def test_what_is_no_option_is_refused(text):
    with pytest.raises(DumpError, match="no option of an algorithm") as error:
        parse(text)
    assert "Name:key=value" in error.value.todo


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("def compare(:", "SyntaxError", ", line 1"),
        ("x = 1\nimport no_such_module_here\n", "ModuleNotFoundError", ", line 2"),
        ("\n\nraise ValueError('first\\nsecond')", "ValueError: first)", ", line 3"),
        ("import sys\nsys.exit(0)", "SystemExit", ", line 2"),
        ("x = '\0'", "null bytes", ""),
        ("def other(my, golden, args): pass", "no compare with three arguments", ""),
        ("compare = 3", "no compare with three arguments", ""),
        ("def compare(my, golden): pass", "no compare with three arguments", ""),
        ("def compare(a, b, c, d): pass", "no compare with three arguments", ""),
    ],
)
def test_a_file_that_cannot_be_used_is_one_message(tmp_path, text, what, line):
    with pytest.raises(DumpError) as error:
        only(tmp_path, text)
    path = tmp_path / "algorithm" / "alg_Mine.py"
    assert what in error.value.what and error.value.where == f"{path}{line}" and error.value.todo


@pytest.mark.parametrize(
    ("files", "options", "what"),
    [
        ({"alg_": GOOD}, {}, "names no algorithm"),
        ({"alg_a-b": GOOD}, {}, "names no algorithm"),
        ({"alg_Taken": GOOD}, {}, "there is an algorithm Taken already"),
        ({"other": GOOD}, {}, "there is no algorithm here"),
        ({}, {}, "there is no algorithm here"),
        ({"alg_A": GOOD}, {"B": {"k": "v"}}, "there is no algorithm B"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_message(tmp_path, files, options, what):
    with pytest.raises(DumpError, match=what):
        load(folder(tmp_path / "c", **files), options, ("Taken",))


@pytest.mark.parametrize(
    "name", ["UlpMax", "exactmatch", "Index", "OverFlow", "MyFile", "all", "7"]
)
def test_a_name_with_another_meaning_is_one_message(tmp_path, name):
    """It would stand in the csv twice, or could not be chosen."""
    place = folder(tmp_path, **{f"alg_{name}": GOOD, f"alg_{name}x": GOOD})
    with pytest.raises(DumpError, match=f"no algorithm can be called {name}: ") as error:
        load(place, {}, (), is_taken)
    assert error.value.where == str(place / "algorithm" / f"alg_{name}.py")
    (place / "algorithm" / f"alg_{name}.py").unlink()
    assert [custom.name for custom in load(place, {}, (), is_taken)] == [f"{name}x"]


def test_what_is_printed_goes_to_stderr(tmp_path, capsys):
    """Also where it fails, and after it; a script reads the answer from stdout."""
    text = (
        "print('loading')\ndef compare(my, golden, args):\n    print('at it')\n    return 1 / 0\n"
    )
    custom = only(tmp_path, text)
    value, reason = custom.compare(np.ones(1), np.ones(1))
    print("answer")
    assert value == "NaN" and "division by zero" in reason
    found = capsys.readouterr()
    assert (found.out, found.err) == ("answer\n", "loading\nat it\n")


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("a file")])
def test_a_folder_that_is_none_is_one_message(tmp_path, make):
    make(tmp_path / "c")
    with pytest.raises(DumpError, match="no folder of algorithms") as error:
        load(tmp_path / "c", {})
    assert "alg_<Name>.py" in error.value.todo


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1/0", "division by zero"),
        ("raise KeyError()", "KeyError"),
        ("import sys; sys.exit(3)", "3"),
        ("return 'ab'", "it returned str"),
        ("return 1.5", "it returned float"),
        ("return '1', '', ''", "it returned tuple"),
        ("return 1.5, ''", "value and reason are float and str"),
        ("my -= golden; return '', ''", "read-only"),
    ],
)
def test_what_fails_is_a_reason(tmp_path, body, said):
    custom = only(tmp_path, f"def compare(my, golden, args):\n    {body}\n")
    mine = np.float32([1, 2])
    value, reason = custom.compare(mine, np.float32([1, 1]))
    assert value == "NaN" and reason.startswith("Failed to execute 'compare' in 'Mine'. ")
    assert said in reason and mine.tolist() == [1, 2] and mine.flags.writeable


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        *((name, "float32") for name in ("bool", "int8", "uint8", "int16", "uint16")),
        *((name, "float32") for name in ("float16", "float32", "bfloat16", "float8_e4m3fn")),
        *((name, "float64") for name in ("int32", "uint32", "int64", "uint64", "float64")),
        *((name, name) for name in ("complex64", "complex128")),
    ],
)
def test_arrays_are_of_a_dtype_to_compute_with(tmp_path, given, seen):
    """An unsigned byte below another would wrap around, and numpy knows no bfloat16."""
    text = "def compare(my, golden, args):\n    return f'{my.dtype} {my - golden}', ''"
    dtype = getattr(ml_dtypes, given, given)
    value, reason = only(tmp_path, text).compare(np.zeros(1, dtype), np.ones(1, dtype))
    assert value.startswith(f"{seen} [-1.") and not reason


def test_one_thread_calls_at_a_time(tmp_path):
    """Whichever algorithm; and stdout is what it was."""
    text = (
        "import time\ndef compare(my, golden, args):\n    busy.append(1)\n"
        "    time.sleep(0.01)\n    n = len(busy)\n    busy.pop()\n    return str(n), ''\n"
    )
    place = folder(tmp_path, alg_A=f"import sys\nbusy = sys.busy_of_test = []\n{text}")
    (place / "algorithm" / "alg_B.py").write_text(f"import sys\nbusy = sys.busy_of_test\n{text}")
    customs, seen = load(place, {}), []
    one, out = np.ones(1, np.float32), sys.stdout
    threads = [
        threading.Thread(target=lambda each=each: seen.append(each.compare(one, one)[0]))
        for each in customs * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del sys.busy_of_test
    assert seen == ["1"] * 6 and sys.stdout is out
