"""`sweepctl pull` and `sweepctl verify`, with real boxes, real copies and real loaders."""

from __future__ import annotations

import errno
import io
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.cli.commands.pull import fetch as fetching
from sweepstack.cli.progress import Progress
from sweepstack.core.records import ArtifactSpec
from sweepstack.evidence.stack_copy import keep_stack_file
from sweepstack.loaders.pool import read_all
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.common.errors import Unsure
from sweepstack.operations import pull as pulling
from sweepstack.operations.pull import PullSummary, _sources
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from tests.unit.cli.support import KEEPS, KILLS, STACK, World, by_name


@pytest.fixture(autouse=True)
def workers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they read, as in a command."""
    monkeypatch.setattr("sweepstack.evidence.verify.read_all", read_all)


def test_a_pull_begins_with_the_box_of_which_nothing_outlives_it(world: World) -> None:
    """Where a balance is short, what has no copy elsewhere must come first."""
    world.full()
    world.save()
    sources = open_sources(Target.find(STACK, start=world.root))
    first, second = sources.state.boxes
    bare = second.model_copy(update={"teardown": second.teardown.model_copy(update={"kills": (*KILLS, *KEEPS)})})
    state = replace(sources.state, boxes=(first, bare))
    live, _ = _sources(state, world.store, PullSummary())
    assert [source.box for source in live] == ["box-1", "box-0"]
    live, _ = _sources(sources.state, world.store, PullSummary())
    assert [source.box for source in live] == ["box-0", "box-1"], "else in their order"


def test_a_pull_renews_the_leases_of_boxes_whose_turn_has_not_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes are pulled one after the other, maybe for hours: a lease of minutes would be over before the last one."""
    first, second = world.full()
    world.save()
    sources = open_sources(Target.find(STACK, start=world.root))
    boxes = tuple(box.model_copy(update={"lease": "10m"}) for box in sources.state.boxes)
    looked = [box.root / box_layout.LOOKED for box in (first, second)]

    def pulls_long(_live: Any, _identity: str, _store: Any, said: Any) -> list[Any]:
        for path in looked:
            path.touch()
            os.utime(path, (1, 1))
        said("lr0.1", 1, 2)
        return []

    monkeypatch.setattr(pulling, "pull_all", pulls_long)
    monkeypatch.setattr(pulling, "KEEP_ON_SECONDS", -1.0)
    live = replace(sources, state=replace(sources.state, boxes=boxes))
    fetching.fetch(live, world.store, Progress("pull"), "pull")
    assert all(path.stat().st_mtime > 1 for path in looked)


@pytest.mark.parametrize(
    "raised", [Unsure("it can't be told", ["sweepctl x"]), RuntimeError("boom"), KeyboardInterrupt()]
)
def test_what_was_pulled_is_told_where_the_verify_that_follows_can_t_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    """The error was the whole document: what had been copied stood nowhere."""
    world.full()

    def verify(*_: object) -> None:
        raise raised

    monkeypatch.setattr("sweepstack.operations.sweep.verify.verify_cells", verify)
    alone = world.run("verify", "--json")
    result = world.run("pull", "--verify", "--json")
    assert result.code == alone.code != 0
    assert {key: value for key, value in result.json.items() if key != "pull"} == alone.json
    assert {cell["state"] for cell in result.json["pull"]["cells"]} == {"pulled"}
    assert "pull" not in world.run("verify", "--json").json, "the next command's error is its own"


def test_what_a_pull_did_not_bring_is_not_verified(world: World) -> None:
    first, _ = world.full()
    first.vanish()
    shutil.rmtree(world.volume_folder)
    alone = world.run("pull", "--json")
    result = world.run("pull", "--verify", "--json")
    assert result.code == alone.code != 0
    assert [line.replace("pull --verify", "pull") for line in result.json["next"]] == alone.json["next"]
    assert "pull --verify" in str(result.json["next"]), "the same is to be typed again"
    assert "pull" not in result.json
    both = [world.run("pull", *more).out.replace("--verify ", "") for more in ((), ("--verify",))]
    assert both[0].split() == both[1].split()
    assert world.store.latest_receipt() is None


def test_pull_from_an_earlier_generation_on_the_volume(world: World) -> None:
    old = world.add("box-0")
    old.launch("lr0.1")
    old.seal("lr0.1")
    copy = world.evidence / "journals/box-0-g1.jsonl"
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(old.root / "data/sweep/journal.jsonl", copy)
    old.vanish()
    world.store.write_birth(old.birth(ended_at=datetime.now(UTC), ended_how="vanished"))
    world.boxes.clear()
    new = world.add("box-0", generation=2)
    new.launch("lr0.3", "lr0.9")
    new.seal("lr0.3")
    new.seal("lr0.9")
    pulled = by_name(world.run("pull", "--json").json["cells"])
    assert pulled["lr0.1"]["state"] == "pulled"
    assert world.run("verify").code == 0


def test_verify_names_what_is_damaged(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1", files={"metrics.json": b'{"loss": NaN}'})
    box.seal("lr0.3")
    box.seal("lr0.9")
    world.run("pull")
    result = world.run("verify", "--json")
    assert result.code == 1
    cells = by_name(result.json["cells"])
    assert cells["lr0.1"]["state"] == "damaged"
    assert cells["lr0.1"]["reasons"]
    assert cells["lr0.3"]["state"] == "verified"
    logs, judge, again, accept = result.json["next"]
    assert logs == f"sweepctl logs --stack {STACK} lr0.1"
    assert judge.startswith(f"pulumi up --stack {STACK} && sweepctl verify --stack {STACK}    (after `artifacts` says")
    retry, _, when = again.partition("    ")
    assert retry == f"sweepctl retry --stack {STACK} lr0.1 && pulumi up --stack {STACK}"
    assert when == "(once the job is mended, or it writes the same: trains it again)"
    assert "cell/lr0.1" in accept
    copied, again, accept = world.run("status", "--json").json["next"]  # a `finish` would only refuse it again
    assert copied.startswith(f"sweepctl pull --stack {STACK} --verify    (")
    assert (again.partition("    ")[0], "cell/lr0.1" in accept) == (retry, True)


def as_npy(values: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, values, allow_pickle=True)
    return held.getvalue()


def test_verify_does_not_advise_to_train_again_what_this_reader_can_t_tell(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.cli.support.ARTIFACT", ArtifactSpec(path="w.npy", load="npy"))
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1", files={"w.npy": as_npy(np.array([{"a": 1}, None]))})
    box.seal("lr0.3", files={"w.npy": as_npy(np.arange(3.0))})
    box.seal("lr0.9", files={"w.npy": as_npy(np.arange(3.0))})
    world.run("pull")
    result = world.run("verify", "--json")
    assert result.code == 1
    cell = by_name(result.json["cells"])["lr0.1"]
    assert (cell["state"], "judge it by load: command" in cell["reasons"][0]) == ("unsupported", True)
    judge, accept = result.json["next"]
    assert judge.endswith("(after `artifacts` says what is good: trains nothing again)")
    assert "cell/lr0.1" in accept
    seen = world.run("status", "--json", fresh=False)
    assert {name: one["state"] for name, one in by_name(seen.json["cells"]).items()} == {
        "lr0.1": "unsupported",
        "lr0.3": "verified",
        "lr0.9": "verified",
    }
    assert "LOCKED" in world.run("status", fresh=False).out
    assert world.run("wait", "done", "--timeout", "1s", fresh=False).code == 0
    assert "no cell failed" in world.run("retry", "--failed", fresh=False).err


def test_a_suspect_cell_locks_its_box_until_a_person_decides(world: World) -> None:
    """Its copy is whole, and its box doubts it: never verified, and no command takes it for done well."""
    doubt = "writer (pid 7) still had metrics.json open for writing when it was ended"
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1", schema=2, doubts=[doubt], left_running=["writer (pid 7)", "tensorboard (pid 8)"])
    box.seal("lr0.3")
    box.seal("lr0.9")
    world.run("pull")
    result = world.run("verify", "--json")
    assert result.code == 1
    cells = by_name(result.json["cells"])
    reasons = [doubt, "left running at its end: tensorboard (pid 8)"]
    assert (cells["lr0.1"]["state"], cells["lr0.1"]["reasons"]) == ("suspect", reasons)
    assert (cells["lr0.3"]["state"], result.json["verified"]) == ("verified", 2)
    logs, again, accept = result.json["next"]
    assert logs == f"sweepctl logs --stack {STACK} lr0.1"
    assert "cell/lr0.1" in accept
    assert again == f"sweepctl retry --stack {STACK} lr0.1 && pulumi up --stack {STACK}    (trains it again)"
    seen = by_name(world.run("status", "--json").json["cells"])["lr0.1"]
    assert (seen["state"], seen["note"]) == ("suspect", "; ".join(reasons))
    assert world.run("wait", "done", "--timeout", "1s").code == 0, "it ran to its end"
    refused = world.run("approve", result.json["receipt"])
    assert refused.code == 1
    assert "lr0.1 is suspect in the receipt" in refused.err
    retried = world.run("retry", "--failed", "--json")
    assert [cell["name"] for cell in retried.json["cells"]] == ["lr0.1"]
    given = world.run("give-up", result.json["receipt"], "cell/lr0.1", "--reason", "looked at it")
    assert given.code == 0, given.err


def test_a_copy_that_nobody_asked_for_is_a_no(world: World) -> None:
    world.verified()
    (world.evidence / "cells/lr7").mkdir()
    result = world.run("verify", "--json")
    assert result.code == 1
    assert result.json["unexpected"] == ["lr7"]


def test_a_journal_that_was_cut_is_no_witness(world: World) -> None:
    first, _ = world.full()
    world.run("pull")
    journal = first.root / "data/sweep/journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    result = world.run("verify", "--json")
    assert result.code == 1
    assert by_name(result.json["cells"])["lr0.3"]["state"] == "damaged"


def test_verify_needs_the_whole_roster(world: World) -> None:
    """`up` stopped before the second queue was made, and the stack file is not here: cells are unknown."""
    world.full()
    export = world.export()
    resources = export["deployment"]["resources"]
    export["deployment"]["resources"] = [
        r for r in resources if not (r["type"].endswith("Queue") and "box-1" in r["urn"])
    ]
    world.save(export)
    assert world.run("pull", fresh=False).code == 0
    assert world.run("verify", fresh=False).code == 0, "the stack file still names the whole roster"
    world.file.path.unlink()
    result = world.run("verify", fresh=False)
    assert result.code == 2
    assert "which cells the sweep has is not known" in result.err


def test_a_stack_file_that_does_not_read_leaves_the_answer_open(world: World) -> None:
    world.verified()
    text = world.file.path.read_text()
    world.file.path.write_text(text.replace("grid: {lr:", "grid: {lr: 7, x:"))
    result = world.run("verify")
    assert result.code == 2
    assert "can't be told" in result.err


def test_waivers_count_for_their_receipt_only(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1", files={"metrics.json": b'{"other": 1}'})
    box.seal("lr0.3")
    box.start("lr0.9")
    box.fail("lr0.9")
    world.run("pull")
    before = world.run("verify", "--json")
    assert before.code == 1
    digest = before.json["receipt"]
    reasons = ("cell/lr0.1", "--reason", "no such key", "cell/lr0.9", "--reason", "diverged")
    assert world.run("give-up", digest, *reasons).code == 0
    after = world.run("verify", "--json")
    assert after.code == 0
    assert after.json["receipt"] == digest, "the receipt stays factual"
    assert by_name(after.json["cells"])["lr0.9"]["state"] == "waived"
    assert after.json["verified"] == 1
    seen = world.run("status", "--json").json
    assert by_name(seen["cells"])["lr0.1"]["state"] == "waived"
    box.start("lr0.9", attempt=2)
    box.fail("lr0.9", attempt=2)
    assert world.run("verify", "--json").code == 1


def test_verify_by_a_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is exit 2 and no verdict; a mended check is run again, and a no is a no."""
    spec = ArtifactSpec(path="metrics.json", load="command", run="sh check.sh {file}", trust=True)
    monkeypatch.setattr("tests.unit.cli.support.ARTIFACT", spec)
    world.full()
    (world.root / "job").rmdir()
    world.run("pull")
    missing = world.run("verify")
    assert missing.code == 2
    assert "`sh check.sh {file}` is to judge artifacts" in missing.err
    assert "job" in missing.err
    script = world.root / "job" / "check.sh"
    script.parent.mkdir()
    script.write_text("exit 0\n")
    untold = world.run("verify", "--json")
    assert untold.code == 2
    assert {cell["state"] for cell in untold.json["cells"]} == {"sealed"}
    assert untold.json["unknown"] == ["lr0.1", "lr0.3", "lr0.9"]
    assert untold.json["readers"]["network"] in ("none", "reachable")
    assert "could not tell: metrics.json its check ended with code 0" in untold.json["cells"][0]["reasons"][0]
    assert "cell/lr0.1" in world.run("verify").out
    script.write_text("""grep -q 0.25 "$1" && echo '{"ok": true}'\n""")
    good = world.run("verify", "--json")
    assert good.code == 0
    assert {cell["state"] for cell in good.json["cells"]} == {"verified"}
    script.write_text("""echo '{"ok": false, "reason": "too good"}'\n""")
    bad = world.run("verify", "--json")
    assert bad.code == 1
    assert {cell["state"] for cell in bad.json["cells"]} == {"damaged"}
    assert "too good" in bad.json["cells"][0]["reasons"][0]


def test_pull_brings_the_log_of_a_cell_that_failed(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.start("lr0.3", log="Traceback\nboom\n", metrics=[{"step": 1, "loss": 2.5}])
    box.fail("lr0.3")
    result = world.run("pull", "--json")
    assert result.code == 0
    assert (result.json["failed"], result.json["not_sealed"]) == (["lr0.3"], ["lr0.9"])
    (kept,) = result.json["unsealed"]
    assert (kept["cell"], kept["attempt"], kept["box"]) == ("lr0.3", 1, "box-0")
    assert [file["path"] for file in kept["files"]] == ["log.txt", "out/metrics.jsonl"]
    folder = world.evidence / "unsealed/lr0.3/box-0-g1-1"
    assert (folder / "log.txt").read_text() == "Traceback\nboom\n"
    assert not (world.evidence / "cells/lr0.3").exists(), "it is no sealed cell"
    assert world.run("pull", "--json").json["unsealed"] == [], "once is enough"
    text = world.run("pull").out
    assert "1 cell failed: lr0.3" in text
    assert "1 cell not sealed yet: lr0.9" in text


def test_pull_into_evidence_that_is_read_only_is_one_clear_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.full()
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:  # root may write into a folder of mode 0555
        if str(path).startswith(str(world.evidence)) and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    for command in ("pull", "finish"):
        result = world.run(command)
        assert result.code == 2
        assert "mistake in sweepctl" not in result.err
        assert f"error: {world.evidence} can't be written: Read-only file system; nothing was pulled" in result.err
        assert f"next   sweepctl pull --stack {STACK}    (once that is fixed)" in result.err


# Without a box


@pytest.fixture
def destroyed(world: World) -> World:
    """All verified, then the boxes were destroyed; the stack file was kept in the evidence as `pulumi up` does."""
    first, second, _ = world.verified()
    keep_stack_file(world.uri, world.file.path)
    first.vanish()
    second.vanish()
    shutil.rmtree(world.volume_folder)
    world.save(world.empty())
    return world


def rot(path: Path) -> None:
    """A byte changes, and neither size nor time shows it."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_verify_after_the_destroy_reads_the_copies_again(destroyed: World) -> None:
    world = destroyed
    receipts = sorted(path.name for path in (world.evidence / "receipts").iterdir())
    good = world.run("verify", "--json", fresh=False)
    assert (good.code, good.json["verified"], good.json["reread"]) == (0, 3, True)
    path = world.evidence / "cells/lr0.3/metrics.json"
    before = sha256_hex(path.read_bytes())
    rot(path)
    assert world.run("status", "--json", fresh=False).json["cells"][1]["state"] == "verified", "no look sees it"
    bad = world.run("verify", "--json", fresh=False)
    assert bad.code == 1
    cells = by_name(bad.json["cells"])
    assert [name for name, cell in cells.items() if cell["state"] == "damaged"] == ["lr0.3"]
    said = " ".join(cells["lr0.3"]["reasons"])
    assert before[:12] in said
    assert sha256_hex(path.read_bytes())[:12] in said
    assert bad.json["next"] == [
        f"sweepctl verify --stack {STACK}    (once the copy came back from a backup)",
        f"pulumi up --stack {STACK}    (rents boxes, and runs them again)",
    ]
    assert world.run("status", "--json", fresh=False).json["cells"][1]["state"] == "damaged", "from now on all see it"
    assert [cell["name"] for cell in world.run("results", "--json", fresh=False).json["cells"]] == ["lr0.1", "lr0.9"]
    assert sorted(path.name for path in (world.evidence / "receipts").iterdir()) == receipts
    rot(path)
    assert world.run("verify", fresh=False).code == 0
    assert world.run("status", "--json", fresh=False).json["cells"][1]["state"] == "verified"


@pytest.mark.parametrize("lost", ["manifest.json", ""])
def test_verify_after_the_destroy_names_what_is_not_there(destroyed: World, lost: str) -> None:
    folder = destroyed.evidence / "cells/lr0.1"
    (folder / lost).unlink() if lost else shutil.rmtree(folder)
    result = destroyed.run("verify", "--json", fresh=False)
    assert result.code == 1
    assert by_name(result.json["cells"])["lr0.1"]["state"] == "damaged"


def test_the_evidence_alone_is_enough(destroyed: World) -> None:
    world = destroyed
    world.file.path.unlink()  # what `pulumi stack rm` does
    world.engine_says("error: no stack named 'sweep-t' found")
    lost = world.run("results", fresh=False)
    assert lost.code == 2
    asked = world.calls()  # which backend it is, to name the way back
    assert "sweepctl init" not in lost.err
    assert f"next   sweepctl results --evidence {world.evidence}    (also logs, show, verify)" in lost.err
    assert f"cp {world.evidence}/stack-files/Pulumi.sweep-t.yaml {world.file.path} && pulumi" in lost.err
    world.monkeypatch.chdir(world.folder)  # no project at all
    place = ("--evidence", str(world.evidence))
    found = world.run("results", *place, "--json", stack=None, fresh=False)
    assert found.code == 0, found
    assert {cell["name"]: cell["values"] for cell in found.json["cells"]} == {
        name: {"loss": 0.25} for name in ("lr0.1", "lr0.3", "lr0.9")
    }
    assert world.run("logs", "lr0.1", *place, stack=None, fresh=False).out == "training lr0.1\ndone\n"
    assert world.run("show", "lr0.1", "--evidence", world.uri, stack=None, fresh=False).code == 0
    assert world.run("verify", *place, stack=None, fresh=False).code == 0
    assert world.calls() == asked
    rot(world.evidence / "cells/lr0.3/metrics.json")
    bad = world.run("verify", *place, "--json", stack=None, fresh=False)
    assert bad.code == 1
    assert bad.json["next"] == [
        f"sweepctl verify --evidence {world.evidence}    (once the copy came back from a backup)"
    ]


def test_an_earlier_stack_file_is_kept_beside_the_latest(world: World) -> None:
    first = world.file.path.read_bytes()
    keep_stack_file(world.uri, world.file.path)
    keep_stack_file(world.uri, world.file.path)
    world.write_stack_file(drop="{lr0.3: x}")
    keep_stack_file(world.uri, world.file.path)
    assert (world.evidence / "stack-files/Pulumi.sweep-t.yaml").read_bytes() == world.file.path.read_bytes()
    assert [path.read_bytes() for path in (world.evidence / "stack-files/earlier").iterdir()] == [first]
    declared = world.file.path.with_name("Program.sweep-t.yaml")
    keep_stack_file(world.uri, world.file.path, declared)
    declared.write_text("what a program declares")
    keep_stack_file(world.uri, world.file.path, declared)
    assert (world.evidence / "stack-files/Program.sweep-t.yaml").read_text() == "what a program declares"


def test_a_copy_that_differs_is_pulled_again_where_the_box_still_has_it(world: World) -> None:
    world.full()
    world.run("pull")
    path = world.evidence / "cells/lr0.3/metrics.json"
    path.write_bytes(b'{"loss": 0.99}')
    result = world.run("verify", "--json")
    assert by_name(result.json["cells"])["lr0.3"]["state"] == "damaged"
    again = f"sweepctl pull --stack {STACK} --verify"
    first, accept = (command.partition("    ")[0] for command in result.json["next"])
    assert (first, "cell/lr0.3" in accept) == (again, True)
    assert world.run("pull").code == 0
    assert world.run("verify").code == 0


def without_queues(world: World) -> None:
    """As a destroy that was cut off leaves the state: gates and queues are out, the boxes are not."""
    export = world.export()
    resources = export["deployment"]["resources"]
    export["deployment"]["resources"] = [
        one for one in resources if one["type"].rpartition(":")[2] in ("Identity", "Box")
    ]
    world.save(export)


def test_verify_does_not_take_a_queue_that_is_gone_for_nothing_launched(world: World) -> None:
    """The copies, the receipt and the journal say that cells ran, and the state has no queue any more."""
    world.verified()
    receipts = sorted(path.name for path in (world.evidence / "receipts").iterdir())
    without_queues(world)
    whole = world.run("verify", fresh=False)
    assert whole.code == 2, "what is on the boxes now was not looked at"
    assert "no queue is in the state, and cells ran: " in whole.out
    assert "3 of 3 verified" in whole.out
    assert f"next   pulumi up --stack {STACK}    (puts its queue back)" in whole.out
    (world.evidence / "cells/lr0.3/metrics.json").write_bytes(b'{"loss": 0.99}')
    hurt = world.run("verify", "--json", fresh=False)
    assert hurt.code == 1
    assert by_name(hurt.json["cells"])["lr0.3"]["state"] == "damaged"
    assert hurt.json["next"][0].startswith(f"sweepctl pull --stack {STACK} --verify")
    assert world.run("pull", fresh=False).code == 0
    mended = world.run("verify", fresh=False)
    assert mended.code == 2
    assert "3 of 3 verified" in mended.out
    assert sorted(path.name for path in (world.evidence / "receipts").iterdir()) == receipts


def test_nothing_was_launched_where_every_record_agrees(world: World) -> None:
    box = world.add("box-0")
    without_queues(world)
    nothing = world.run("verify", fresh=False)
    assert nothing.code == 2
    assert "no queue is in the state: nothing was launched" in nothing.err
    box.launch("lr0.1")  # its journal alone says so: no receipt, no copy
    without_queues(world)
    assert "nothing was launched" not in world.run("verify", fresh=False).err


def test_verify_leads_on_from_a_cell_that_was_lost_with_its_box(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for name in ("lr0.1", "lr0.3", "lr0.9"):
        box.seal(name)
    (world.evidence / "journals").mkdir()
    shutil.copy(box.root / "data/sweep/journal.jsonl", world.evidence / "journals/box-0-g1.jsonl")
    box.vanish()
    world.monkeypatch.setattr(
        "sweepstack.onbox.common.box_layout.surviving", lambda kills, mounts: ()
    )  # a platform without volumes
    result = world.run("verify", "--json")
    assert by_name(result.json["cells"])["lr0.1"]["state"] == "lost"
    assert result.json["next"] == [f"pulumi up --stack {STACK}    (runs what was lost again)"]


def test_tend_copies_the_log_of_a_cell_that_failed_without_a_new_seal(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.start("lr0.3", log="boom\n")
    box.fail("lr0.3")
    world.run("tend", "--once")
    assert (world.evidence / "unsealed/lr0.3/box-0-g1-1/log.txt").read_text() == "boom\n"
