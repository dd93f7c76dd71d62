"""Where a dump goes, for ranks and steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from dumper.paths import check, for_step, has_step, resolve, same_file, text


@pytest.mark.parametrize(
    ("given", "rank", "ranks", "found"),
    [
        ("x.h5", 0, 1, "x.h5"),
        ("x_{rank}.h5", 0, 1, "x_0.h5"),
        ("x_{rank}.h5", 3, 4, "x_3.h5"),
        ("x_{rank}_{step}.h5", 3, 4, "x_3_{step}.h5"),
    ],
)
def test_ranks(given: str, rank: int, ranks: int, found: str) -> None:
    assert resolve(given, rank, ranks) == found


def test_ranks_never_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"rank 1 of 2.*\{rank\}"):
        resolve(str(tmp_path / "x.h5"), 1, 2)
    above = tmp_path / "disk 1" / "run"
    above.mkdir(parents=True)
    with pytest.raises(RuntimeError, match=r"rank 1 of 2.*\{rank\}"):
        resolve(str(above / "x.h5"), 1, 2)
    for own in (above / "x1.h5", tmp_path / "disk 1" / "x.h5"):
        assert resolve(str(own), 1, 2) == str(own)
    for given in (None, str(tmp_path), f"{tmp_path}/"):
        one, other = (resolve(given, rank, 2) for rank in range(2))
        assert one.endswith("_rank0.h5") and other.endswith("_rank1.h5")


def test_steps() -> None:
    assert has_step("a/x{step}.h5") and not has_step("a{step}/x.h5")
    assert for_step("a/x{step}.h5", 12) == "a/x12.h5"
    assert for_step("a/x.h5", 12) == "a/x.h5"


def test_directories(tmp_path: Path) -> None:
    (tmp_path / "rank2").mkdir()
    assert resolve(f"{tmp_path}/rank{{rank}}/x.h5", 2, 4) == f"{tmp_path}/rank2/x.h5"
    with pytest.raises(RuntimeError, match="does not exist"):
        resolve(f"{tmp_path}/rank{{rank}}/x.h5", 1, 4)
    with pytest.raises(RuntimeError, match="no regular file"):
        check(str(tmp_path))


def test_texts(tmp_path: Path) -> None:
    assert (text(None), text(""), text(Path("a")), text(b"a")) == (None, None, "a", "a")
    file = tmp_path / "x"
    assert same_file(str(file), f"{tmp_path}/./x") and not same_file(str(file), str(tmp_path))
