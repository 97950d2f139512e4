"""What dies with a box and is nobody's: what counts as spoken for, what locks the box, and whose word lets it go."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweepstack.core.journal import Journal
from sweepstack.core.observation import Existence
from sweepstack.core.records import Approval, UnclaimedWaiver
from sweepstack.launch.ship import checkpoint_files, runner_files
from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.operations.observe import _listing
from sweepstack.teardown.refusal import refusal_text
from sweepstack.teardown.unclaimed import ABOVE, Unclaimed, lock_reason, measure
from tests.unit.teardown.support import CODE, FIRST, Situation, abandonment, approval, waiver

BIG = ("data/notes/optimizer.bin", ABOVE + 1, 0.0)
CODE_DIR = f"data/sweep/code/{CODE.removeprefix('sha256:')}"


def word(
    *files: tuple[str, int, float],
    box: str = "box-0",
    native_id: str = "",
    uncounted: bool = False,
) -> UnclaimedWaiver:
    """A person's approval of the loss of these files."""
    files = files or (BIG,)
    counted = measure(Listing(files), kills=(), box=box, generation=1, journal=None, receipt=None)
    return UnclaimedWaiver(
        box=box,
        native_id=native_id or {"box-0": "local-box-01", "box-1": "local-box-11"}[box],
        files=counted.files,
        bytes=counted.bytes,
        reason="a cache",
        uncounted=uncounted,
        listed=counted.listed,
    )


def found(
    situation: Situation, *files: tuple[str, int, float], kills: tuple[str, ...] = ("scratch", "data")
) -> list[str]:
    """The paths that nobody has spoken for."""
    seen = measure(
        Listing(files),
        kills=kills,
        box="box-0",
        generation=1,
        journal=situation.journal,
        receipt=situation.receipt,
    )
    assert seen.files == len(seen.largest)
    return [path.replace(f"{CODE_DIR[:28]}*", CODE_DIR) for path, _ in seen.largest]


@pytest.mark.parametrize(
    "path",
    [
        *(f"data/sweep/{name}" for name in ("journal.jsonl", "queue.jsonl", "queue.lock", "runner.pid", "runner.log")),
        *(f"data/sweep/{name}" for name in ("spec.json", "patrol.jsonl", "patrol.1.jsonl", "secrets.json", "keep-on")),
        *("data/sweep/runner-0a1b2c3d4e5f/runner_disk.py", "data/sweep/setup/0123456789abcdef.log"),
        *("data/sweep/setup/nodes-0123456789abcdef.log", "data/sweep/nodes/nodes-0123456789abcdef.asked.json"),
        *("data/sweep/nodes/nodes-0123456789abcdef.json", f"data/sweep/cells/{FIRST}/1/nodes.json"),
        f"data/sweep/provenance/{CODE.removeprefix('sha256:')}.json",
        f"data/sweep/shipped/{CODE.removeprefix('sha256:')}.files.json",
        *("data/sweep/owner.json", "data/sweep/decisions.jsonl", "data/sweep/runner.lock"),
        *("data/sweep/runner.pulse", "data/sweep/policy.json"),
        *(f"{CODE_DIR}/train.py", f"data/sweep/cells/{FIRST}/1/log.txt", f"data/sweep/cells/{FIRST}/1/pid"),
        *(f"scratch/sweep/{FIRST}/1/tmp.bin", f"{CODE_DIR}/lib/__pycache__/x.pyc", "data/__pycache__/x.pyc"),
    ],
)
def test_spoken_for(situation: Situation, path: str) -> None:
    assert found(situation, (path, 1, 0.0)) == []


def test_all_that_is_shipped_to_run_there_is_spoken_for(situation: Situation) -> None:
    """The runner's folder has a name for each version of it, and lies below the box's home."""
    shipped = [f"runner-0a1b2c3d4e5f/{path}" for path, _, _ in runner_files()]
    shipped += [f"checkpoint/{path.name}" for path in checkpoint_files()]
    assert found(situation, *((f"data/sweep/{path}", 1, 0.0) for path in shipped)) == []


@pytest.mark.parametrize(
    "path",
    [
        *("data/notes/optimizer.bin", "scratch/hf/model.bin", "data/sweep/mine.bin", "data/sweep/journals/x"),
        *("data/sweep/cells/nobody/1/out/x", f"data/sweep/cells/{FIRST}/notes.txt", "scratch/sweep/nobody/1/x"),
        *("data/sweep/code/stray.bin", "data/sweeper/journal.jsonl", f"scratch/sweep/{FIRST}", "data/journal.jsonl"),
        *("data/sweep/code/outputs/best.pt", f"data/sweep/cells/{FIRST}/1/ckpt/best.pt"),  # ../outputs, {out}/../ckpt
        *(f"data/sweep/cells/{FIRST}/shared/x.bin", "data/__pycache__/model.bin"),
        "data/sweep/shipped/x.bin",
        # What only looks like ours, and an attempt that never was.
        *(
            "data/sweep/checkpoint-best.pt",
            "data/sweep/runner-best.pt",
            "data/sweep/spec.bin",
            "data/sweep/setup/big.bin",
        ),
        *("data/weights.pyc", "data/__pycache__/weights.bin"),
        *("data/sweep/runner-0a1b2c3d4e5f/x.bin", "data/sweep/envs/mine/x.so", "data/sweep/checkpoint/x.pt"),
        *("data/sweep/.spec.json.x1.tmp", "data/sweep/journal.jsonl/x", "data/sweep/provenance/x.bin"),
        *(f"data/sweep/cells/{FIRST}/7/out/x.bin", f"data/sweep/cells/{FIRST}/1.unrecorded-5/out/x.bin"),
    ],
)
def test_nobody_s(situation: Situation, path: str) -> None:
    assert found(situation, (path, 1, 0.0)) == [path]


def test_of_a_verified_attempt_only_what_was_sealed_is_spoken_for(situation: Situation) -> None:
    (cell,) = [cell for cell in situation.receipt.cells if cell.name == FIRST]
    out = f"data/sweep/cells/{FIRST}/{cell.attempt}/out"
    sealed = [(f"{out}/{file.path}", file.size, 0.0) for file in cell.files if file.path != "log.txt"]
    assert sealed
    assert found(situation, *sealed) == []
    path, size, _ = sealed[0]
    assert found(situation, (path, size + 1, 0.0)) == [path]
    assert found(situation, (f"{out}/late.bin", 3, 0.0)) == [f"{out}/late.bin"]


@pytest.mark.parametrize(
    ("path", "sealed", "spoken_for"),
    [
        ("a\\b.bin", "%_a%5Cb.bin", True),
        ("a\nb.bin", "%_a%0Ab.bin", True),
        ("%_x", "%_%25_x", True),
        ("dir/Model.bin", "dir/%_%4Dodel.bin", True),
        ("a.bin", "%_" + hashlib.sha256(b"a.bin").hexdigest(), True),
        ("Model.bin", "%_Model.bin", False),
        ("a\\b.bin", "a\\b.bin.other", False),
    ],
)
def test_a_file_whose_name_no_evidence_can_hold_is_spoken_for_by_the_name_it_was_sealed_under(
    situation: Situation, path: str, sealed: str, spoken_for: bool
) -> None:
    (cell,) = [cell for cell in situation.receipt.cells if cell.name == FIRST]
    file = cell.files[0].model_copy(update={"path": sealed, "role": "other"})
    situation.other_cell(FIRST, files=(file,))
    out = f"data/sweep/cells/{FIRST}/{cell.attempt}/out"
    assert (found(situation, (f"{out}/{path}", file.size, 0.0)) == []) is spoken_for


def test_what_came_into_the_code_after_the_first_start_is_a_job_s(situation: Situation) -> None:
    start = next(entry for entry in situation.journal.entries if entry["event"] == "cell-started")
    began = datetime.fromisoformat(start["time"]).astimezone(UTC).timestamp()
    assert found(situation, (f"{CODE_DIR}/train.py", 1, began - 0.001)) == []
    assert found(situation, (f"{CODE_DIR}/wandb/run.log", 1, began)) == [f"{CODE_DIR}/wandb/run.log"]
    (shown,) = measure(
        Listing(((f"{CODE_DIR}/x", 1, began),)),
        kills=(),
        box="box-0",
        generation=1,
        journal=situation.journal,
        receipt=None,
    ).largest
    assert shown[0] == f"{CODE_DIR[:28]}*/x"


def test_a_version_of_the_code_is_one_that_our_records_know(situation: Situation) -> None:
    """A folder whose name looks like one is a job's."""
    digest = digest_of("other")
    folder = f"data/sweep/code/{digest.removeprefix('sha256:')}"
    late = (f"{folder}/x", ABOVE + 1, 9.9e9)
    situation.listing = Listing((late,))
    assert not situation.ask().allowed
    situation.store.write_code(digest, b"its archive")
    assert situation.ask().allowed, "shipped, and no cell has run it yet"


def test_only_the_tiers_that_the_verb_kills_count(situation: Situation) -> None:
    files = (("data/a", 1, 0.0), ("scratch/b", 2, 0.0))
    assert found(situation, *files, kills=("scratch",)) == ["scratch/b"]
    assert found(situation, *files, kills=()) == ["scratch/b", "data/a"]


def test_much_of_it_locks_a_box_that_would_be_cleared(situation: Situation) -> None:
    assert situation.ask().way == "cleared"
    situation.listing = Listing((("data/a.bin", ABOVE, 0.0),))
    verdict = situation.ask()
    assert verdict.way == "cleared"
    assert verdict.unclaimed == Unclaimed(1, ABOVE, (("data/a.bin", ABOVE),))
    situation.listing = Listing((BIG,))
    verdict = situation.ask()
    assert not verdict.allowed
    assert verdict.way is None
    assert verdict.reasons == [
        "1 file, 100.0 MB on it belong to no sealed cell and would die: data/notes/optimizer.bin 100.0 MB"
    ]
    text = refusal_text(situation.facts, verdict, stack="t")
    assert "unclaimed" in text
    assert 'sweepctl give-up --stack t unclaimed/box-0 --reason "…" && sweepctl finish --stack t' in text
    situation.approval = None
    text = refusal_text(situation.facts, situation.ask(), stack="t")
    assert "let go" in text
    assert "unclaimed/box-0" in text


def test_an_artifact_that_changed_after_its_seal_locks_at_any_size(situation: Situation) -> None:
    """By its size; and by its ctime, where the seal says it and the attempt's log is still as the seal says."""
    folder = f"data/sweep/cells/{FIRST}/1"
    files = [file for cell in situation.receipt.cells if cell.name == FIRST for file in cell.files]
    path, size = next((file.path, file.size) for file in files if file.role == "artifact")
    log, sealed = (f"{folder}/log.txt", 7, 50.0), (f"{folder}/out/{path}", size, 60.0)
    assert situation.ask().way == "cleared"
    grown = (sealed[0], size + 1, 70.0)
    situation.listing = Listing((log, grown))
    verdict = situation.ask()
    assert verdict.reasons == [f"{sealed[0]} changed on it after the seal: what the evidence has is older"]
    assert "unclaimed/box-0" in refusal_text(situation.facts, verdict, stack="t")
    situation.approval = approval(_digest(situation), unclaimed=(word(grown),))
    assert situation.ask().way == "cleared"
    stamps = {"log.txt": 50_000_000_000, f"out/{path}": 60_000_000_000}
    for listed, line, allowed in (
        ((log, sealed), stamps, True),
        ((log, (sealed[0], size, 61.0)), stamps, False),
        (((log[0], 7, 99.0), (sealed[0], size, 99.0)), stamps, True),  # the whole tree was copied
        ((log, (sealed[0], size, 61.0)), None, True),  # an older version's seal
    ):
        counted = measure(
            Listing(listed),
            kills=(),
            box="box-0",
            generation=1,
            journal=with_stamps(situation.journal, line),
            receipt=situation.receipt,
        )
        assert (lock_reason(counted, None) == "") is allowed, (listed, line)


def with_stamps(journal: Journal, stamps: dict[str, int] | None) -> Journal:
    entries = [
        {**entry, **({"stamps": stamps} if stamps and entry["event"] == "cell-sealed" else {})}
        for entry in journal.entries
    ]
    return dataclasses.replace(journal, entries=entries)


def test_a_word_lets_go_what_there_was_and_nothing_else(situation: Situation) -> None:
    receipt = situation.receipt
    situation.listing = Listing((BIG,))
    situation.approval = approval(_digest(situation), unclaimed=(word(),))
    assert situation.ask().way == "cleared"
    others = {
        "one more": (BIG, ("data/more", 0, 0.0)),
        "larger": ((BIG[0], BIG[1] + 1, 0.0),),
        "as many bytes in two": ((BIG[0], BIG[1] - 1, 0.0), ("data/more", 1, 0.0)),
        "another of this size": (("data/notes/model.bin", BIG[1], 0.0),),
        "replaced": ((BIG[0], BIG[1], 0.001),),
    }
    for name, files in others.items():
        situation.listing = Listing(files)
        verdict = situation.ask()
        assert not verdict.allowed, name
        assert verdict.reasons[0].startswith("the unclaimed files are not those that were let go: "), name
        assert verdict.held_by_unclaimed
    situation.listing = Listing((("data/new.bin", ABOVE, 0.0),))
    assert situation.ask().way == "cleared", "so little needs no word"
    assert receipt == situation.receipt


def test_a_word_of_before_the_list_was_kept_is_read_and_asked_for_again(situation: Situation) -> None:
    old = UnclaimedWaiver.model_validate(
        {"box": "box-0", "native_id": "local-box-01", "files": 1, "bytes": BIG[1], "reason": "a cache"}
    )
    situation.listing = Listing((BIG,))
    situation.approval = approval(_digest(situation), unclaimed=(old,))
    assert "listed" not in situation.approval.model_dump(mode="json")["unclaimed"][0]
    verdict = situation.ask()
    assert not verdict.allowed
    assert 'run `sweepctl give-up unclaimed/box-0 --reason "…"` again' in verdict.reasons[0]
    before = {"box": "box-0", "bytes": BIG[1], "files": 1, "native_id": "local-box-01", "reason": "a cache"}
    words = {"waive": [], "abandon": [], "unclaimed": [before | {"uncounted": False}]}
    assert situation.approval.waivers_digest == digest_of(words), "as it was digested then"


def test_a_word_for_one_box_is_none_for_another(situation: Situation) -> None:
    situation.listing = Listing((BIG,))
    for other in (word(box="box-1"), word(native_id="local-box-02")):
        situation.approval = approval(_digest(situation), unclaimed=(other,))
        assert not situation.ask().allowed


def test_a_word_that_is_slipped_in_voids_the_approval(situation: Situation) -> None:
    situation.listing = Listing((BIG,))
    assert situation.approval is not None
    situation.approval = situation.approval.model_copy(update={"unclaimed": (word(),)})
    assert situation.ask().reasons[0] == "the waivers of the approval were edited after it was given"


@pytest.mark.parametrize("listing", [None, Listing(problem="more than 200,000 files"), Listing((BIG,), "too slow")])
def test_what_cannot_be_counted_locks_the_box_until_a_word_covers_it(
    situation: Situation, listing: Listing | None
) -> None:
    situation.listing = listing
    verdict = situation.ask()
    assert not verdict.allowed
    assert "could not all be counted" in verdict.reasons[0]
    assert "unclaimed/box-0" in refusal_text(situation.facts, verdict, stack="t")
    situation.approval = approval(_digest(situation), unclaimed=(word(),))
    assert not situation.ask().allowed
    situation.approval = approval(_digest(situation), unclaimed=(word(uncounted=True),))
    assert situation.ask().way == "cleared"


@pytest.mark.parametrize(
    "files",
    [(BIG, ("data/more", 0, 0.0)), ((BIG[0], BIG[1] + 1, 0.0),), ((BIG[0], BIG[1] - 1, 0.0), ("data/more", 9, 0.0))],
    ids=["one-more-file", "more-bytes", "more-of-both"],
)
def test_more_than_was_let_go_locks_also_where_not_all_could_be_counted(
    situation: Situation, files: tuple[tuple[str, int, float], ...]
) -> None:
    situation.approval = approval(_digest(situation), unclaimed=(word(uncounted=True),))
    situation.listing = Listing((("data/notes/another.bin", BIG[1], 1.0),), "too slow")
    assert situation.ask().way == "cleared", "no two lists are the same there: the counts hold"
    situation.listing = Listing(files, "too slow")
    verdict = situation.ask()
    assert not verdict.allowed
    assert verdict.reasons[0].startswith("more unclaimed than was let go: ")


def test_the_approved_receipt_counts_and_not_a_later_one(situation: Situation) -> None:
    """The later one has no word on the cell, so that all that is the cell's would be spoken for."""
    (cell,) = [cell for cell in situation.receipt.cells if cell.name == FIRST]
    late = f"data/sweep/cells/{FIRST}/{cell.attempt}/out/late.bin"
    situation.listing = Listing(((late, ABOVE + 1, 0.0),))
    assert not situation.ask().allowed
    others = tuple(cell for cell in situation.receipt.cells if cell.name != FIRST)
    situation.store.write_receipt(situation.receipt.model_copy(update={"cells": others}))
    assert situation.store.latest_receipt() != _digest(situation)
    verdict = situation.ask()
    assert not verdict.allowed
    assert verdict.unclaimed.largest == ((late, ABOVE + 1),)


def test_what_lies_on_a_box_that_may_be_there_counts_too(situation: Situation) -> None:
    situation.listing, situation.existence = Listing((BIG,)), Existence.UNKNOWN
    assert situation.ask().held_by_unclaimed


def test_a_box_on_which_nothing_was_launched_may_hold_what_somebody_put_there(situation: Situation) -> None:
    situation.nothing_ever_ran()
    situation.listing = Listing((BIG,))
    assert not situation.ask().allowed
    situation.approval = approval(None, unclaimed=(word(),))
    assert situation.ask().way == "nothing-launched"


def test_gone_and_abandoned_need_no_word(situation: Situation) -> None:
    situation.listing = Listing((BIG,))
    situation.approval = approval(None, abandon=(abandonment(),))
    assert situation.ask().way == "abandoned"
    situation.existence = Existence.GONE
    situation.approval = None
    assert situation.ask().way == "gone"


def test_an_approval_without_it_is_written_and_digested_as_before() -> None:
    before = approval(digest_of("x"), waive=(waiver("a"),), abandon=(abandonment(),))
    assert "unclaimed" not in before.model_dump(mode="json")
    assert Approval.digest_waivers(before.waive, before.abandon) == digest_of(
        {
            "waive": [{"cell": "a", "reason": "it diverges"}],
            "abandon": [{"box": "box-0", "native_id": "local-box-01", "reason": "not worth it"}],
        }
    )
    after = approval(digest_of("x"), unclaimed=(word(),))
    assert Approval.model_validate(after.model_dump(mode="json")) == after


def test_reasons_name_no_more_than_is_there() -> None:
    assert lock_reason(Unclaimed(), None) == ""
    assert Unclaimed().words == "nothing"
    assert Unclaimed(problem="it is silent").words == "not known: it is silent"
    many = Unclaimed(7, 700, tuple((f"f{n}", 100) for n in range(5)), "slow")
    assert many.words.startswith("at least 7 files, 700 B: f0 100 B, ")
    assert many.words.endswith(", and 2 more; not all could be counted: slow")


def test_a_walk_follows_nothing_and_knows_its_bounds(tmp_path: Path) -> None:
    root, outside = tmp_path / "box", tmp_path / "outside"
    for folder in ("data/a", "data/sweep/envs/x", "mnt", "scratch"):
        (root / folder).mkdir(parents=True)
    outside.mkdir()
    (outside / "far.bin").write_bytes(bytes(9))
    (root / "data/a/one.bin").write_bytes(bytes(5))
    os.link(root / "data/a/one.bin", root / "data/a/two.bin")
    (root / "data/a/away").symlink_to(outside)
    (root / "data/a/file").symlink_to(outside / "far.bin")
    os.mkfifo(root / "data/a/pipe")
    (root / "data/sweep/envs/x/lib.so").write_bytes(bytes(7))
    (root / "data/z.bin").write_bytes(bytes(3))
    channel = LocalChannel("local-1", root, {})
    listing = channel.walk(("scratch", "data", "nothing"), skip=("data/sweep/envs",))
    assert [(path, size) for path, size, _ in listing.files] == [("data/z.bin", 3), ("data/a/one.bin", 5)]
    assert listing.problem == ""
    assert [path for path, _, _ in channel.walk(("data",)).files][-1] == "data/sweep/envs/x/lib.so"
    assert channel.walk(("data",), limit=1).problem == "more than 1 files"
    assert len(channel.walk(("data",), limit=2).files) == 2
    for number in range(600):
        (root / "scratch" / f"{number}").touch()
    assert channel.walk(("scratch",), seconds=-1.0).problem == "more than could be counted in time"


def test_many_cells_are_no_reason_to_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "data/sweep/cells/a/1/out"
    out.mkdir(parents=True)
    (tmp_path / "data/notes.txt").touch()
    for number in range(9):
        (out / f"{number}").touch()
    monkeypatch.setattr("sweepstack.teardown.unclaimed.FILES", 4)
    listing = _listing(LocalChannel("local-1", tmp_path, {}))
    assert listing.problem == ""
    assert [path for path, _, _ in listing.files[:2]] == ["data/notes.txt", "data/sweep/cells/a/1/out/0"]
    for number in range(9):
        (tmp_path / f"data/{number}").touch()
    assert _listing(LocalChannel("local-1", tmp_path, {})).problem == "more than 4 files"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "data/closed").mkdir(parents=True)
    (tmp_path / "data/closed").chmod(0)
    assert "data/closed can't be read" in LocalChannel("local-1", tmp_path, {}).walk(("data",)).problem


def _digest(situation: Situation) -> str:
    assert situation.approval is not None
    assert situation.approval.receipt is not None
    return situation.approval.receipt
