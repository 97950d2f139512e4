"""`audit --end` asks the check: real boxes, journals and evidence, and the engine's states as each test has them."""

from __future__ import annotations

import errno
import json
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.bucket_address import S3Address
from sweepstack.core.local_decisions import Decision, decisions
from sweepstack.core.records import Lease
from sweepstack.evidence import location
from sweepstack.evidence.object_store import FolderStore, ObjectStore
from sweepstack.evidence.stack_copy import keep_stack_file
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import Takeover, take_over
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.strays import other_backends
from sweepstack.operations.strays.judge import adopts
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.ownership import HELD, Owner, sign, who
from tests.unit.cli.support import IDENTITY, STACK, Box, Result, World

ALICE = "alice@laptop"


pytestmark = pytest.mark.usefixtures("no_rental_platform")


def elsewhere(world: World, *stacks: str) -> None:
    """From now on commands run in a checkout of another project, without the stack file; these stacks are there."""
    other = world.folder / "other"
    (other / "stacks").mkdir(parents=True)
    (other / "Pulumi.yaml").write_text("name: other\nruntime: python\nstackConfigDir: stacks\n")
    world.monkeypatch.chdir(other)
    world.stacks(*stacks)
    if not stacks:
        world.engine_says("error: no such bucket")  # no other backend answers


def audit_end(world: World, box: Box, *more: str) -> Result:
    return world.run("audit", "--end", f"local:{box.native_id}", "--yes", box.native_id, *more, stack=None)


ABANDON = ("--abandon", "--reason", "it may be lost")


def signed(world: World, box: Box, person: str, until: datetime | None = None, **more: Any) -> None:
    channel = world.platform.channel(box.native_id, box.record.account)
    known = {"identity": IDENTITY, "native_id": box.native_id, "box": box.name, "generation": box.generation}
    known |= {"project": "theirs", "stack": "s9", "backend": "s3://states"}
    held = until or datetime.now(UTC) + HELD
    sign(channel, Owner.model_validate(known | {"person": person, "held_until": held} | more))


def is_there(world: World, box: Box) -> bool:
    return world.platform.get(box.native_id, box.record.account).phase is not Phase.GONE


def training(world: World) -> Box:
    box = world.add()
    box.launch("lr0.1", "lr0.3")
    box.seal("lr0.1")
    box.start("lr0.3")
    return box


# What a state or an open record has


def test_a_box_of_another_project_s_state_ends_through_its_gate(world: World) -> None:
    """b36: a fork of the checkout, with another project's name, on the same backend."""
    box = training(world)
    elsewhere(world, f"organization/sweepstack/{STACK}")
    for more in ((), ABANDON):
        refused = audit_end(world, box, *more)
        assert refused.code == 1
        assert f"known to organization/sweepstack/{STACK}, so it ends through its gate" in refused.err
    assert is_there(world, box)


def test_a_box_whose_evidence_a_stack_file_names_ends_through_its_gate(world: World) -> None:
    """b31: `pulumi stack rm --force`; and b30: another backend."""
    box = training(world)
    world.stacks()
    refused = audit_end(world, box)
    assert refused.code == 1
    assert f"known to {STACK}, on record as rented" in refused.err
    assert f"next   pulumi stack init {STACK} && pulumi up --stack {STACK}    (adopts it)" in refused.err
    assert is_there(world, box)
    world.store.write_lease(Lease(backend="s3://states", host="h", taken_at=datetime.now(UTC)))
    world.on("whoami", """echo '{"url": "s3://other"}'""")
    world.engine_says("error: no such bucket")
    found = world.run("audit", "--json", stack=None)
    assert found.code == 1
    (finding,) = [one for one in found.json["findings"] if one["kind"] == "box"]
    assert finding["owner"] == "not known; its records are held by the state in s3://states"
    lost = f'sweepctl adopt --stack {STACK} --reason "…"    (if that backend is lost; else go on there)'
    assert finding["next"] == lost, "an up would be refused"
    empty = KnownStates(states={STACK: StackState(stack=STACK)}, root=world.root)
    assert adopts(STACK, empty, world.store) == lost, "a stack of this name was made here since"
    assert finding["holds"] == "2 cells: 1 sealed, 1 stopped in the middle; no copy is proved here"


def test_a_box_that_leads_to_its_own_evidence_ends_through_its_gate(world: World) -> None:
    """State and stack file are gone; the box says where its records are."""
    box = world.add()
    signed(world, box, who(), evidence=world.uri, project="sweepstack", stack=STACK, backend="")
    world.stacks()
    world.file.path.unlink()
    refused = audit_end(world, box)
    assert refused.code == 1
    assert f"on record as rented by sweepstack/{STACK}" in refused.err
    up = f"pulumi stack init {STACK} && pulumi up --stack {STACK}"
    adopts = f"{up}    (adopts it, once {world.file.shown} is back)"
    assert f"next   {adopts}" in refused.err
    found = world.run("audit", stack=None)
    assert f"next   {adopts}" in found.out
    assert "audit --end" not in " ".join(found.out.split()).replace("give up sweepctl audit --end", "")
    assert f"owner: {who()}, for sweepstack/{STACK}" in found.out
    text = b"config: {}\n"
    world.file.path.write_bytes(text)
    copy = keep_stack_file(world.uri, world.file.path)
    world.file.path.unlink()
    found = world.run("audit", stack=None)
    assert f"next   cp {copy} {world.file.path} && {up}    (adopts it)" in found.out
    assert is_there(world, box)


def test_a_box_whose_evidence_does_not_open_is_adopted_by_no_up(world: World) -> None:
    box = training(world)
    signed(world, box, who(), evidence=world.uri, project="sweepstack", stack=STACK, backend="")
    world.stacks()
    (world.evidence / "sweep.json").write_text("{")
    (finding,) = [f for f in world.run("audit", "--json", stack=None).json["findings"] if f["kind"] == "box"]
    assert finding["next"] is None
    assert finding["give_up"] == f'sweepctl audit --end local:{box.native_id} --abandon --reason "…"'
    said = " ".join(world.run("audit", stack=None).out.split())
    assert "its evidence does not open here: put that back, or give it up" in said


# A colleague with the same account


def test_a_box_that_trains_is_refused_and_nothing_is_advised(world: World) -> None:
    """b34: a colleague with a backend of their own. The box says nothing of its owner, as an older one does."""
    box = training(world)
    elsewhere(world)
    found = world.run("audit", stack=None)
    assert found.code == 1
    assert "2 cells: 1 sealed, 1 stopped in the middle; no copy is proved here" in found.out
    assert "owner: not known" in found.out
    assert "audit --end" not in found.out
    refused = audit_end(world, box)
    assert refused.code == 1
    assert "REFUSED. Nothing was ended" in refused.err
    assert (
        "it holds 2 cells without a copy that is proved here: lr0.1 sealed, lr0.3 stopped in the middle" in refused.err
    )
    assert is_there(world, box)
    assert decisions() == []


def test_while_its_owner_holds_it_no_abandonment_helps(world: World) -> None:
    box = training(world)
    signed(world, box, ALICE)
    elsewhere(world)
    for more in ((), ABANDON, (*ABANDON, "--owner-agreed", "bob@laptop")):
        refused = audit_end(world, box, *more)
        assert refused.code == 1
        assert f"{ALICE} holds it until" in refused.err
        assert "theirs/s9" in refused.err
    assert is_there(world, box)
    found = world.run("audit", stack=None)
    assert f"owner: {ALICE}, for theirs/s9, backend s3://states; held until" in found.out
    assert "audit --end" not in found.out
    ended = audit_end(world, box, *ABANDON, "--owner-agreed", ALICE, "--json")
    assert ended.code == 0, ended
    assert not is_there(world, box)
    (kept,) = decisions(box.native_id)
    assert kept.reason == f"it may be lost; {who()} says that {ALICE} has agreed"


def test_what_it_did_last_holds_it_too(world: World) -> None:
    box = training(world)
    signed(world, box, ALICE, until=datetime.now(UTC) - timedelta(days=1))
    elsewhere(world)
    assert f"{ALICE} holds it until" in audit_end(world, box, *ABANDON).err
    assert is_there(world, box)


def test_an_idle_box_of_an_unknown_owner_may_be_about_to_be_used(world: World) -> None:
    box = world.add()
    elsewhere(world)
    assert "nothing ran on it, and whose it is is not known" in audit_end(world, box).err
    signed(world, box, ALICE, until=datetime.now(UTC) - timedelta(hours=1))
    assert f"nothing ran on it, and it is {ALICE}'s, for theirs/s9" in audit_end(world, box).err
    assert is_there(world, box)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("journal", "what is on it is not known: journal line 1 is not JSON"),
        ("queue", "queue.jsonl holds a line that is not an entry"),
        ("owner", "whose it is is not known"),
    ],
    ids=["journal", "queue", "owner"],
)
def test_what_can_t_be_read_is_refused_and_can_be_given_up(world: World, what: str, words: str) -> None:
    box = world.add()
    path = {"journal": box_layout.JOURNAL, "queue": box_layout.QUEUE, "owner": box_layout.OWNER}[what]
    (box.root / path).parent.mkdir(parents=True, exist_ok=True)
    (box.root / path).write_text("no such thing\n")
    elsewhere(world)
    refused = audit_end(world, box)
    assert refused.code == 1
    assert words in refused.err
    assert is_there(world, box)
    assert audit_end(world, box, *ABANDON).code == 0
    assert not is_there(world, box)


def test_a_damaged_journal_takes_nothing_from_the_owner(world: World) -> None:
    box = world.add()
    signed(world, box, ALICE)
    (box.root / box_layout.JOURNAL).write_text("no such thing\n")
    elsewhere(world)
    assert f"{ALICE} holds it until" in audit_end(world, box, *ABANDON).err
    assert is_there(world, box)


# What another backend holds


def held_there(world: World, box: Box, person: str) -> None:
    """A colleague's backend holds the sweep, and the stack file here names its evidence."""
    signed(world, box, person, backend="s3://states", project="sweepstack", stack=STACK)
    world.store.write_lease(Lease(backend="s3://states", host="h", taken_at=datetime.now(UTC)))
    world.on("whoami", """echo '{"url": "s3://other"}'""")
    world.stacks()


@pytest.mark.parametrize("person", [ALICE, "me"])
def test_what_another_backend_holds_ends_there_while_it_answers(world: World, person: str) -> None:
    """Who has its evidence, and who rented it from another checkout, goes through the gate, too."""
    box = training(world)
    held_there(world, box, person.replace("me", who()))
    there = f"PULUMI_BACKEND_URL=s3://states sweepctl status --stack {STACK}"
    for more in (ABANDON, (*ABANDON, "--owner-agreed", ALICE)):
        refused = audit_end(world, box, *more)
        assert refused.code == 1
        assert (
            f"the state in s3://states answers and still holds {STACK}: it ends through its gate there" in refused.err
        )
        assert (f"; ask {ALICE}" in refused.err) == (person == ALICE)
        assert f"next   {there}" in refused.err
    assert is_there(world, box)
    assert decisions() == []
    (finding,) = [one for one in world.run("audit", "--json", stack=None).json["findings"] if one["kind"] == "box"]
    assert (finding["next"], finding["give_up"]) == (there, None)


@pytest.mark.parametrize("address", ["https://states.example/me", "HTTPS://states.example/me", "app.example/me"])
def test_a_web_address_that_only_the_box_names_is_not_asked(world: World, address: str) -> None:
    """A job can write that file; the engine would send its token there, however the address is spelled."""
    box = training(world)
    signed(world, box, who(), backend=address)
    world.on("whoami", """echo '{"url": "s3://other"}'""")
    world.stacks()
    assert audit_end(world, box, *ABANDON).code == 0
    (kept,) = decisions()
    assert "which only the box names: it is not asked" in kept.found


@pytest.mark.parametrize("known", [False, True], ids=["box-only", "stack-file-too"])
def test_a_lease_in_evidence_that_only_the_box_names_is_not_trusted(world: World, known: bool) -> None:
    """Its job writes the address as it likes: the slash at its end was taken for evidence of this checkout, and the
    engine asked the web address."""
    box = training(world)
    spelled, folder, resolve = "s3://its-bucket/x/", world.folder / "its-bucket", location.object_store_at

    def resolved(uri: str) -> ObjectStore:
        return FolderStore(S3Address.parse(uri).uri, folder) if uri.startswith("s3://") else resolve(uri)

    world.monkeypatch.setattr(location, "object_store_at", resolved)
    its = EvidenceStore.found(spelled, IDENTITY, "sweepstack", STACK)
    its.write_lease(Lease(backend="https://states.example/me", host="h", taken_at=datetime.now(UTC)))
    signed(world, box, who(), backend="", evidence=spelled)
    if known:
        world.file.path.write_text(world.file.path.read_text().replace("results/sweep-t", "s3://its-bucket/x"))
    world.on("whoami", """echo '{"url": "s3://other"}'""")
    world.stacks()
    ended = audit_end(world, box, *ABANDON)
    if known:
        assert "the state in https://states.example/me answers and still holds" in ended.err
        assert is_there(world, box)
    else:
        assert ended.code == 0, ended
        (kept,) = decisions()
        assert "https://states.example/me, which only the box names: it is not asked" in kept.found


def test_a_folder_that_may_not_be_read_stops_no_audit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job can name any folder of this computer: a colleague's, that is closed to others."""
    box = training(world)
    signed(world, box, who(), backend=f"file://{socket.gethostname()}/home/bob/states")
    world.on("whoami", """echo '{"url": "s3://other"}'""")
    world.stacks()
    look = Path.stat

    def closed(path: Path, **more: Any) -> os.stat_result:
        if str(path).startswith("/home/bob"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, **more)

    monkeypatch.setattr(Path, "stat", closed)
    assert audit_end(world, box, *ABANDON).code == 0
    (kept,) = decisions()
    assert "can't be read here: Permission denied" in kept.found


def test_backends_that_do_not_answer_have_one_time_for_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job can name as many as it likes."""
    monkeypatch.setattr(other_backends, "ASKING_SECONDS", -1.0)
    box = training(world)
    held_there(world, box, ALICE)
    world.store.write_lease(Lease(backend="s3://others", host="h", taken_at=datetime.now(UTC)))
    assert audit_end(world, box, *ABANDON, "--owner-agreed", ALICE).code == 0
    (kept,) = decisions()
    assert "was not asked: others took all the time" in kept.found


def test_what_a_lost_backend_held_is_given_up_by_its_owner_or_with_their_word(world: World) -> None:
    box = training(world)
    held_there(world, box, ALICE)
    world.engine_says("error: no such bucket")
    refused = audit_end(world, box, *ABANDON)
    assert refused.code == 1
    assert f"{ALICE} holds it until" in refused.err
    assert f"--owner-agreed {ALICE}" in refused.err
    assert is_there(world, box)
    signed(world, box, who(), backend="s3://states")
    assert audit_end(world, box, *ABANDON).code == 0
    assert not is_there(world, box)
    (kept,) = decisions()
    assert "held by the state in s3://states, which does not answer as a backend" in kept.found


def test_what_a_person_took_over_is_not_held_there_any_more(world: World) -> None:
    """The box still says the old backend, until an `up` signs it."""
    box = training(world)
    held_there(world, box, who())
    assert audit_end(world, box, *ABANDON).code == 1
    now = datetime.now(UTC)
    takeover = Takeover(held_by="s3://states", taken_to="s3://other", by=who(), at=now, reason="it is lost")
    take_over(EvidenceStore.open(world.uri), takeover)
    assert audit_end(world, box, *ABANDON).code == 0
    assert not is_there(world, box)


# Ours, and no up adopts it


def closed(world: World, box: Box) -> None:
    """Its record says that it has ended."""
    world.store.write_birth(box.birth(ended_at=datetime.now(UTC), ended_how="vanished"))


def test_what_ran_and_is_proved_copied_ends_without_an_abandonment(world: World) -> None:
    first, _, _ = world.verified()
    closed(world, first)
    world.gone = ["box-0", "box-1"]
    found = world.run("audit", "--json", stack=None)
    assert {f["native_id"]: f["next"] for f in found.json["findings"]}[first.native_id] == (
        f"sweepctl audit --end local:{first.native_id}"
    )
    ended = audit_end(world, first, "--json")
    assert ended.code == 0, ended
    assert ended.json["way"] == "cleared"
    assert not is_there(world, first)


@pytest.mark.parametrize("damage", ["copy", "unclaimed", "on the box"])
def test_a_copy_that_is_not_proved_any_more_locks(world: World, damage: str) -> None:
    first, _, _ = world.verified()
    closed(world, first)
    world.gone = ["box-0", "box-1"]
    if damage == "copy":
        path = world.evidence / "cells" / "lr0.1" / "metrics.json"
        facts = path.stat()
        path.write_bytes(path.read_bytes().replace(b"5", b"6"))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    elif damage == "unclaimed":
        (first.root / "data" / "mine").mkdir(parents=True)
        with (first.root / "data" / "mine" / "big").open("wb") as handle:
            handle.truncate(150_000_000)
    else:
        cells = world.evidence / "cells"
        cells.rename(first.root / "data" / "stash")
        cells.symlink_to(first.root / "data" / "stash")
    refused = audit_end(world, first)
    assert refused.code == 1, refused
    assert "REFUSED. Nothing was ended" in refused.err
    assert is_there(world, first)


def twin_of(world: World, box: Box) -> Box:
    """A second box with the first one's tag, as a lost answer and a list that lags leave behind."""
    made = Box(world, box.name, 9, 0.5, recorded=False)
    facts = json.loads((made.root / "box.json").read_text())
    (made.root / "box.json").write_text(json.dumps({**facts, "tag": box.record.tag}))
    made.generation = box.generation
    return made


def test_a_duplicate_on_which_nothing_ran_is_ended_when_its_id_is_typed(world: World) -> None:
    """rented D1b: its tag is known, and no `up` adopts a second one."""
    box = training(world)
    twin = twin_of(world, box)
    found = world.run("audit", "--json", stack=None)
    assert found.code == 1
    by_id = {finding["native_id"]: finding for finding in found.json["findings"]}
    assert by_id[box.native_id]["standing"] == "known"
    assert by_id[twin.native_id]["standing"] == "duplicate"
    assert by_id[twin.native_id]["next"] == f"sweepctl audit --end local:{twin.native_id}"
    ended = audit_end(world, twin, "--json")
    assert ended.code == 0, ended
    assert ended.json["way"] == "nothing-launched"
    assert not is_there(world, twin)
    assert is_there(world, box)
    birth = world.store.birth(box.name, 1)
    assert birth is not None
    assert birth.ended_at is None, "the record is the other box's"


def test_a_duplicate_on_which_cells_ran_takes_an_abandonment(world: World) -> None:
    box = world.add()
    twin = twin_of(world, box)
    twin.start("lr0.1")
    refused = audit_end(world, twin)
    assert refused.code == 1
    assert "lr0.1 stopped in the middle" in refused.err
    found = world.run("audit", stack=None)
    assert f"give up  sweepctl audit --end local:{twin.native_id} --abandon" in found.out
    assert audit_end(world, twin, *ABANDON).code == 0
    assert not is_there(world, twin)
    assert is_there(world, box)


def test_of_two_boxes_whose_answer_was_lost_one_is_ended_and_the_other_adopted(world: World) -> None:
    """The record has the tag alone. `up` adopts neither while there are two."""
    box = world.add(recorded=False)
    world.store.write_birth(box.birth(native_id=None))
    twin = twin_of(world, box)
    world.gone = ["box-0"]
    found = world.run("audit", "--json", stack=None)
    assert {(f["standing"], f["next"]) for f in found.json["findings"] if f["kind"] == "box"} == {
        ("duplicate", f"sweepctl audit --end local:{one.native_id}") for one in (box, twin)
    }
    assert audit_end(world, twin).code == 0
    (left,) = [one for one in world.run("audit", "--json", stack=None).json["findings"] if one["kind"] == "box"]
    assert (left["native_id"], left["standing"]) == (box.native_id, "recorded")
    assert left["next"] == f"pulumi up --stack {STACK}    (adopts it)"
    birth = world.store.birth("box-0", 1)
    assert birth is not None
    assert birth.ended_at is None, "it is the other one's by now"


# An abandonment, and its record


def test_an_abandonment_is_on_record_here_in_the_evidence_and_on_the_box(world: World) -> None:
    box = training(world)
    world.stacks()
    ended = audit_end(world, box, *ABANDON, "--json")
    assert ended.code == 0, ended
    assert ended.json["way"] == "abandoned"
    assert ended.json["recorded"] == [
        str(world.folder / "data/sweepstack/decisions.jsonl"),
        world.store.shown,
        "the box",
    ]
    assert not is_there(world, box)
    (kept,) = decisions(box.native_id)
    assert (kept.what, kept.by, kept.reason, kept.box, kept.identity) == (
        "given up",
        who(),
        "it may be lost",
        "box-0",
        IDENTITY,
    )
    assert kept.found.startswith("2 cells: 1 sealed, 1 stopped in the middle; owner not known")
    assert world.store.records("decisions", Decision) == [kept]
    birth = world.store.birth("box-0", 1)
    assert birth is not None
    assert birth.ended_how == f"abandoned by {who()}"
    assert [loss.cells for loss in world.store.losses()] == [("lr0.1", "lr0.3")]


def test_what_was_lost_is_on_record_where_the_record_of_the_box_does_not_read(world: World) -> None:
    box = training(world)
    world.stacks()
    signed(
        world, box, who(), evidence=world.uri, backend=""
    )  # the evidence is found through the box: its records don't read
    (world.evidence / "records" / "births" / "box-0-g1.json").write_text("torn")
    ended = audit_end(world, box, *ABANDON, "--json")
    assert ended.code == 0, ended
    (problem,) = ended.json["problems"]
    assert "box-0-g1.json" in problem
    assert [loss.cells for loss in world.store.losses()] == [("lr0.1", "lr0.3")]


def test_what_can_be_kept_nowhere_ends_nothing(world: World) -> None:
    box = training(world)
    elsewhere(world)
    (world.folder / "file").write_text("")
    path = world.folder / "data" / "sweepstack" / "decisions.jsonl"
    path.mkdir()
    refused = audit_end(world, box, *ABANDON)
    assert refused.code == 1
    assert "nothing was ended: the decision could not be recorded anywhere" in refused.err
    assert is_there(world, box)


def test_evidence_that_can_t_be_written_keeps_no_box(world: World) -> None:
    box = training(world)
    world.stacks()
    (world.evidence / "records" / "decisions").write_text("in the way")
    (world.evidence / "records" / "losses").write_text("in the way")
    ended = audit_end(world, box, *ABANDON, "--json")
    assert ended.code == 0, ended
    assert world.store.shown not in ended.json["recorded"]
    assert len(ended.json["problems"]) == 1
    assert not is_there(world, box)


def test_a_state_that_can_t_be_read_keeps_every_box_but_one_that_is_given_up(world: World) -> None:
    box = training(world)
    elsewhere(world, "organization/broken/x")
    world.engine_says("error: it is broken")
    assert "not every state could be read" in audit_end(world, box).err
    assert is_there(world, box)
    assert audit_end(world, box, *ABANDON).code == 0
    (kept,) = decisions()
    assert "not every state could be read" in kept.found


def test_outside_of_a_project_nothing_ends(world: World) -> None:
    """Its policy could not be asked."""
    box = world.add("box-0")
    outside = world.folder / "outside"
    outside.mkdir()
    world.monkeypatch.chdir(outside)
    refused = audit_end(world, box, *ABANDON)
    assert (refused.code, "run this inside a sweepstack project" in " ".join(refused.err.split())) == (2, True), refused
    assert box.native_id in {one.native_id for one in world.platform.list_tagged("")}
