"""Whatever sessions do to one folder, none takes away what it never had, and none loses what it made."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.extensions.by_hand.onbox.carry import PART
from sweepstack.extensions.by_hand.onbox.main import Refused, Session
from sweepstack.onbox.common import box_layout
from tests.killing import killed_at

FACTS = {"identity": "id", "box": "box-0", "native_id": "manual-x", "generation": 1}
CELL = f"{box_layout.DURABLE}/id/checkpoints/a/0123456789abcdef"
NAMES = (f"{CELL}/last.ckpt", f"{CELL}/step-1", f"{CELL}/step-2", box_layout.RUNNER_LOG)
KILL = st.one_of(st.none(), st.integers(1, 25))
WHICH = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("write"), WHICH, st.sampled_from(NAMES), st.integers(-3, 3)),
    st.tuples(st.just("prune"), WHICH, st.sampled_from(NAMES[:3]), st.just(0)),
    st.tuples(st.just("carry"), WHICH, KILL, st.just(0)),
    st.tuples(st.just("carry"), WHICH, st.none(), st.just(0)),
    st.tuples(st.just("begin"), WHICH, KILL, st.sampled_from(["here", "empty", "lagging"])),
)


class History:
    """Two machines, each with a session at a time, and the one folder that both carry to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, folder / "given"
        self.works = [folder / "machine-0", folder / "machine-1"]
        self.sessions: list[Session | None] = [None, None]
        self.had: list[set[str]] = [set(), set()]
        """What each machine's sessions ever had of the files."""
        self.count, self.clock = 0, 1_000_000

    def play(self, what: str, which: int, one: Any, other: Any) -> None:
        session = self.sessions[which]
        if what == "begin":
            self.begin(which, one, other)
        elif session is None:
            return
        elif what == "write":
            self.write(session.work / one, other)
            self.had[which] |= contents(session.work)
        elif what == "prune":
            (session.work / one).unlink(missing_ok=True)
        else:
            done = False
            with killed_at(one):
                session.carrier.carry()
                done = True
            if not done:
                self.sessions[which] = None
                return
            for name in NAMES if self.sessions[1 - which] is None else ():
                if (session.work / name).exists():
                    assert (session.carrier.out / name).read_bytes() == (session.work / name).read_bytes(), name

    def begin(self, which: int, kill: int | None, how: str) -> None:
        """A person starts the bundle: on what that machine has, on a new disk, or while the folder shows the files of
        its checkpoints late."""
        work, before = self.works[which], contents(self.works[which])
        if how != "here" and work.exists():
            self.count += 1
            work.rename(self.folder / f"gone-{self.count}")
            before = set()
        late = [self.given / FACTS["native_id"] / name for name in NAMES[:3]] if how == "lagging" else []
        late = [path for path in late if path.exists()]
        for path in late:
            path.rename(self.folder / path.name)
        asked = argparse.Namespace(out=str(self.given), work=str(work), source=[], hours=0, take_over=True)
        bundle: Any = SimpleNamespace(facts=FACTS, place=self.folder)
        session, self.sessions[which] = Session(bundle, asked), None
        try:
            with killed_at(kill):
                session._bring_back()
                self.log(session)
                self.sessions[which] = session
        except Refused:
            pass  # two journals: a person chooses
        for path in late:
            (self.folder / path.name).rename(path)
        self.had[which] |= contents(work)
        assert before <= contents(work)

    def log(self, session: Session) -> None:
        """As its runner does at once."""
        self.count += 1
        path = session.work / box_layout.JOURNAL
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as handle:
            handle.write(json.dumps({"event": "cell-started", "cell": "a", "attempt": self.count}).encode() + b"\n")

    def write(self, path: Path, ahead: int) -> None:
        """All contents have the same size; the clock is set back now and then, or stands still."""
        self.count, self.clock = self.count + 1, self.clock + ahead
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {self.count:06}")
        os.utime(path, (self.clock, self.clock))

    def check(self, steps: list[tuple[str, int, Any, Any]]) -> None:
        for step in steps:
            before, journals = contents(self.given), logs(self.given)
            self.play(*step)
            gone = before - contents(self.given)
            assert gone <= self.had[step[1]], f"{step} took away {gone}"
            for journal in journals:
                assert any(later.startswith(journal) for later in logs(self.given)), f"{step} lost a journal"


def contents(folder: Path) -> set[str]:
    """What the whole files of our names, or copies of them that were set aside, hold."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(PART)]
    return {text for path in found if (text := path.read_text("utf-8", "replace")).startswith("content ")}


def logs(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("journal.jsonl*") if not path.name.endswith(PART)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return tmp_path


def played(folder: Path, steps: list[tuple[str, int, Any, Any]]) -> None:
    place = folder / str(sum(1 for _ in folder.iterdir()))
    place.mkdir()
    History(place).check([("begin", 0, None, "here"), *steps])


@settings(max_examples=40)
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_no_session_takes_away_what_it_never_had(folder: Path, steps: list[tuple[str, int, Any, Any]]) -> None:
    played(folder, steps)


@pytest.mark.proof  # the test above plays 40 of them
@settings(max_examples=1500)
@given(steps=st.lists(STEPS, min_size=4, max_size=25))
def test_no_session_ever_takes_away_what_it_never_had(folder: Path, steps: list[tuple[str, int, Any, Any]]) -> None:
    played(folder, steps)
