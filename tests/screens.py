"""What a command showed a person, in lines of 80 columns: a test looks for words, wherever a line was wrapped."""

from __future__ import annotations

from sweepstack.core.columns import COLUMNS

BEGIN = ("sweepctl ", "pulumi ", "python ")


class Screen(str):
    """A text of which `in` does not care how its lines were wrapped, nor how wide a gap is."""

    __slots__ = ()

    @property
    def words(self) -> str:
        """All of it on one line, for a pattern."""
        return " ".join(self.split())

    def __contains__(self, words: object) -> bool:
        assert isinstance(words, str)
        return str.__contains__(self, words) or " ".join(words.split()) in self.words


def too_long(text: str, columns: int = COLUMNS) -> list[str]:
    """The lines that are longer, and could be shorter: what is one command, or one word, can't."""
    return [line for line in text.splitlines() if len(line) > columns and _could_be_shorter(line, columns)]


def _could_be_shorter(line: str, columns: int) -> bool:
    words = line.strip().removeprefix("next ").lstrip()
    if not words.startswith(BEGIN):
        return " " in words
    indent = len(line) - len(line.lstrip())
    return " && " in words or "    (" in words or indent + len(words) <= columns
