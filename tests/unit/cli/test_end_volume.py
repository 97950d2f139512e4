"""What outlived a sweep's boxes is listed with its cost, its size and the command that ends it, after a check."""

from __future__ import annotations

import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweepstack.core.local_decisions import decisions
from sweepstack.core.policy_text import PolicyText
from sweepstack.core.records import Lease
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import Unreachable, Unsupported
from sweepstack.operations.volumes.mounting_sweeps import Mounting, write_mounting
from tests.unit.cli.support import IDENTITY, STACK, Box, Result, World

pytestmark = pytest.mark.usefixtures("no_rental_platform")


def end(world: World, *more: str) -> Result:
    return world.run("audit", "--end", f"local:{world.volume}", "--yes", world.volume, *more, stack=None, fresh=False)


ABANDON = ("--abandon", "--reason", "its disk is needed")


def over(world: World, *boxes: Box) -> None:
    """The sweep was destroyed: its boxes are gone, its records closed, its state empty."""
    for box in boxes:
        world.platform.destroy(box.native_id, box.record.account)
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC), ended_how="cleared"))
    world.save(world.empty())
    world.boxes.clear()


def destroyed(world: World) -> None:
    first, second, _ = world.verified()
    over(world, first, second)


def is_there(world: World) -> bool:
    return world.platform.get_volume(world.volume) is not None


def is_kept(world: World, *words: str) -> None:
    """Its end is asked for and refused, for these reasons."""
    refused = end(world)
    assert refused.code == 1
    for one in words:
        assert one in refused.err
    assert is_there(world)


def test_it_is_not_listed_while_a_box_that_only_the_records_know_may_mount_it(world: World) -> None:
    """The state was lost with its backend: the boxes bill on, and hold their volume."""
    first, second, _ = world.verified()
    world.save(world.empty())
    assert world.run("status", "--json", fresh=False).json["volumes_left"] == []
    assert "outlived" not in world.run("status", fresh=False).out
    world.store.write_birth(first.birth(ended_at=datetime.now(UTC), ended_how="cleared"))
    assert world.run("status", "--json", fresh=False).json["volumes_left"] == [], "the second one may mount it"
    over(world, first, second)
    assert len(world.run("status", "--json", fresh=False).json["volumes_left"]) == 1


def test_it_ends_where_every_cell_is_verified_elsewhere(world: World) -> None:
    destroyed(world)
    asked = world.run("audit", "--end", f"local:{world.volume}", stack=None, fresh=False)
    assert asked.code == 1
    assert f"can't be undone: --yes {world.volume} says that you mean it" in asked.err
    assert is_there(world)
    ended = end(world)
    assert ended.code == 0, ended
    assert f"volume {world.volume} is gone from local (cleared)" in ended.out
    assert not is_there(world)
    (decision,) = [one for one in decisions() if one.native_id == world.volume]
    assert (decision.what, decision.identity) == ("ended", IDENTITY)
    assert world.run("status", "--json", fresh=False).json["volumes_left"] == []


def test_a_cell_that_is_verified_nowhere_else_keeps_it(world: World) -> None:
    first, second = world.full()
    over(world, first, second)
    is_kept(
        world,
        "REFUSED. Nothing was ended: volume",
        "no receipt says that they are safe",
        "costs nothing, takes",
        "--abandon --reason",
    )
    assert end(world, *ABANDON).code == 0
    assert not is_there(world)


def test_one_that_lost_its_content_is_listed_and_ends_where_every_cell_is_verified_elsewhere(world: World) -> None:
    destroyed(world)
    shutil.rmtree(world.volume_folder)
    (left,) = world.run("status", "--json", fresh=False).json["volumes_left"]
    assert "is not there: what was on it is lost, or elsewhere" in left["note"]
    found = world.run("audit", stack=None, fresh=False)
    assert found.code == 0, found
    assert f"volume   {world.volume}: costs nothing; its content is lost" in found.out
    ended = end(world)
    assert ended.code == 0, ended
    assert f"volume {world.volume} is gone from local (cleared)" in ended.out
    assert not is_there(world)


def test_one_whose_own_disk_is_not_mounted_is_unknown_and_not_lost(world: World) -> None:
    destroyed(world)
    mark = world.volume_folder.parent / "own-disk"
    mark.write_text("content\n")
    shown = world.run("audit", stack=None, fresh=False)
    assert "; what is on it is not known: its own disk is not mounted" in shown.out
    assert "lost" not in shown.out
    listed = world.run("audit", "--json", stack=None, fresh=False).json
    (phase,) = [found["phase"] for found in listed["findings"] if found["native_id"] == world.volume]
    assert phase == "unknown"
    refused = end(world)
    assert refused.code == 1
    assert f"`rm {mark}`" in " ".join(refused.err.split())
    mark.unlink()
    assert end(world).code == 0


def test_one_that_lost_its_content_is_kept_for_a_cell_that_is_verified_nowhere(world: World) -> None:
    first, second = world.full()
    over(world, first, second)
    shutil.rmtree(world.volume_folder)
    refused = end(world)
    assert refused.code == 1
    assert "no receipt says that they are safe" in refused.err
    assert "what was on it is lost, or elsewhere" in refused.err
    assert is_there(world)
    assert end(world, *ABANDON).code == 0
    assert not is_there(world)


def test_it_is_kept_where_it_can_t_be_told_whether_the_copies_lie_on_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a platform whose volumes can't be read without a box says so by `Unsupported`: other errors are unknown."""
    destroyed(world)

    def unsupported(*_: object) -> None:
        raise Unsupported("it can't be read without a box")

    def silent(*_: object) -> None:
        raise Unreachable("the API did not answer")

    monkeypatch.setattr(type(world.platform), "volume_channel", silent)
    is_kept(world, f"whether the copies of {STACK} lie on the volume itself is not known: the API did not answer")
    monkeypatch.setattr(type(world.platform), "volume_channel", unsupported)
    assert end(world).code == 0


def test_a_sweep_that_used_it_and_whose_evidence_can_t_be_opened_keeps_it(world: World, tmp_path: Path) -> None:
    """The store's own evidence names a second sweep, whose evidence was moved away."""
    destroyed(world)
    said = Mounting(
        native_id=world.volume,
        stack="sweep-b",
        identity="bbbbbbbbbb",
        evidence=f"file://{socket.gethostname()}{tmp_path}/moved-away",
        at=datetime.now(UTC),
    )
    write_mounting(world.store, said)
    is_kept(world, "which boxes of sweep-b mount it is not known: ")


def test_what_no_sweep_that_is_known_left_there_keeps_it(world: World) -> None:
    destroyed(world)
    (world.volume_folder / "thesis").mkdir()
    is_kept(world, "thesis is on it, and no sweep that was found here left it there")


def test_a_box_that_mounts_it_keeps_it_whatever_is_said(world: World) -> None:
    first, second, _ = world.verified()
    world.platform.destroy(first.native_id, first.record.account)
    for box in (first, second):  # the record of the second is wrong
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC), ended_how="cleared"))
    world.save(world.empty())
    world.boxes.clear()
    for more in ((), ABANDON):
        refused = end(world, *more)
        assert refused.code == 1
        assert f"the box {second.native_id} mounts it" in refused.err
    assert is_there(world)


def test_a_volume_of_a_sweep_that_goes_on_is_not_ended_here(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.vanish()
    world.save(world.empty())
    found = world.run("audit", stack=None, fresh=False)
    assert f"audit --end local:{world.volume}" not in found.out
    is_kept(world, "on record as rented, so it ends through its gate")


def held_there(world: World, backend: str) -> None:
    """Every box has ended. Another backend holds the sweep, and the stack file here names its evidence."""
    destroyed(world)
    world.store.write_lease(Lease(backend=backend, host="h", taken_at=datetime.now(UTC)))
    world.on("whoami", """echo '{"url": "s3://other"}'""")
    world.stacks()
    world.save()


@pytest.mark.parametrize("backend", ["s3://states", "https://states.example/me"])
def test_what_another_backend_holds_ends_there_while_it_answers(world: World, backend: str) -> None:
    """A box asked that backend; a volume asked none, and its data ended with an abandonment, or verified."""
    held_there(world, backend)
    for more in ((), ABANDON):
        refused = end(world, *more)
        assert refused.code == 1
        assert "nothing was ended: volume" in refused.err
        assert f"the state in {backend} answers and still holds {STACK}" in refused.err
        assert f"next   PULUMI_BACKEND_URL={backend} sweepctl status --stack {STACK}" in refused.err
    (finding,) = world.run("audit", "--json", stack=None, fresh=False).json["findings"]
    assert finding["next"] == f"PULUMI_BACKEND_URL={backend} sweepctl status --stack {STACK}"
    assert is_there(world)
    assert decisions() == []


def test_what_a_sweep_of_another_backend_left_on_it_keeps_it_while_that_answers(world: World, tmp_path: Path) -> None:
    """Its owner's evidence is here, and the sweep that mounted it is held there."""
    held_there(world, "s3://states")
    keeper = EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/kept", "kkkkkkkkkk", "sweepstack", "keep")
    facts = {"native_id": world.volume, "stack": STACK, "identity": IDENTITY, "evidence": world.uri}
    write_mounting(keeper, Mounting(**facts, at=datetime.now(UTC)))
    keeper.write_birth(world.store.births()[0])  # one that has ended, so its owner is over
    world.file.path.rename(world.file.path.with_name("Pulumi.keep.yaml"))
    path = world.file.path.with_name("Pulumi.keep.yaml")
    path.write_text(path.read_text().replace("pull_to: results/sweep-t", f"pull_to: {tmp_path}/kept"))
    tagged = world.platform_root / "volumes" / world.volume / "volume.json"
    tagged.write_text(tagged.read_text().replace(f"-{IDENTITY}-", "-kkkkkkkkkk-"))
    for more in ((), ABANDON):
        refused = end(world, *more)
        assert refused.code == 1
        assert f"the state in s3://states answers and still holds {STACK}, which mounted it" in refused.err
        assert "end that sweep there first, then type this again" in refused.err
        assert "its gate there" not in refused.err, "no state there has the volume"
        assert f"PULUMI_BACKEND_URL=s3://states sweepctl status --stack {STACK}" in refused.err
        assert f"sweepctl audit --end local:{world.volume}    (once that sweep has ended there)" in refused.err
    assert is_there(world)


def test_what_a_lost_backend_held_ends_here_on_record(world: World) -> None:
    held_there(world, "s3://states")
    world.engine_says("error: no such bucket")
    assert end(world, *ABANDON).code == 0
    assert not is_there(world)
    (kept,) = decisions()
    assert "held by the state in s3://states, which does not answer as a backend" in kept.found


def test_a_box_on_record_of_another_home_is_named_and_not_called_known(world: World) -> None:
    """The evidence was copied to another computer, where nothing of the sweep is."""
    box = world.add(price=1.5)
    world.save(world.empty())
    world.move_registry()
    found = world.run("audit", stack=None, fresh=False)
    assert found.code == 2, found
    assert (
        f"box box-0 of {STACK} ({box.native_id} on local, $1.50/h) is on record as rented, with the account"
        in found.out
    )
    assert "everything that was found is known to a state" not in found.out
    seen = world.run("status", fresh=False)
    first = seen.out.splitlines()[0]
    assert "1 box not in this state, and may bill" in first
    assert "nothing is up" not in first


TWO = PolicyText(
    text="abandoners: [ana, ben]\nabandon_needs: 2\n", signers="ana ssh-ed25519 AAAAa\nben ssh-ed25519 AAAAb\n"
)


def under_policy(world: World, policy: PolicyText) -> None:
    """The project has this policy."""
    (world.root / "policy.yaml").write_text(policy.text)
    (world.root / "allowed_signers").write_text(policy.signers)


def test_the_policy_of_its_sweep_binds_its_end_without_a_state(world: World) -> None:
    """Without it, one person would give up with `audit --end` what needs two with `approve`."""
    destroyed(world)
    under_policy(world, TWO)
    refused = end(world, *ABANDON)
    assert refused.code == 1, refused
    assert "the policy asks for the signature of 2 of ana, ben for giving it up" in " ".join(refused.err.split())
    assert "bring it back into a state first" in " ".join(refused.err.split())
    assert is_there(world)
    assert decisions() == []


def test_approvers_of_the_policy_bind_a_verified_end_too(world: World) -> None:
    destroyed(world)
    under_policy(world, PolicyText(text="approvers: ana\n", signers=TWO.signers))
    is_kept(world, "the policy asks for the signature of one of ana")
    (world.volume_folder / "thesis").mkdir()
    is_kept(world, "the policy asks for the signature of one of ana")  # before what is on it, as of a box


def test_a_volume_whose_records_name_a_policy_keeps_to_its_text(world: World) -> None:
    """A checkout without the file, or one in which it was deleted."""
    destroyed(world)
    for birth in world.store.births():
        mounts = {"/durable": world.volume}
        world.store.write_birth(birth.model_copy(update={"policy": TWO.digest, "mounts": mounts}))
    refused = end(world, *ABANDON)
    assert refused.code == 1, refused
    assert f"-g1.json of the evidence names the policy {TWO.short}, and no text of it is here" in " ".join(
        refused.err.split()
    )
    assert is_there(world)
    under_policy(world, TWO)
    assert "the signature of 2 of ana, ben" in " ".join(end(world, *ABANDON).err.split())


def test_a_volume_of_another_stack_keeps_to_the_policy_of_the_sweep_that_mounted_it(world: World) -> None:
    """The stack that kept it has no boxes, so no record of its own names a policy."""
    destroyed(world)
    other = world.platform.ensure_volume("sweepstack-kkkkkkkkkk-volume-abl", "abl").native_id
    for birth in world.store.births():
        world.store.write_birth(birth.model_copy(update={"policy": TWO.digest, "mounts": {"/durable": other}}))
    refused = world.run("audit", "--end", f"local:{other}", "--yes", other, *ABANDON, stack=None, fresh=False)
    assert refused.code == 1, refused
    assert f"-g1.json of the evidence names the policy {TWO.short}, and no text of it is here" in " ".join(
        refused.err.split()
    )
    assert world.platform.get_volume(other) is not None
