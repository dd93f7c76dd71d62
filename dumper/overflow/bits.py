"""What the bits of an AI Core's status register say, in words.

Several may be set at once (272 is 0x110). One table for what the emulated device and torch_npu give
as a number, and for the status in CANN's overflow files. Bits and meanings: hiascend
atlasaccuracy_16_0052. No torch.
"""

from __future__ import annotations

from ..language import LANGUAGES

BITS: dict[int, tuple[str, str]] = {
    0x8: (
        "the most negative integer was negated",
        "对最小的有符号整数取负，结果溢出",
    ),
    0x10: (
        "integer add, subtract, multiply or multiply-add overflowed",
        "整数加、减、乘或乘加溢出",
    ),
    0x20: ("floating-point computing overflowed", "浮点计算溢出"),
    0x80: (
        "a negative float was converted to an unsigned integer",
        "负浮点数转换为无符号整数",
    ),
    0x100: (
        "conversion of float32 or int32 to float16 overflowed",
        "float32 或 int32 转换为 float16 时溢出",
    ),
    0x400: ("accumulation in the cube unit overflowed", "CUBE 累加溢出"),
}
"""Meaning of each bit, in the order of LANGUAGES."""

_UNKNOWN = ("unknown bits {bits:#x}", "未知的位 {bits:#x}")


def words_of(status: int, lang: str = "en") -> tuple[str, ...]:
    """What each set bit of a status says, the lowest first; unknown ones together, last.

    status: as it was read; 0 gives nothing. lang: of LANGUAGES. Raises ValueError for another
    language and for a negative status.
    """
    if status < 0:
        raise ValueError(f"a status has no sign: {status}")
    spoken = LANGUAGES.index(lang)
    found = [words[spoken] for bit, words in BITS.items() if status & bit]
    if unknown := status & ~sum(BITS):
        found.append(_UNKNOWN[spoken].format(bits=unknown))
    return tuple(found)
