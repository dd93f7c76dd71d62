"""Texts that are shown: inert, and readable where they came in byte by byte."""

import pytest

from dumper.errors import decoded, printable

BYTES = "结果/x".encode().decode("ascii", "surrogateescape")


def test_a_path_of_an_ascii_locale_is_its_characters():
    assert decoded(BYTES) == "结果/x"
    assert printable(BYTES) == "结果/x"


@pytest.mark.parametrize("text", ["结果", "plain", "\udce7", "a\udcffb", "\udce7\udcbb/x"])
def test_what_is_no_utf8_stays(text):
    assert decoded(text) == text
    assert all(character.isprintable() for character in printable(text))
