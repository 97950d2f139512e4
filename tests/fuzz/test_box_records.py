"""What a box writes and reads: journal, manifest, queue. The runner's own classes and the readers here."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.core.journal import parse_journal
from sweepstack.evidence.manifest import manifest_digest, parse_manifest
from sweepstack.onbox.common.canonical import canonical_json, digest_of
from sweepstack.onbox.common.errors import SweepstackError
from tests.fuzz.damage import JSON, one_byte, touched, tried

IDENTITY, CELL = "abcdefghij", "lr0.1-seed0"
CODE = "sha256:" + "c" * 64
PARAMS = {"lr": 0.1, "seed": 0}
CONFIG = digest_of({"name": CELL, "params": PARAMS})


@pytest.fixture(scope="module")
def records() -> Any:
    """The runner's own module."""
    from sweepstack.onbox.runner import records as runner_records

    return runner_records


@pytest.fixture
def files(tmp_path: Path) -> Callable[[], Path]:
    """New names in one folder: examples of one test share it."""
    numbers = itertools.count()

    class Folder:
        def __call__(self) -> Path:
            return tmp_path / str(next(numbers))

    return Folder()


def written(records: Any, path: Path, cells: list[str]) -> bytes:
    """A journal as the runner writes it: every cell started; failed, sealed or dropped."""
    journal = records.Journal(path)
    journal.append("runner-started", wait=False, pid=7)
    for number, name in enumerate(cells):
        digest = digest_of({"name": name, "params": PARAMS})
        started = {"config_digest": digest, "code": CODE, "version": CODE, "argv": ["sh"], "slot": 0}
        journal.append("cell-started", wait=False, cell=name, attempt=1, **started)
        if number % 3 == 0:
            journal.append(
                "cell-sealed", wait=False, cell=name, attempt=1, config_digest=digest, manifest=CODE, bytes=9
            )
        elif number % 3 == 1:
            failed = {"exit_code": 3, "reason": "exit code 3: boom", "final": True}
            journal.append("cell-failed", wait=False, cell=name, attempt=1, **failed)
        else:
            journal.append("cell-dropped", wait=False, cell=name, reason="wrong")
    return path.read_bytes()


def opened(records: Any, path: Path) -> Any:
    """The journal as the runner takes it up; None where it refuses to, by exit code 4."""
    try:
        return records.Journal(path)
    except records.Fatal as error:
        code, message = error.args
    assert (code, str(path) in message) == (4, True)
    return None


@given(data=st.data(), count=st.integers(1, 6))
def test_damaged_journal_is_refused_or_a_beginning_of_the_real_one(
    records: Any, files: Any, data: st.DataObject, count: int
) -> None:
    """Never another history: a line that was touched is no line."""
    whole = written(records, files(), [f"c{number}" for number in range(count)])
    real = parse_journal(whole)
    bad = data.draw(touched(whole) | one_byte(whole))
    found = tried(parse_journal, bad)
    if isinstance(found, SweepstackError):
        assert "journal line" in str(found)
    else:
        assert found.entries == real.entries[: len(found.entries)]


@given(data=st.data(), count=st.integers(1, 4))
def test_runner_on_a_damaged_journal_starts_nothing_or_knows_a_beginning(
    records: Any, files: Any, data: st.DataObject, count: int
) -> None:
    """The runner refuses, and leaves the file as it is for a person; or goes on from what really happened."""
    whole = written(records, files(), [f"c{number}" for number in range(count)])
    bad = data.draw(touched(whole) | one_byte(whole))
    path = files()
    path.write_bytes(bad)
    journal = opened(records, path)
    if journal is None:
        assert path.read_bytes() == bad
        return
    real = parse_journal(whole)
    known = {name: cell.state for name, cell in journal.cells.items() if cell.state != "pending"}
    states = {"started": "running"}
    assert {name: states.get(state, state) for name, state in known.items()}.items() <= {
        (name, progress.state) for length in range(len(real.entries) + 1) for name, progress in _after(whole, length)
    }


def _after(whole: bytes, length: int) -> Any:
    return parse_journal(b"".join(whole.splitlines(keepends=True)[:length])).cells.items()


@given(data=st.binary(max_size=400) | st.lists(JSON.map(canonical_json)).map(lambda lines: b"\n".join([*lines, b""])))
def test_anything_for_a_journal(records: Any, files: Any, data: bytes) -> None:
    tried(parse_journal, data)
    path = files()
    path.write_bytes(data)
    opened(records, path)


@given(events=st.lists(st.tuples(st.text(max_size=12), st.dictionaries(st.text(max_size=9), JSON, max_size=4))))
def test_events_of_a_later_runner(records: Any, files: Any, events: list[tuple[str, dict[str, Any]]]) -> None:
    """An event of a name that is not known here is passed over, whatever it holds; one of ours without what it must
    say is damage."""
    path = files()
    journal = records.Journal(path)
    for event, details in events:
        journal.append("x-" + event, wait=False, **{"x" + key: value for key, value in details.items()})
    assert len(parse_journal(path.read_bytes()).entries) == len(events)
    assert records.Journal(path).cells == {}


MANIFEST = {
    "schema": 1,
    "identity": IDENTITY,
    "box": "box-0",
    "native_id": "local-1",
    "generation": 1,
    "cell": CELL,
    "attempt": 1,
    "config_digest": CONFIG,
    "params": PARAMS,
    "code": CODE,
    "argv": ["/bin/sh", "-c", "train"],
    "started_at": "2026-11-21T09:00:00.000Z",
    "sealed_at": "2026-11-21T09:01:00.000Z",
    "environment": {"python": "3.11"},
    "files": [
        {"path": path, "size": 3, "sha256": "a" * 64, "role": role}
        for path, role in (("log.txt", "log"), ("model.pt", "artifact"), ("plots/a.csv", "extra"))
    ],
}
SEALED = canonical_json(MANIFEST) + b"\n"


@given(bad=touched(SEALED) | one_byte(SEALED))
def test_damaged_manifest_is_refused_or_has_another_digest(bad: bytes) -> None:
    """What the journal recorded is the digest: a manifest that still parses does not pass for the real one."""
    found = tried(parse_manifest, bad, IDENTITY, CELL)
    if not isinstance(found, SweepstackError):
        same = manifest_digest(bad) == manifest_digest(SEALED)
        assert same == (bad.removesuffix(b"\n") == SEALED.removesuffix(b"\n"))
        if same:
            assert found == parse_manifest(SEALED, IDENTITY, CELL)


@given(change=st.dictionaries(st.sampled_from(sorted(MANIFEST)), JSON, min_size=1, max_size=3))
def test_manifest_of_any_values(change: dict[str, Any]) -> None:
    """Bounded, ours and plain: no path that leads out, no cell or sweep but the one that was asked for."""
    found = tried(parse_manifest, json.dumps(MANIFEST | change).encode(), IDENTITY, CELL)
    if not isinstance(found, SweepstackError):
        assert (found.identity, found.cell) == (IDENTITY, CELL)
        assert digest_of({"name": CELL, "params": found.params}) == found.config_digest


@given(paths=st.lists(st.text(max_size=30) | st.sampled_from(["../x", "/x", "a/../b", "a//b", ".", "manifest.json"])))
def test_manifest_of_any_paths(paths: list[str]) -> None:
    entries = [{"path": path, "size": 1, "sha256": "a" * 64, "role": "extra"} for path in paths]
    found = tried(parse_manifest, json.dumps(MANIFEST | {"files": entries}).encode(), IDENTITY, CELL)
    if not isinstance(found, SweepstackError):
        root = Path("/cells") / CELL
        for file in found.files:
            assert (root / file.path).is_relative_to(root)
            assert ".." not in Path(file.path).parts
            assert file.path != "manifest.json"


LINE = {"op": "add", "cell": CELL, "params": PARAMS, "config_digest": CONFIG, "code": CODE, "run": "true", "env": {}}
GOOD_QUEUE = canonical_json(LINE) + b"\n" + canonical_json({"op": "drop", "cell": "b", "reason": "wrong"}) + b"\n"


def taken(records: Any, path: Path, data: bytes) -> Any:
    """What the runner makes of a queue file."""
    path.write_bytes(data)
    queue = records.Queue(path)
    queue.refresh()
    for versions in queue.cells.values():
        for entry in versions if isinstance(versions, list) else []:
            assert records.CELL.fullmatch(entry.cell)
            assert entry.config == digest_of({"name": entry.cell, "params": entry.params})
    return queue


@given(data=touched(GOOD_QUEUE) | st.binary(max_size=200) | JSON.map(canonical_json).map(lambda line: line + b"\n"))
def test_anything_for_a_queue(records: Any, files: Any, data: bytes) -> None:
    """A line that is none is counted and said, and stops nobody else's."""
    queue = taken(records, files(), data + b"\n" + GOOD_QUEUE)
    assert queue.cells["b"] == "wrong"
    assert [entry.run for entry in queue.cells[CELL]][-1] == "true"


@given(
    change=st.dictionaries(st.sampled_from([*sorted(LINE), "artifacts", "setup", "retry", "salt"]), JSON, min_size=1)
)
def test_queue_line_of_any_values(records: Any, files: Any, change: dict[str, Any]) -> None:
    queue = taken(records, files(), canonical_json(LINE | change) + b"\n")
    assert queue.unreadable + len(queue.cells) >= 1
