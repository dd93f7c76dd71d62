"""The languages in which people are spoken to, and how a table of phrases is one of them. No torch.

A phrase that takes values takes them by name, so that another language may order them otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

LANGUAGES = ("en", "zh")


class Spoken:
    """The phrases of one language: `say("step", step=3)`.

    Raises ValueError for another language. Where `count` is 1, a phrase is the one of that name
    that begins with `one`, if there is one.
    """

    phrases: ClassVar[Mapping[str, tuple[str, str]]]
    """English and Chinese, by name."""

    def __init__(self, lang: str) -> None:
        if lang not in LANGUAGES:
            raise ValueError(f"lang={lang!r}: choose {' or '.join(LANGUAGES)}")
        self.lang = lang
        self._column = LANGUAGES.index(lang)

    def __call__(self, name: str, /, **values: object) -> str:
        one = f"one {name}"
        if values.get("count") == 1 and one in self.phrases:
            name = one
        return self.phrases[name][self._column].format(**values)
