"""The switches: profiles, set_option, precision modes of the cube, overflow mode by environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import npu_core
from npu_core import options


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with npu_core.use("910A"):
        yield


def test_use_switches_for_good_or_for_a_block() -> None:
    npu_core.use("910B")
    assert npu_core.profile() == "910B"
    with pytest.raises(KeyError), npu_core.use("910A"):
        assert npu_core.profile() == "910A"
        raise KeyError
    assert npu_core.profile() == "910B"


def test_options_set_in_a_block_end_with_it() -> None:
    options.set_option({"jitCompile": "enable"})
    with npu_core.use("910A"):
        options.set_option({"jitCompile": "disable", "ACL_AICORE_NUM": 4})
    assert options.get_option("jitCompile") == "enable"
    assert options.get_option("ACL_AICORE_NUM") is None


def test_an_unknown_profile_changes_nothing() -> None:
    with pytest.raises(ValueError, match="unknown npu_core profile '910C'.*910A, 910B, exact"):
        npu_core.use("910C")
    assert npu_core.profile() == "910A"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ACL_PRECISION_MODE", "must_keep_origin_dtype"),
        ("ACL_PRECISION_MODE", "allow_fp32_to_fp16"),
        ("ACL_OP_SELECT_IMPL_MODE", "high_precision"),
        ("ACL_AICORE_NUM", 1),
        ("ACL_AICORE_NUM", "32"),
        ("ACL_OP_DEBUG_LEVEL", 4),
        ("ACL_OP_COMPILER_CACHE_MODE", "force"),
        ("ACL_DEBUG_DIR", "./kernel_meta"),
        ("ALLOW_INTERNAL_FORMAT", "disable"),
        ("bmmv2_enable", "enable"),
    ],
)
def test_documented_options_are_kept_as_text(key: str, value: object) -> None:
    options.set_option({key: value})
    assert options.get_option(key) == str(value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ACL_PRECISION_MODE", "force_fp16", "ACL_PRECISION_MODE should be in allow_fp32_to_fp16"),
        ("ACL_AICORE_NUM", 0, "ACL_AICORE_NUM should be in 1, 2"),
        ("ACL_AICORE_NUM", 33, "got 33"),
        ("ACL_OP_DEBUG_LEVEL", 5, "should be in 0, 1, 2, 3, 4"),
        ("jitCompile", True, "should be in enable, disable, got True"),
        ("ACL_PRECISION", "x", "invalid npu option name 'ACL_PRECISION': known are ACL_PRECISION_"),
    ],
)
def test_what_is_not_documented_is_refused_whole(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options.set_option({"autotune": "enable", key: value})
    assert options.get_option("autotune") is None


@pytest.mark.parametrize("option", [None, "jitCompile", [("jitCompile", "enable")]])
def test_options_come_in_a_dict(option: object) -> None:
    with pytest.raises(TypeError, match="npu option must be a dict, got"):
        options.set_option(option)


ALLOW, KEEP = "allow_fp32_to_fp16", "must_keep_origin_dtype"


# The table of cubeMathType: profile, precision mode, allow_hf32 (None: the default), kind, mode.
@pytest.mark.parametrize(
    ("profile", "precision", "hf32", "kind", "mode"),
    [
        ("exact", None, None, "matrix", "keep"),
        ("exact", ALLOW, True, "convolution", "keep"),
        ("910A", None, None, "matrix", "half"),
        ("910A", None, None, "convolution", "half"),
        ("910A", ALLOW, True, "matrix", "half"),
        ("910B", None, None, "matrix", "keep"),
        ("910B", None, None, "convolution", "hf32"),
        ("910B", None, True, "matrix", "hf32"),
        ("910B", None, False, "convolution", "keep"),
        ("910B", ALLOW, False, "matrix", "half"),
        ("910B", ALLOW, True, "matrix", "hf32"),
        ("910B", ALLOW, None, "convolution", "hf32"),
        ("910B", KEEP, False, "convolution", "keep"),
    ],
)
def test_what_the_cube_makes_of_fp32(
    profile: str, precision: str | None, hf32: bool | None, kind: str, mode: str
) -> None:
    npu_core.use(profile)
    if precision is not None:
        options.set_option({"ACL_PRECISION_MODE": precision})
    if hf32 is not None:
        (options.conv if kind == "convolution" else options.matmul).allow_hf32 = hf32
    assert options.cube_mode(kind) == mode


@pytest.mark.parametrize("kind", ["matrix", "convolution"])
def test_910a_cannot_keep_fp32(kind: str) -> None:
    options.set_option({"ACL_PRECISION_MODE": KEEP})
    with pytest.raises(RuntimeError, match="cube unit of 910A takes no float32.*pass float16"):
        options.cube_mode(kind)


def test_hf32_is_on_for_convolutions_and_off_for_matrix_products() -> None:
    assert (options.conv.allow_hf32, options.matmul.allow_hf32) == (True, False)
    options.conv.allow_hf32 = False
    assert options.get_option("ALLOW_CONV_HF32") == "disable"
    with pytest.raises(AttributeError):
        options.conv.allow_hf23 = True
    options.set_option({"ALLOW_MATMUL_HF32": "enable"})
    assert (options.conv.allow_hf32, options.matmul.allow_hf32) == (False, True)


@pytest.mark.parametrize(
    ("profile", "enable", "force", "saturates"),
    [
        ("910A", None, None, True),
        ("910A", "1", "0", True),  # the environment is ignored
        ("910B", None, None, False),
        ("910B", "1", None, False),
        ("910B", "0", "1", True),
        ("exact", "0", "1", False),
    ],
)
def test_the_overflow_mode(
    profile: str,
    enable: str | None,
    force: str | None,
    saturates: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("ENABLE", enable), ("FORCE_DISABLE", force)):
        if value is None:
            monkeypatch.delenv(f"INF_NAN_MODE_{name}", raising=False)
        else:
            monkeypatch.setenv(f"INF_NAN_MODE_{name}", value)
    with npu_core.use(profile):
        assert options.saturates() is saturates
        assert options.is_support_inf_nan() is not saturates


def test_one_variable_alone_is_an_error_on_910b(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "0")
    monkeypatch.delenv("INF_NAN_MODE_FORCE_DISABLE", raising=False)
    with npu_core.use("910B"):
        with pytest.raises(RuntimeError, match="set INF_NAN_MODE_FORCE_DISABLE=1 too"):
            options.is_support_inf_nan()
        assert not options.saturates()
