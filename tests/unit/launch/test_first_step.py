"""What a launch that waits reads of the journal."""

from __future__ import annotations

from typing import Any

from sweepstack.launch.first_step import first_open


def line(event: str, cell: str) -> dict[str, Any]:
    return {"event": event, "cell": cell}


def test_what_has_ended_is_open_no_more() -> None:
    """Else a launch would say that the box goes on with a cell which has failed."""
    begun = [line("cell-started", "a"), line("cell-started", "b")]
    open_of = lambda *more: first_open([*begun, *more], "cell", "cell-started", ("cell-failed", "cell-dropped"))  # noqa: E731
    assert open_of() == "a"
    assert open_of(line("cell-failed", "a")) == "b"
    assert open_of(line("cell-failed", "a"), line("cell-started", "a")) == "b"
    assert open_of(line("cell-failed", "a"), line("cell-dropped", "b"), {"event": "code-changed"}) == ""
