"""The evidence, and the approval that stands on it: whatever becomes of the bytes, no box goes by mistake."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sweepstack.core.observation import Observation
from sweepstack.core.records import Action, Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import digest_of, sha256_hex
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import may_end
from tests.fuzz.damage import JSON, one_byte, touched, tried
from tests.unit.evidence.world import World, cleared_box

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class Cleared:
    """A sweep whose box may end: verified, approved, nothing touched yet."""

    world: World
    facts: BoxFacts
    approval: Approval
    seen: Observation

    @property
    def root(self) -> Path:
        return Path(self.world.store.root)

    def allowed(self, approval: Approval | None = None) -> bool:
        """What the check says. It never raises."""
        return may_end(
            BoxEnding(BoxContext(self.facts, "local"), approval or self.approval, self.seen), now=NOW, full=True
        ).allowed


@pytest.fixture(scope="module")
def cleared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cleared]:
    """One sweep for all examples of the module: each puts back what it damaged."""
    world = World(tmp_path_factory.mktemp("world"))
    made = Cleared(world, *cleared_box(world, NOW))
    assert made.allowed()
    yield made
    shutil.rmtree(world.folder)


class Damaged:
    """A file with other content for a while. Its times are kept: a check by times alone must not be fooled here."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data

    def __enter__(self) -> None:
        self.before, self.status = self.path.read_bytes(), self.path.stat()
        self.path.write_bytes(self.data)
        self._times()

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)
        self._times()

    def _times(self) -> None:
        os.utime(self.path, ns=(self.status.st_atime_ns, self.status.st_mtime_ns))


def evidence_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))


@given(data=st.data())
def test_nothing_that_the_clearance_stands_on_may_change(cleared: Cleared, data: st.DataObject) -> None:
    """One byte of the receipt, of a pulled file, of the marker: locked again, whichever it is. Never an exception."""
    path = data.draw(st.sampled_from(evidence_files(cleared.root)))
    whole = path.read_bytes()
    bad = data.draw(one_byte(whole) | touched(whole)) if whole else b"x"
    with Damaged(path, bad):
        allowed = cleared.allowed()
    name = path.relative_to(cleared.root)
    stands_on = name.parts[0] in ("cells", "receipts") and path.name != "manifest.json"
    if stands_on and bad != whole:
        assert not allowed, f"cleared although {name} was changed"
    assert cleared.allowed(), "the example did not put it back"


@given(data=st.data(), kind=st.sampled_from(["births", "launches", "losses", "teardown", "lease", "clearance"]))
def test_any_record(cleared: Cleared, data: st.DataObject, kind: str) -> None:
    """A record of any bytes reads, or is refused by name."""
    store = cleared.world.store
    box = cleared.world.box
    paths = {
        "births": f"births/{box.name}-g{box.generation}.json",
        "launches": f"launches/{box.name}-g{box.generation}.json",
        "losses": "losses/x.json",
        "teardown": "teardown.json",
        "lease": "lease.json",
        "clearance": f"clearances/{box.native_id}.json",
    }
    path = cleared.root / "records" / paths[kind]
    path.parent.mkdir(exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    valid = before or cleared.approval.model_dump_json().encode()
    path.write_bytes(data.draw(touched(valid) | st.binary(max_size=60) | JSON.map(lambda v: repr(v).encode())))
    try:
        calls: dict[str, Any] = {"clearance": lambda: store.clearance(box.native_id)}
        found = tried(calls.get(kind, getattr(store, kind)))
        if isinstance(found, SweepstackError):
            assert path.name in str(found), found
        cleared.allowed()
    finally:
        path.write_bytes(before) if before is not None else path.unlink()


@given(data=st.data())
def test_any_receipt_under_its_own_digest(cleared: Cleared, data: st.DataObject) -> None:
    """A receipt that somebody wrote by hand, under the digest of its own bytes, clears nothing unverified."""
    whole = next((cleared.root / "receipts").glob("*.json")).read_bytes()
    bad = data.draw(touched(whole) | one_byte(whole) | JSON.map(lambda value: repr(value).encode()))
    digest = sha256_hex(bad)
    path = cleared.root / "receipts" / f"{digest}.json"
    if path.exists():
        return
    path.write_bytes(bad)
    try:
        approval = cleared.approval.model_copy(update={"receipt": f"sha256:{digest}"})
        found = tried(cleared.world.store.receipt, f"sha256:{digest}")
        if isinstance(found, SweepstackError):
            assert not cleared.allowed(approval)
        elif cleared.allowed(approval):  # then all that matters in it is as it was
            real = cleared.world.store.receipt(str(cleared.approval.receipt))
            assert (found.identity, found.roster_digest) == (real.identity, real.roster_digest)
            assert [(b.native_id, b.journal_head) for b in found.boxes] == [
                (b.native_id, b.journal_head) for b in real.boxes
            ]
            theirs = {cell.name: cell for cell in found.cells}
            for cell in real.cells:
                assert theirs[cell.name].state == "verified"
                assert theirs[cell.name].config_digest == cell.config_digest
    finally:
        path.unlink()


@given(change=st.dictionaries(st.sampled_from(sorted(Approval.model_fields)), JSON, min_size=1, max_size=3))
def test_any_approval(cleared: Cleared, change: dict[str, Any]) -> None:
    """An approval of any values does not parse, or says no, or says what the person said."""
    raw = cleared.approval.model_dump(mode="json") | change
    try:
        approval = Approval.model_validate(raw)
    except ValidationError:
        return
    if cleared.allowed(approval):
        assert approval.receipt == cleared.approval.receipt
        assert approval.actions == cleared.approval.actions
        assert approval.expires > NOW


@given(
    name=st.text(max_size=30), native_id=st.text(max_size=30), verb=st.sampled_from(["destroy", "stop", "terminate"])
)
def test_an_approval_of_other_names(cleared: Cleared, name: str, native_id: str, verb: str) -> None:
    """Only this very verb on this very box."""
    action = Action(verb=verb, box=name, native_id=native_id)
    approval = cleared.approval.model_copy(update={"actions": (action,)})
    assert cleared.allowed(approval) == (action == cleared.approval.actions[0])


@given(head=st.binary(min_size=1, max_size=3), digest=st.text(max_size=70))
def test_any_name_of_a_receipt(cleared: Cleared, head: bytes, digest: str) -> None:
    """Also one that leads elsewhere."""
    found = tried(cleared.world.store.receipt, digest)
    assert isinstance(found, SweepstackError)
    found = tried(cleared.world.store.receipt, digest_of(head.hex()))
    assert isinstance(found, SweepstackError)


@given(
    uri=st.text(max_size=40) | st.sampled_from(["file://", "file:///x", "s3://", "s3://b", "file://h/../x", "ftp://x"])
)
def test_any_place_of_evidence(uri: str) -> None:
    """No place by that name, said by a message of ours."""
    assert isinstance(tried(EvidenceStore.open, uri), SweepstackError)
