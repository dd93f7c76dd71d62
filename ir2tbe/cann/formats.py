"""Codes of storage formats (ACL's `aclFormat`) as names."""

from __future__ import annotations

_NAMES = (
    "NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW",
    "FRACTAL_DECONV", "C1HWNC0", "FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS",
    "NC1HWC0_C04", "FRACTAL_Z_C04", "CHWN", "DECONV_SP_STRIDE8_TRANS", "HWCN", "NC1KHKWHWC0",
    "BN_WEIGHT", "FILTER_HWCK", "LOOKUP_LOOKUPS", "LOOKUP_KEYS", "LOOKUP_VALUE", "LOOKUP_OUTPUT",
    "LOOKUP_HITS", "C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW", "DHWCN",
    "NDC1HWC0", "FRACTAL_Z_3D", "CN", "NC", "DHWNC", "FRACTAL_Z_3D_TRANSPOSE", "FRACTAL_ZN_LSTM",
    "FRACTAL_Z_G", "RESERVED", "ALL", "NULL", "ND_RNN_BIAS", "FRACTAL_ZN_RNN", "YUV", "YUV_A",
    "NCL", "FRACTAL_Z_WINO", "C1HWC0",
)  # fmt: skip

FORMATS: dict[int, str] = {-1: "UNDEFINED", **dict(enumerate(_NAMES)), 255: "MAX"}
"""Name by code."""

CODES: dict[str, int] = {name: code for code, name in FORMATS.items()}
"""Code by name."""


def format_name(code: int) -> str:
    """The name of a format; of an unknown one its number."""
    return FORMATS.get(code, str(code))
