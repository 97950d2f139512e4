"""What an attempt without a seal left behind: copied within bounds, named where it is not, and never a sealed cell."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Cell
from sweepstack.evidence import pull, unsealed
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import Unsealed, UnsealedOfBox, of_box, of_cell
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from tests.unit.evidence.world import Box, World

NAME = "lr0.1-seed0"


def attempt(box: Box, cell: Cell, number: int, files: Mapping[str, bytes]) -> Path:
    """An attempt starts, and has written these already."""
    box.start(cell, number)
    folder = box.root / box_layout.attempt_dir(cell.name, number)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def fail(box: Box, cell: Cell, number: int, final: bool = True) -> None:
    box.log("cell-failed", cell=cell.name, attempt=number, exit_code=1, reason="exit code 1", final=final)


def bring(world: World, box: Box | None = None) -> list[Unsealed]:
    box = box or world.box
    return pull.bring(box.channel, box.name, box.generation, box.journal, world.store)


def here(world: World) -> dict[str, bytes]:
    """Everything in `unsealed/`."""
    root = world.store.root / "unsealed"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_attempt_that_ended_without_a_seal_is_copied_once(world: World) -> None:
    box, (good, bad, dropped) = world.box, world.cells
    attempt(box, good, 1, {"log.txt": b"first\n"})
    fail(box, good, 1, final=False)
    attempt(box, good, 2, {"log.txt": b"second\n"})
    box.log("cell-sealed", cell=NAME, attempt=2, config_digest=good.config_digest, manifest="sha256:" + "0" * 64)
    attempt(box, bad, 1, {"log.txt": b"boom\n", "out/metrics.jsonl": b"{}\n", "out/deep/part.bin": b"x", "pid": b"1"})
    fail(box, bad, 1)
    attempt(box, dropped, 1, {"log.txt": b"hangs\n"})
    box.log("cell-dropped", cell=dropped.name, reason="hangs")
    assert {(one.cell, one.attempt) for one in bring(world)} == {(good.name, 1), (bad.name, 1), (dropped.name, 1)}
    assert here(world) == {
        f"{good.name}/box-0-g1-1/log.txt": b"first\n",
        f"{bad.name}/box-0-g1-1/log.txt": b"boom\n",
        f"{bad.name}/box-0-g1-1/out/metrics.jsonl": b"{}\n",
        f"{bad.name}/box-0-g1-1/out/deep/part.bin": b"x",
        f"{dropped.name}/box-0-g1-1/log.txt": b"hangs\n",
    }
    assert bring(world) == []
    assert unsealed.uncopied_attempts(world.store, "box-0", 1, box.journal, dead=False) == []
    assert world.store.copies.cells() == []
    shutil.rmtree(box.root)
    (found,) = of_cell(world.store, bad.name)
    assert unsealed.read_attempt_copy(world.store, found, "out/deep/part.bin") == b"x"
    assert unsealed.read_attempt_copy(world.store, found, "out/none") is None


def test_an_attempt_at_work_is_left_alone_and_one_of_a_dead_runner_is_not(world: World) -> None:
    box, (cell, *_) = world.box, world.cells
    folder = attempt(box, cell, 1, {"log.txt": b"step 1\n"})
    runner = LocalChannel(box.native_id, box.root, {})
    runner.lock_held = lambda path: True  # type: ignore[method-assign]
    assert pull.bring(runner, "box-0", 1, box.journal, world.store) == []
    (kept,) = bring(world)
    assert not kept.ended
    (folder / "log.txt").write_bytes(b"step 1\nstep 2\n")
    fail(box, cell, 1)
    (kept,) = bring(world)
    assert kept.ended
    assert here(world)[f"{NAME}/box-0-g1-1/log.txt"] == b"step 1\nstep 2\n"


def test_what_is_too_large_is_named_and_the_end_of_its_log_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(pull, "LOG_BYTES", 1000)
    monkeypatch.setattr(pull, "LOG_END_BYTES", 100)
    monkeypatch.setattr(pull, "MOST_FILES", 4)
    box, (cell, *_) = world.box, world.cells
    log = b"".join(b"line %d\n" % number for number in range(500))
    attempt(box, cell, 1, {"log.txt": log, "out/model.bin": b"m" * (2 << 20), "out/a": b"a", "out/b": b"b"})
    attempt(box, cell, 2, {"log.txt": log, **{f"out/{name}": name.encode() for name in "cdef"}})
    fail(box, cell, 2)
    newest, oldest = bring(world)
    assert (newest.attempt, oldest.attempt) == (2, 1), "the later one comes first, where room is short"
    (kept,) = (file for file in oldest.files if file.path == "log.txt")
    assert (kept.size, kept.start) == (1000, len(log) - 1000)
    assert here(world)[f"{NAME}/box-0-g1-1/log.txt"] == log[-1000:]
    assert [(file.path, file.size) for file in oldest.left] == [("out/model.bin", 2 << 20)]
    assert "of a cell are copied" in oldest.left[0].why
    assert [file.path for file in newest.left] == ["out/f"]
    monkeypatch.setattr(pull, "MOST_BYTES", 0)
    attempt(box, cell, 3, {"log.txt": log, "out/a": b"a"})
    fail(box, cell, 3)
    (last,) = bring(world)
    assert [(file.path, file.size) for file in last.files] == [("log.txt", 100)], "of a log, the end is always kept"


def test_a_log_comes_before_other_files_and_what_came_before_takes_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "MOST_BYTES", 100)
    monkeypatch.setattr(pull, "LOG_END_BYTES", 10)
    box, (cell, *_) = world.box, world.cells
    attempt(box, cell, 1, {"log.txt": b"l" * 60, "out/a": b"a" * 30, "out/b": b"b" * 40})
    fail(box, cell, 1, final=False)
    (first,) = bring(world)
    assert {file.path: file.size for file in first.files} == {"log.txt": 60, "out/a": 30}
    assert first.bytes == 90
    attempt(box, cell, 2, {"log.txt": b"again", "out/a": b"a" * 6})
    fail(box, cell, 2)
    (second,) = bring(world)
    assert ([file.path for file in second.files], [file.path for file in second.left]) == (["log.txt"], ["out/a"])


def test_an_attempt_with_very_many_files_hides_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "WALK_FILES", 4)
    box, (many, few, _) = world.box, world.cells
    for cell, names in ((many, "abcdefgh"), (few, "a")):
        attempt(box, cell, 1, {"log.txt": b"boom\n", **{f"out/{name}": b"x" for name in names}})
        fail(box, cell, 1)
    found = {one.cell: one for one in bring(world)}
    assert "more than 4 files" in found[many.name].note
    assert ([file.path for file in found[few.name].files], found[few.name].note) == (["log.txt", "out/a"], "")


def test_a_log_of_a_dead_runner_that_goes_on_leaves_one_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end, of which a part was copied before: that part is in the new one."""
    monkeypatch.setattr(pull, "LOG_BYTES", 100)
    monkeypatch.setattr(pull, "LOG_END_BYTES", 100)
    monkeypatch.setattr("sweepstack.evidence.changing_copies.EDGE", 0)
    box, cell = world.box, world.cells[0]
    lines = [b"line %03d\n" % number for number in range(60)]
    folder = attempt(box, cell, 1, {"log.txt": b"".join(lines[:50]), "out/a": b"a"})
    bring(world)
    (folder / "log.txt").write_bytes(b"".join(lines))
    (folder / "out/a").write_bytes(b"a, and more")
    fail(box, cell, 1)
    (found,) = bring(world)
    log = next(file for file in found.files if file.path == "log.txt")
    assert (log.size, log.start) == (100, 9 * 60 - 100)
    copies = {path.rpartition("box-0-g1-1/")[2]: data for path, data in here(world).items()}
    assert copies == {"log.txt": b"".join(lines)[-100:], "out/a": b"a, and more"}
    assert not (world.store.root / "superseded").exists()


def test_a_secret_that_a_killed_attempt_printed_is_masked(world: World) -> None:
    box, (cell, *_) = world.box, world.cells
    (box.root / box_layout.SECRETS).write_text(json.dumps({"TOKEN": "hunter2hunter2", "SHORT": "abc"}))
    attempt(box, cell, 1, {"log.txt": b"token=hunter2hunter2 abc\n"})
    bring(world)
    assert here(world)[f"{NAME}/box-0-g1-1/log.txt"] == b"token=************** abc\n"


def test_any_file_name_is_kept_apart_and_can_be_found_again(world: World) -> None:
    box, (cell, *_) = world.box, world.cells
    names = ["out/.hidden", "out/a b.txt", "out/100%.json", "out/ü/..x", "out/log.txt"]
    folder = attempt(box, cell, 1, {name: name.encode() for name in names})
    os.symlink("/etc/passwd", folder / "out" / "link")
    bring(world)
    (found,) = of_cell(world.store, NAME)
    assert sorted(file.path for file in found.attempt.files) == sorted(names)
    for name in names:
        assert unsealed.read_attempt_copy(world.store, found, name) == name.encode()
    assert not any(part.startswith(".") for path in here(world) for part in path.split("/"))


def test_a_file_that_can_not_be_read_is_named_and_stops_nothing(world: World) -> None:
    box, (cell, *_) = world.box, world.cells
    attempt(box, cell, 1, {"log.txt": b"boom\n", "out/a": b"a", "out/b": b"b"})

    class Denies(LocalChannel):
        def fetch_many(self, files: Sequence[tuple[str, Path]], progress: object = None) -> None:
            raise PermissionError(13, "Permission denied")

        def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
            if path.endswith("out/a"):
                raise PermissionError(13, "Permission denied")
            return super().read(path, offset=offset, limit=limit)

    (kept,) = pull.bring(Denies(box.native_id, box.root, {}), "box-0", 1, box.journal, world.store)
    assert [file.path for file in kept.files] == ["log.txt", "out/b"]
    assert [(file.path, file.why) for file in kept.left] == [
        ("out/a", "it can't be read on the box: Permission denied")
    ]


def test_files_come_together_and_one_that_came_in_part_is_asked_for_again(world: World) -> None:
    box, (cell, *_) = world.box, world.cells
    attempt(box, cell, 1, {"out/a": b"whole", "out/b": b"b"})

    asked: list[str] = []

    class Half(LocalChannel):
        def fetch_many(self, files: Sequence[tuple[str, Path]], progress: object = None) -> None:
            super().fetch_many(files)
            next(target for path, target in files if path.endswith("out/a")).write_bytes(b"who")
            raise PermissionError(13, "Permission denied")

        def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
            asked.append(path.rpartition("/")[2])
            return super().read(path, offset=offset, limit=limit)

    pull.bring(Half(box.native_id, box.root, {}), "box-0", 1, box.journal, world.store)
    assert {path.rpartition("/")[2]: data for path, data in here(world).items()} == {"a": b"whole", "b": b"b"}
    assert asked == ["a"]


def test_a_cut_is_gone_on_with(world: World) -> None:
    box, (first, second, _) = world.box, world.cells
    for cell in (first, second):
        attempt(box, cell, 1, {"log.txt": cell.name.encode()})

    class Cut(LocalChannel):
        def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
            if first.name in path:
                raise Unreachable("cut off")
            return super().read(path, offset=offset, limit=limit)

    with pytest.raises(Unreachable):
        pull.bring(Cut(box.native_id, box.root, {}), "box-0", 1, box.journal, world.store)
    assert [one.cell for one in of_box(world.store, "box-0", 1).attempts] == [second.name]
    assert [one.cell for one in bring(world)] == [first.name]


@pytest.mark.parametrize("silent", ["together", "one by one"])
def test_a_box_that_falls_silent_has_left_nothing_behind(world: World, silent: str) -> None:
    """What a file was not read for is another thing: such a file is named as left, and the attempt is done with."""
    box, cell = world.box, world.cells[0]
    attempt(box, cell, 1, {"log.txt": b"boom", "out/a": b"a"})

    class Silent(LocalChannel):
        def fetch_many(self, files: Sequence[tuple[str, Path]], progress: object = None) -> None:
            raise Unreachable("cut off") if silent == "together" else PermissionError(13, "Permission denied")

        def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
            if silent != "together" and path.endswith("out/a"):
                raise Unreachable("cut off")
            return super().read(path, offset=offset, limit=limit)

    with pytest.raises(Unreachable):
        pull.bring(Silent(box.native_id, box.root, {}), "box-0", 1, box.journal, world.store)
    assert of_box(world.store, "box-0", 1).attempts == ()


def test_a_disk_that_is_nearly_full_is_told_in_sensible_units(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    box, (cell, *_) = world.box, world.cells
    attempt(box, cell, 1, {"log.txt": b"x" * 5000})
    fail(box, cell, 1)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=50_000_000))
    (pulled,) = world.pull()
    assert (
        f"the log of {NAME} needs 5.0 kB, and 67.1 MB more have to stay free for records: {world.store.workplace} has "
        "50.0 MB free. Make room there" in pulled.problem
    )


def test_a_name_in_a_journal_that_is_no_cell_name_leads_nowhere(world: World) -> None:
    box = world.box
    box.log("cell-started", cell="../../x", attempt=1, config_digest="sha256:" + "0" * 64, code="c", argv=[], slot=0)
    assert bring(world) == []


def test_what_links_mean_is_copied_where_it_is_the_cells(world: World) -> None:
    """The file that a failed try had trained into its scratch died with the box: only its log was copied."""
    box, cell = world.box, world.cells[1]
    tier = f"{box_layout.DURABLE}/{world.store.marker.identity}/checkpoints"
    for path in (f"scratch/sweep/{cell.name}/1/t", f"{tier}/{cell.name}/v/c", f"scratch/sweep/{NAME}/1/t", "data/x"):
        (box.root / path).parent.mkdir(parents=True, exist_ok=True)
        (box.root / path).write_text(path)
    folder = attempt(box, cell, 1, {"log.txt": b"boom", "out/e9": b"nine", "out/step/w": b"w"})
    targets = {
        "model": box.root / f"scratch/sweep/{cell.name}/1/t",
        "best": box.root / f"{tier}/{cell.name}/v/c",
        "last": "e9",
        "of-another": box.root / f"scratch/sweep/{NAME}/1/t",
        "of-the-box": box.root / "data/x",
        "users": "/etc/passwd",
        "latest": "step",
        "loop": "loop",
        "odd": os.fsdecode(b"no\377where"),
    }
    for name, target in targets.items():
        (folder / "out" / name).symlink_to(target)
    os.mkfifo(folder / "out/pipe")
    fail(box, cell, 1)
    (found,) = bring(world)
    held = {
        file.path: unsealed.read_attempt_copy(world.store, of_cell(world.store, cell.name)[0], file.path)
        for file in found.files
    }
    assert held == {
        "log.txt": b"boom",
        "out/best": f"{tier}/{cell.name}/v/c".encode(),
        "out/e9": b"nine",
        "out/last": b"nine",
        "out/model": f"scratch/sweep/{cell.name}/1/t".encode(),
        "out/step/w": b"w",
    }
    why = {file.path: file.why for file in found.left}
    assert why.keys() == {
        f"out/{name}" for name in ("of-another", "of-the-box", "users", "latest", "loop", "odd", "pipe")
    }
    assert why["out/users"] == "it is a link to /etc/passwd"
    assert (why["out/pipe"], why["out/loop"]) == ("it is a pipe", "it is a link to loop")
    assert unsealed.dying(world.store, box.name, box.generation, box.journal, dead=False) == ""


def test_a_record_reads_as_it_was_written(world: World) -> None:
    box, (cell, *_) = world.box, world.cells
    attempt(box, cell, 1, {"log.txt": b"x"})
    bring(world)
    path = world.store.root / "records/unsealed/box-0-g1.json"
    assert json.loads(path.read_bytes())["schema"] == 1
    assert UnsealedOfBox.model_validate_json(path.read_bytes()) == of_box(world.store, "box-0", 1)
    (found,) = of_cell(world.store, cell.name)
    assert unsealed.read_attempt_copy(world.store, found, "log.txt") == b"x"
    path.write_bytes(b"{")
    seen = Observation(Existence.EXISTS, box.journal, runner_alive=False)
    (why,) = unsealed.why_logs_hold_box(world.store, "box-0", 1, (), seen)
    assert "box-0-g1.json is damaged" in why, "what is not known to be copied holds the box"


ODD = (b"a\tb", b"a\nb", b"a\\b", b"a\377", b"%_a%FF", b"a%FF", b"%0A", b"a%0Ab", b"x\033[2J", b"deep\n/\377/file")
"""File names that Linux allows, and plain ones that look like the escaped form of another."""


def test_every_name_that_linux_allows_is_copied_under_a_name_of_its_own(world: World) -> None:
    """A name that was no UTF-8 was left on the box, as "too large to copy"."""
    keep_odd_names(world)


def keep_odd_names(world: World) -> None:
    """Copies them, and reads each back by the name on record. Also asked of a bucket (tests/s3)."""
    box, (cell, *_) = world.box, world.cells
    attempt(box, cell, 1, {"log.txt": b"said\n", **{f"out/{os.fsdecode(name)}": name for name in ODD}})
    fail(box, cell, 1)
    (pulled,) = world.pull()
    (kept,) = pulled.unsealed
    assert kept.left == ()
    assert {file.path for file in kept.files} > {"log.txt", "out/a%FF", "out/%_a%FF", "out/%_%25_a%25FF", "out/a\nb"}
    shutil.rmtree(box.root)
    (found,) = of_cell(EvidenceStore.open(world.uri), cell.name)
    data = {file.path: unsealed.read_attempt_copy(world.store, found, file.path) for file in found.attempt.files}
    assert sorted(value for value in data.values() if value) == sorted([b"said\n", *ODD])
    for path, value in data.items():
        last = path.rpartition("/")[2]
        whole = (value or b"").rpartition(b"/")[2]
        assert path == "log.txt" or whole == (unquote_to_bytes(last[2:]) if last.startswith("%_") else last.encode())
