"""What a platform says of a box that it stopped, or that came back without GPUs: on each screen, and what leads on.

The local platform stands in for one whose stopped boxes can't be read, as those of RunPod and vast.ai can't.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sweepstack.evidence.object_store import FolderStore
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import JOURNAL
from sweepstack.onbox.common.canonical import GENESIS
from sweepstack.onbox.common.errors import EvidenceError, PlatformError
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told
from tests.unit.cli.support import STACK, Box, World

UP = f"pulumi up --stack {STACK}"
GIVE_UP = f'sweepctl give-up --stack {STACK} data/box-0 --reason "…" && pulumi destroy --stack {STACK}'
TAKEN = "preempted: its GPUs went to another customer"
WAKE = f"{UP}    (starts box-0, with which cells wait"


@pytest.fixture
def box(world: World) -> Box:
    """Two cells are sealed, and one trains."""
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.seal("lr0.3")
    box.start("lr0.9")
    box.alive()
    return box


def says(world: World, **changes: Any) -> None:
    """The platform shows the box with these changes, and a stopped one can't be read."""
    honest, way = LocalPlatform.get, LocalPlatform.channel

    def get(self: LocalPlatform, native_id: str, account: str) -> BoxRecord:
        return replace(honest(self, native_id, account), **changes)

    def channel(self: LocalPlatform, native_id: str, account: str) -> Any:
        if changes.get("phase") is Phase.STOPPED:
            raise PlatformError(f"{native_id} is stopped: nothing runs there")
        return way(self, native_id, account)

    world.monkeypatch.setattr(LocalPlatform, "get", get)
    world.monkeypatch.setattr(LocalPlatform, "channel", channel)


def taken(world: World, box: Box) -> None:
    box.alive(False)
    says(world, phase=Phase.STOPPED, note=TAKEN, told=Told.PREEMPTED)


def test_a_preempted_box_is_called_so_and_next_asks_for_it_again(world: World, box: Box) -> None:
    """Found on 6f8d950f: what the platform said was lost, and a `want` that was running was to be set to it."""
    taken(world, box)
    seen = world.run("status", "--json").json
    (shown,) = seen["boxes"]
    assert (shown["told"], shown["phase"]) == ("preempted", "stopped")
    assert shown["note"] == f"{TAKEN}; {box.native_id} is stopped: nothing runs there"
    assert not [note for note in seen["notes"] if "no command of ours" in note]
    assert seen["next"] == [
        f"{WAKE}; where another customer has its place, a higher `bid` may help)",
        f"{GIVE_UP}    (gives them up)",
    ]
    assert f"note   box box-0: {TAKEN}; " in world.run("status").out
    asked = world.run("pull", "--json")  # another `pull` was named, which can never work
    assert asked.code == 2
    assert asked.json["next"][0].startswith(WAKE)
    assert asked.json["next"][1].startswith(f"sweepctl pull --stack {STACK}")
    world.monkeypatch.setattr("sweepstack.cli.commands.wait.POLL_SECONDS", 0.01)
    asked = world.run("wait", "done", "--timeout", "1m", "--json")
    assert asked.code == 1, "it counted as one that may answer again, for 24 hours"
    assert "no runner is alive, and" in asked.err
    assert "not done within" not in asked.err


@pytest.mark.parametrize("want", ["running", "stopped"])
def test_want_is_set_only_where_it_keeps_the_box_stopped(world: World, box: Box, want: str) -> None:
    box.alive(False)
    box.want = want
    says(world, phase=Phase.STOPPED)
    (first, _) = world.run("status", "--json").json["next"]
    assert first.startswith(UP)
    assert ("after boxes.box-0.want is set to running: starts" in first) == (want == "stopped")


def test_a_box_that_came_back_without_gpus_is_no_dead_runner(world: World, box: Box) -> None:
    """Found on 6f8d950f: `pulumi up` was named again and again, and refused each time for its GPUs."""
    box.alive(False)
    box.gpus = 1
    says(world, gpu_count=0, note="it has no GPU now")
    seen = world.run("status", "--json").json
    (shown,) = seen["boxes"]
    assert shown["note"] == "it has no GPU now"
    assert shown["alarms"] == ["it came up with 0 of 1 GPUs: nothing is started on it, and it bills"]
    stop, other, pull = seen["next"]
    assert stop.startswith(f"{UP}    (after boxes.box-0.want is set to stopped, then once more with running")
    assert other.startswith(f"{UP}    (with a further name below boxes")
    assert pull.startswith(f"sweepctl pull --stack {STACK} && {GIVE_UP}")


def test_a_box_that_vanishes_is_told_as_it_was_last_seen(world: World, box: Box) -> None:
    """Found on 6f8d950f: `status` had shown two cells sealed and kept nothing. Then all were pending, and what gave the
    box up said so, too."""
    for _ in range(2):
        assert world.run("status", "--json").code == 0
    taken(world, box)
    seen = world.run("status", "--json").json
    assert {cell["name"]: cell["state"] for cell in seen["cells"]} == {
        "lr0.1": "sealed",
        "lr0.3": "sealed",
        "lr0.9": "pending",
    }
    given = world.run("give-up", "data/box-0", "--reason", "outbid")
    assert "ABANDONED box-0: 3 cells may be lost, 2 of them finished: 2 sealed, 1 pending" in given.out


def test_a_look_writes_only_what_has_grown_and_what_goes_on(world: World, box: Box) -> None:
    world.run("status")
    copy = world.store.journal_path("box-0", 1)
    first, written = copy.read_bytes(), copy.stat()
    assert first == (box.root / JOURNAL).read_bytes()
    with world.monkeypatch.context() as patch:
        patch.setattr(EvidenceStore, "write_journal", None)
        assert world.run("status").code == 0
    assert copy.stat() == written, "nothing is written again, nor read"
    box.log("cell-failed", cell="lr0.9", attempt=1, exit_code=1, reason="exit code 1", final=True)
    world.run("status")
    longer = copy.read_bytes()
    assert longer.startswith(first)
    assert longer == (box.root / JOURNAL).read_bytes()
    (box.root / JOURNAL).write_bytes(first)
    world.run("status")
    assert copy.read_bytes() == longer, "a box that was put back to an earlier day"
    (box.root / JOURNAL).unlink()
    box.head, box.seq = GENESIS, 0
    for _ in range(30):
        box.log("runner-started", why="a journal that was written again")
    notes = world.run("status", "--json").json["notes"]
    assert copy.read_bytes() == longer
    assert any("does not continue the copy kept before" in note for note in notes)


def test_a_copy_that_can_t_be_written_changes_no_answer(world: World, box: Box) -> None:
    before = world.run("status", "--json").json
    box.log("lease-over", why="no look")

    def full(*_: Any, **__: Any) -> str:
        raise EvidenceError("no space left")

    world.monkeypatch.setattr(FolderStore, "write", full)
    seen = world.run("status", "--json")
    assert seen.code == 0
    assert [cell["state"] for cell in seen.json["cells"]] == [cell["state"] for cell in before["cells"]]
