"""What a handler says on a row that the engine calls a delete, and that ends nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweepstack.provider import session
from sweepstack.provider.session import Severity, destroys
from tests.unit.provider.support import Sweep


@pytest.mark.parametrize(
    ("words", "is_one"), [(["destroy", "--yes"], True), (["-C", "x", "dn"], True), (["up"], False)]
)
@pytest.mark.parametrize("by", ["proc", "ps"])
def test_a_destroy_is_known_by_the_engine_s_own_words(
    monkeypatch: pytest.MonkeyPatch, words: list[str], is_one: bool, by: str
) -> None:
    if by == "ps":
        monkeypatch.setattr(session, "Path", lambda _: Path("/no/such/folder"))
    before = "x" * 300  # a checkout in a long path, too
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", before, *words])
    try:
        time.sleep(0.2)  # until it is no copy of this process any more
        assert destroys(engine.pid) is is_one
    finally:
        engine.kill()
        engine.wait()


def test_where_that_can_t_be_read_it_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Path", lambda _: Path("/no/such/folder"))
    monkeypatch.setenv("PATH", "/no/such/folder")
    session._typed.cache_clear()
    assert destroys(1)


@pytest.mark.parametrize("destroying", [True, False])
def test_what_survives_stays_on_the_screen_of_a_destroy_alone(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, destroying: bool
) -> None:
    monkeypatch.setattr(session, "destroys", lambda _: destroying)
    sweep.op("Volume", "durable").survives("volume durable survives a destroy")
    shown = [severity for severity, _ in sweep.said.lines]
    assert shown == [Severity.PROGRESS, Severity.INFO][: 1 + destroying]
