"""What a person probably meant, and what is named next: once."""

from __future__ import annotations

import pytest

from sweepstack.cli.output import following
from sweepstack.core.suggest import closest


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("box-O", ["box-0", "box-1"], "box-0"),
        ("box-l", ["box-0", "box-1", "box-2"], "box-1"),
        ("BOX-1", ["box-0", "box-1"], "box-1"),
        ("bxo-1", ["box-0", "box-1"], "box-1"),
        ("vers", ["verify", "version"], "version"),
        ("volumes", ["verify"], None),
    ],
)
def test_what_looks_the_same_is_nearest(word: str, known: list[str], meant: str | None) -> None:
    assert closest(word, known) == meant


def test_a_next_command_is_printed_once() -> None:
    """Several findings may have one way out."""
    assert following(["sweepctl adopt", "pulumi up", "sweepctl adopt"]) == ["next   sweepctl adopt", "       pulumi up"]
