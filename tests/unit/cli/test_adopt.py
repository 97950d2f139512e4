"""`sweepctl adopt`: from a lost backend, and from a name that this computer had before."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweepstack.core import this_host
from sweepstack.core.records import Lease
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import TAKEOVERS, Takeovers, held_elsewhere, name_of_backend
from sweepstack.onbox.common.errors import EvidenceElsewhere
from sweepstack.operations.strays.other_backends import ask_backend
from sweepstack.status.engine.state import StackMissing
from tests.unit.cli.support import STACK, World

ADOPT = ("adopt", "--reason", "the old laptop died")


@pytest.fixture
def backend(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one that is used here, as the engine tells it."""
    url = f"file://{world.engine}/state"
    world.on("whoami", f"""echo '{{"url": "{url}"}}'""")
    monkeypatch.setenv("PULUMI_BACKEND_URL", url)
    return name_of_backend(url)


def held(world: World, backend: str) -> None:
    world.store.write_lease(Lease(backend=backend, host="there", taken_at=datetime.now(UTC)))


@pytest.mark.parametrize("lost", ["file://laptop-7/home/me/state", "file://HERE/nowhere"])
def test_a_lost_backend_s_sweep_is_taken_over(world: World, backend: str, lost: str) -> None:
    world.add("box-0").launch("lr0.3")
    held(world, lost.replace("HERE", socket.gethostname()))
    elsewhere = held_elsewhere(world.store)
    assert elsewhere is not None
    # Only a person at a terminal, who types the stack's name.
    for words, types in ((ADOPT, None), (ADOPT, "yes"), (("adopt",), STACK)):
        assert world.run(*words, types=types).code in (1, 2)
        assert held_elsewhere(world.store) == elsewhere
    result = world.run(*ADOPT, types=STACK)
    assert result.code == 0, result
    assert held_elsewhere(world.store) is None
    record = world.store.record(TAKEOVERS, Takeovers)
    assert record is not None
    (taken,) = record.takeovers
    assert (taken.held_by, taken.taken_to, taken.reason) == (elsewhere.backend, backend, "the old laptop died")
    assert f"pulumi up --stack {STACK}" in result.out
    assert world.run(*ADOPT).code == 0, "nothing is left to take over"


def test_what_a_lost_backend_held_by_a_box_alone_is_taken_over_by_name(world: World, backend: str) -> None:
    """The evidence is a copy: its lease names no other backend, and the box does."""
    world.add("box-0").launch("lr0.3")
    held(world, backend)
    lost = "file://laptop-7/home/me/state"
    refused = world.run(*ADOPT, "--from", lost, types="yes")
    assert refused.code == 1
    assert "not taken over; nothing was written" in refused.err
    assert world.store.record(TAKEOVERS, Takeovers) is None
    result = world.run(*ADOPT, "--from", lost, types=STACK)
    assert result.code == 0, result
    record = world.store.record(TAKEOVERS, Takeovers)
    assert record is not None
    assert [(taken.held_by, taken.taken_to) for taken in record.takeovers] == [(lost, backend)]
    assert f"pulumi up --stack {STACK}" in result.out
    anew = EvidenceStore.open(world.store.objects.uri)
    anew.write_lease(Lease(backend="s3://another", host="there", taken_at=datetime.now(UTC)))
    assert f"is held by the state in s3://another, not by {lost}" in world.run(*ADOPT, "--from", lost, types=STACK).err


def test_a_backend_that_answers_and_holds_the_stack_keeps_it(world: World, backend: str, tmp_path: Path) -> None:
    world.add("box-0").launch("lr0.3")
    (tmp_path / "old" / ".pulumi").mkdir(parents=True)
    held(world, f"file://{socket.gethostname()}{tmp_path}/old")
    result = world.run(*ADOPT, types=STACK)
    assert result.code == 1
    assert "answers and still holds" in result.err
    assert f"PULUMI_BACKEND_URL=file://{tmp_path}/old sweepctl status --stack {STACK}" in result.err
    assert held_elsewhere(world.store) is not None


@pytest.mark.parametrize("there", [False, True], ids=["no_folder", "mount_point"])
def test_a_backend_on_a_disk_that_is_not_mounted_is_not_called_empty(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    def no_stack(*_: object, **__: object) -> None:
        (folder / ".pulumi").mkdir(exist_ok=True)  # as the engine does, in any folder that it is told to read
        raise StackMissing("no stack named 'sweep-t' found")

    monkeypatch.setattr("sweepstack.operations.strays.other_backends.read_state", no_stack)
    folder = tmp_path / "old"
    if there:
        folder.mkdir()
    held_by = f"file://{socket.gethostname()}{folder}"
    for _ in range(2):
        said = ask_backend(held_by, STACK, world.root).words
        assert said == "shows no state now, but its disk may not be mounted: mount it first"
    (folder / ".pulumi").mkdir(parents=True, exist_ok=True)
    assert ask_backend(held_by, STACK, world.root).words == "answers, and has no such stack"


def test_status_names_it_for_a_box_that_another_backend_holds(world: World, backend: str) -> None:
    world.add("box-0").launch("lr0.3")
    world.save(world.empty())
    held(world, "file://laptop-7/home/me/state")
    seen = world.run("status", "--json", fresh=False)
    first, end = seen.json["next"]
    assert f'sweepctl adopt --stack {STACK} --reason "…"' in first, seen
    assert end.startswith("sweepctl audit --end local:")
    assert end.endswith("(gives it up, where that backend is lost; refused while it answers)")


def test_what_calls_another_computer_s_boxes_gone_is_named_last_with_its_condition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence is shared, the box is on the computer that rented it: who follows the first line stays unsure."""
    box = world.add("box-0")
    account, claim = box.record.account, f"python -m sweepstack.platforms.local --also {box.record.account}"
    world.save(world.empty())
    monkeypatch.setattr("sweepstack.onbox.host.box_folders.host_identity", lambda: "another-computer")
    first = world.run("status", "--json", fresh=False).json["next"][0]
    host = account.partition("/")[0]
    assert first == f"{claim}    (if this computer was called {host}, and was renamed)", "the very folder of its boxes"
    world.move_registry()
    world.platform.account()
    ways = world.run("status", "--json", fresh=False).json["next"]
    assert "--also" not in ways[0]
    assert ways[-1] == f"{claim}    (only if this computer was called {host}: what is not here then counts as gone)"


def test_a_computer_that_was_renamed_knows_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    box = world.add("box-0")
    evidence, account = world.store.objects.uri, box.record.account
    lease = Lease(backend=name_of_backend(f"file://{world.engine}"), host="x", taken_at=datetime.now(UTC))
    old = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    with pytest.raises(EvidenceElsewhere, match=f"sweepctl adopt --renamed-from {old}"):
        EvidenceStore.open(evidence)
    assert world.run("adopt", "--renamed-from", old, stack=None).code == 0
    assert world.run("adopt", "--renamed-from", old, stack=None).code == 0
    assert this_host.names() == ("renamed", old)
    assert world.platform.get(box.native_id, account).native_id == box.native_id
    world.store.write_lease(lease)
    assert held_elsewhere(EvidenceStore.open(evidence), name_of_backend(f"file://{world.engine}")) is None
    with pytest.raises(EvidenceElsewhere):
        EvidenceStore.open(evidence.replace(old, "another"))


def test_a_box_on_a_machine_that_was_renamed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    box = world.add("box-0")
    monkeypatch.setattr("sweepstack.onbox.host.box_folders.host_identity", lambda: "renamed")
    assert "belongs to" in world.run("status").out
    unknown = world.run("adopt", "box-9", "--reason", "x")
    assert unknown.code == 1
    assert "there is no box box-9 in the state" in unknown.err
    result = world.run("adopt", "box-0", "--reason", "a new name")
    assert result.code == 0, result
    assert world.platform.get(box.native_id, box.record.account).native_id == box.native_id


def test_status_says_that_a_dead_command_still_locks_the_state(world: World, backend: str) -> None:
    """As `pulumi destroy | head` leaves it."""
    locks = world.engine / "state" / ".pulumi" / "locks" / "organization" / "sweepstack" / STACK
    locks.mkdir(parents=True)
    held_by = {"pid": os.getpid(), "hostname": socket.gethostname(), "timestamp": "2026-11-22T14:00:00Z"}
    (locks / "x.json").write_text(json.dumps(held_by))
    assert not any("lock" in note for note in world.run("status", "--json").json["notes"]), "it may still run"
    (locks / "x.json").write_text(json.dumps(held_by | {"pid": 2**22 + 1}))
    seen = world.run("status", "--json").json
    (note,) = [note for note in seen["notes"] if "lock" in note]
    assert "which has ended" in note
    assert any(way.startswith(f"pulumi cancel --stack {STACK} ") for way in seen["next"])
