"""Sets of checkpoints in a bucket: in generated histories no newer content is replaced, and nothing copied is lost."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.onbox.runner import checkpoint_sets
from sweepstack.onbox.runner.checkpoint_sets import KEEP, Changing, NoSuchSet, Sets, Superseded
from tests.onbox.sets_world import CELL, WHERE, WORK, Killed, TestBox, World

SAVES = ("replace", "in place", "rotate", "rename")
STEP = st.one_of(
    st.tuples(st.just("save"), st.sampled_from(SAVES)),
    st.tuples(st.just("copy"), st.none()),
    st.tuples(st.just("late copy"), st.none()),
    st.tuples(st.just("cut"), st.tuples(st.integers(1, 25), st.booleans())),
    st.tuples(st.just("save meanwhile"), st.tuples(st.integers(1, 12), st.sampled_from(SAVES))),
    st.tuples(st.just("hand over"), st.none()),
    st.tuples(st.just("cut hand over"), st.tuples(st.integers(1, 8), st.booleans())),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("lose"), st.none()),
    st.tuples(st.just("away"), st.none()),
    st.tuples(st.just("clock"), st.none()),
)


def kill_at(world: World, number: int, after: bool) -> None:
    begin = world.store.calls

    def at(call: int, done: bool) -> None:
        if call - begin == number and done == after:
            raise Killed

    world.store.at = at


def play(world: World, kind: str, more: object) -> None:
    """One step of a history."""
    if kind == "save":
        world.save(world.owner, str(more))
    elif kind == "copy":
        world.copy(world.owner)
    elif kind == "late copy" and world.other.had:  # of the box that had it before, and still trains
        world.save(world.other, "replace")
        world.copy(world.other)
    elif kind in ("cut", "cut hand over"):
        number, after = more  # type: ignore[misc]
        kill_at(world, number, after)
        box, owner = (world.owner, world.owner) if kind == "cut" else (world.other, world.owner)
        try:
            world.copy(box) if kind == "cut" else world.bring(box)
        except (Killed, OSError):
            pass
        finally:
            world.store.at = lambda *_: None
        box.begin()
        if kind == "cut hand over":
            assert world.owner is owner
            if not world.store.away:
                world.hand_over()
    elif kind == "save meanwhile":
        number, how = more  # type: ignore[misc]
        begin, owner = world.store.calls, world.owner

        def at(call: int, done: bool) -> None:
            if call - begin == number and not done:
                world.save(owner, how)
                world.copied.append(owner.content())

        world.store.at = at
        world.copy(owner)
        world.store.at = lambda *_: None
    elif kind == "hand over" and not world.store.away:
        world.hand_over()
    elif kind == "restart":
        world.owner.begin()
    elif kind == "lose" and not world.store.away:
        world.owner, world.begun = world.lose(world.owner), False
        world.owner.had = True
        world.owner.sets.bring()
    elif kind == "away":
        world.store.away = not world.store.away
    elif kind == "clock":
        world.back = not world.back


def run(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        for kind, more in steps:
            play(world, kind, more)
            world.check()


START = [("save", "replace"), ("copy", None), ("save", "rotate"), ("copy", None), ("save", "rotate")]


# The rows with all 13 steps: as the one that stays, which takes every fourth.
@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("cut", 4),
        pytest.param("cut", 1, marks=pytest.mark.proof),
        pytest.param("cut hand over", 1, marks=pytest.mark.proof),
    ],
)
def test_a_kill_at_each_step_leaves_a_whole_set(kind: str, every: int) -> None:
    more = (
        [("late copy", None)]
        if kind == "cut"
        else [("hand over", None), ("copy", None), ("save", "replace"), ("copy", None)]
    )
    for number in range(1, 14, every):
        for after in (False, True):
            run([*START, *more, (kind, (number, after)), ("copy", None), ("late copy", None)])


# The first way to save stays; test_no_history_loses_what_was_copied draws from all of them.
@pytest.mark.parametrize("how", [SAVES[0], *(pytest.param(how, marks=pytest.mark.proof) for how in SAVES[1:])])
def test_a_save_at_each_step_of_a_copy_leaves_a_whole_set(how: str) -> None:
    for number in range(1, 14):
        run([("save", "in place"), ("copy", None), ("save", how), ("save meanwhile", (number, how)), ("copy", None)])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, max_size=14))
def test_no_history_loses_what_was_copied(steps: list[tuple[str, object]]) -> None:
    run(steps)


# as test_no_history_loses_what_was_copied, which stays in make test
@pytest.mark.proof
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, max_size=40))
def test_no_long_history_loses_what_was_copied(steps: list[tuple[str, object]]) -> None:
    run(steps)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def objects(world: World) -> list[str]:
    return sorted(
        str(one.relative_to(world.store.root / WHERE)) for one in world.store.root.rglob("*") if one.is_file()
    )


def test_a_late_copy_of_the_box_before_is_refused(world: World) -> None:
    world.save(world.owner, "replace")
    assert world.copy(world.owner) == ""
    world.hand_over()
    world.save(world.owner, "replace")
    assert world.copy(world.owner) == ""
    world.save(world.other, "replace")
    before = objects(world)
    assert world.copy(world.other) == "superseded"
    assert objects(world) == before


def test_a_box_that_gets_a_cell_back_goes_on_where_the_other_one_was(world: World) -> None:
    world.save(world.owner, "replace")
    world.copy(world.owner)
    first, at_first = world.owner, world.owner.content()
    world.hand_over()
    world.save(world.owner, "rename")
    world.copy(world.owner)
    at_second = world.owner.content()
    world.hand_over()
    assert world.owner is first
    assert first.content() == at_second
    assert at_first in first.kept(), "its own older files are kept beside"
    world.save(first, "replace")
    assert world.copy(first) == ""
    assert first.sets.local.claim is not None
    assert first.sets.local.claim.generation == 3


def test_only_what_changed_is_sent(world: World) -> None:
    big = "x" * 1_000_000
    world.owner.folder.joinpath("frozen").write_text(big)
    for _ in range(3):
        world.save(world.owner, "rotate")
        world.copy(world.owner)
    assert world.store.sent < 1_000_000 * 1.01
    os.replace(world.owner.folder / "frozen", world.owner.folder / "renamed")
    world.states.append(world.owner.content())
    world.copy(world.owner)
    world.hand_over()  # an owner has its own copy of each file, made by the store
    world.save(world.owner, "rotate")
    world.copy(world.owner)
    assert world.store.sent < 1_000_000 * 1.01
    assert world.owner.content()["renamed"] == big
    calls = world.store.calls
    assert world.owner.sets.copy(0.0, 0.0) is False
    assert world.owner.begin().copy(0.0, 0.0) is False, "a runner that starts again copies nothing again"
    assert world.store.calls == calls, "and asks nothing"


def test_the_last_sets_stay_and_rotated_files_do_not_come_back(world: World) -> None:
    for _ in range(5):
        world.save(world.owner, "rotate")
        world.copy(world.owner)
    kept = world.owner.content()
    assert sum("/lists/" in name for name in objects(world)) == KEEP
    assert len(objects(world)) == KEEP + 1 + 3, "the lists, the claim, and the contents of steps 3, 4 and 5"
    assert world.owner.sets.facts["sets"] == KEEP
    fresh = TestBox(world)
    assert "files came from set 5" in fresh.sets.bring()
    assert fresh.content() == kept


def test_nothing_is_fetched_into_a_folder_that_has_files(world: World) -> None:
    world.save(world.owner, "replace")
    world.copy(world.owner)
    world.save(world.owner, "replace")
    newer = world.owner.content()
    assert world.owner.begin().bring() == ""
    assert world.owner.content() == newer


def test_files_of_which_nothing_is_known_give_way_to_the_set_of_another_box_alone(world: World) -> None:
    """What a box copied is lost with its tier's record, or an older commit wrote none."""
    world.save(world.owner, "replace")
    world.copy(world.owner)
    fresh, theirs = TestBox(world), world.owner.content()
    (fresh.folder / "model").write_text("of before")
    assert "what was here is kept as" in fresh.begin().bring(claim=False)
    assert fresh.content() == theirs
    assert {"model": "of before"} in fresh.kept()
    (world.owner.folder / "model").write_text("newer than its set")
    world.owner.sets.local.path.unlink()
    assert world.owner.begin().bring(claim=False) == ""
    assert world.owner.content()["model"] == "newer than its set"
    plain = fresh.folder.with_name("f" * 16)
    world.store._put(world.store.root / WHERE / "checkpoints" / CELL / plain.name / "model", b"of an older commit")
    plain.mkdir()
    (plain / "model").write_text("newer")
    assert Sets(world.store, WHERE, CELL, plain, fresh.name).bring(claim=False) == ""
    assert fresh.content(plain) == {"model": "newer"}


def test_a_worker_that_another_one_was_quicker_than_copies_nothing(world: World) -> None:
    """It had a set brought before it was known who starts the cell."""
    world.save(world.owner, "replace")
    world.copy(world.owner)
    slow, quick = TestBox(world), TestBox(world)
    slow.sets.bring(claim=False)
    quick.sets.bring()
    (slow.folder / "model").write_text("of the slow one")
    before = objects(world)
    with pytest.raises(Superseded, match=f"{quick.name} has taken this cell over"):
        slow.sets.copy(0.0, 0.0)
    assert objects(world) == before


@pytest.mark.parametrize("claim", [True, False])
def test_what_went_on_from_another_s_set_stays_when_its_runner_starts_again(world: World, claim: bool) -> None:
    """Nothing of it was copied yet: what it began with is older."""
    world.save(world.owner, "replace")
    world.copy(world.owner)
    fresh = TestBox(world)
    fresh.sets.bring(claim=claim)
    (fresh.folder / "model").write_text("trained on")
    assert fresh.begin().bring(claim=claim) == ""
    assert fresh.content()["model"] == "trained on"


def test_two_files_of_one_content_are_two_files(world: World) -> None:
    for name in ("last", "best"):
        (world.owner.folder / name).write_text("weights")
    assert world.owner.sets.copy(0.0, 0.0)
    fresh = TestBox(world)
    fresh.sets.bring(claim=False)
    (fresh.folder / "last").write_text("trained on")
    assert fresh.content() == {"last": "trained on", "best": "weights"}


def test_the_set_before_and_none(world: World) -> None:
    one = TestBox(world)
    with pytest.raises(NoSuchSet, match="no set before"):
        one.sets.bring("previous", claim=False)
    saved = []
    for _ in range(2):
        world.save(world.owner, "replace")
        world.copy(world.owner)
        saved.append(world.owner.content())
    one.sets.bring("previous", claim=False)
    assert one.content() == saved[0]
    nothing = TestBox(world)
    nothing.sets.bring("nothing", claim=False)
    assert nothing.content() == {}
    folder = TestBox(world).folder.with_name("f" * 16)  # another version, which begins with a set of this one
    other = Sets(world.store, WHERE, CELL, folder, "box-x")
    other.bring("previous", world.owner.sets)
    assert one.content(folder) == saved[0]
    assert other.copy(0.0, 0.0)
    assert world.owner.sets.bring() == ""


def test_a_set_that_is_damaged_in_the_bucket_is_left_out(world: World) -> None:
    saved = []
    for _ in range(2):
        world.save(world.owner, "replace")
        world.copy(world.owner)
        saved.append(world.owner.content())
    newest = max(world.store.root.rglob("files/*/model"), key=lambda path: path.read_text())
    newest.write_text(newest.read_text()[:-1] + "?")
    fresh = TestBox(world)
    assert "is not what was copied there" in fresh.sets.bring()
    assert fresh.content() == saved[0]
    for path in world.store.root.rglob("files/*/*"):
        path.write_text("?")
    with pytest.raises(NoSuchSet, match=f"no set of it is whole. Next: sweepctl retry {CELL} --from start"):
        TestBox(world).sets.bring()


def test_what_the_bucket_has_not_got_whole_makes_no_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said yes, and the last byte is not there: else the set before would go for a set that nothing can load."""
    store = world.store
    world.save(world.owner, "replace")
    with monkeypatch.context() as short:
        short.setattr(store, "_send_one", lambda one, target: store._put(target, one.read_bytes()[:-1]))
        with pytest.raises(OSError, match="is not there, or not whole, after it was copied"):
            world.owner.sets.copy(0.0, 0.0)
    assert not any("/lists/" in name for name in objects(world))
    assert world.owner.sets.copy(0.0, 0.0)


def test_what_an_older_commit_copied_has_to_come_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = world.store
    store._put(store.root / WHERE / "checkpoints" / CELL / WORK / "model", b"weights")
    fresh = TestBox(world)
    with monkeypatch.context() as short:
        short.setattr(store, "take", lambda _, names, folder: [store._put(folder / name, b"weig") for name in names])
        with pytest.raises(NoSuchSet, match="model did not come whole"):
            fresh.sets.bring()
    assert fresh.content() == {}
    fresh.sets.bring()
    assert fresh.content() == {"model": "weights"}


def test_boxes_that_claim_at_the_same_time_again_and_again_copy_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, put = world.store, world.store._put

    def both(path: Path, data: bytes) -> None:
        put(path, data)
        generation = path.parent.name.partition("-")[0]
        put(path.parent.with_name(f"{generation}-z") / path.name, data)

    monkeypatch.setattr(store, "_put", both)
    with pytest.raises(Superseded, match=r"at the same time: 0+\d-z"):
        TestBox(world).sets.bring()


@pytest.mark.parametrize(
    "wrong",
    [
        '{"files": [], "links": {}}',
        '{"files": {}, "links": []}',
        '{"files": {"a": [[], 1, 2, "x"]}, "links": {}}',
        '{"files": {}, "links": {"../b": "a"}}',
        '{"files": {}, "links": {"/b": "a"}}',
        '{"files": {}, "links": {"b": 1}}',
    ],
)
def test_a_list_of_another_form_is_left_out(world: World, wrong: str) -> None:
    world.save(world.owner, "replace")
    world.copy(world.owner)
    saved = world.owner.content()
    world.save(world.owner, "replace")
    world.copy(world.owner)
    max(world.store.root.rglob("lists/*")).write_text(wrong)
    fresh = TestBox(world)
    assert "can't be read" in fresh.sets.bring()
    assert fresh.content() == saved


@pytest.mark.parametrize("name", ["../model", "/model", "a/../../model"])
def test_a_list_whose_files_lie_elsewhere_is_left_out(world: World, name: str) -> None:
    """What is in a bucket writes nothing outside of the folder of its checkpoints."""
    world.save(world.owner, "replace")
    world.copy(world.owner)
    saved = world.owner.content()
    world.save(world.owner, "replace")
    world.copy(world.owner)
    newest = max(world.store.root.rglob("lists/*"))
    newest.write_text(newest.read_text().replace('"model":', f'"{name}":'))
    fresh = TestBox(world)
    assert f"{name} is not there" in fresh.sets.bring()
    assert fresh.content() == saved


def test_a_file_that_comes_while_the_others_are_held_is_of_the_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save of several files: its index is there before its last part."""
    late, link = world.owner.folder / "part-2", checkpoint_sets.linked

    def linked(source: Path, target: Path) -> bool:
        if not late.exists():
            late.write_text("2")
        return link(source, target)

    world.save(world.owner, "replace")
    monkeypatch.setattr(checkpoint_sets, "linked", linked)
    assert world.owner.sets.copy(0.0, 0.0)
    fresh = TestBox(world)
    fresh.sets.bring(claim=False)
    assert fresh.content() == world.owner.content()
    assert "part-2" in fresh.content()


def test_a_fetch_that_was_cut_goes_on_and_counts_only_whole(world: World) -> None:
    world.save(world.owner, "rotate")
    world.copy(world.owner)
    fresh = TestBox(world)
    kill_at(world, 4, True)
    with pytest.raises(Killed):
        fresh.sets.bring()
    assert fresh.content() == {}
    world.store.at = lambda *_: None
    fresh.begin().bring()
    assert fresh.content() == world.owner.content()
    assert not fresh.sets.partial.exists()


def test_times_and_links_come_back_and_hidden_files(world: World) -> None:
    folder = world.owner.folder
    (folder / ".metadata").write_text("of torch.distributed.checkpoint")
    (folder / "half.tmp").write_text("half")
    (folder / "step-3").mkdir()
    (folder / "step-3" / "x").write_text("3")
    os.utime(folder / "step-3" / "x", ns=(10**18, 10**18))
    os.symlink("step-3", folder / "latest")
    os.symlink("/etc/passwd", folder / "elsewhere")
    world.owner.sets.copy(0.0, 0.0)
    fresh = TestBox(world)
    fresh.sets.bring()
    assert sorted(fresh.content()) == [".metadata", "step-3/x"]
    assert os.readlink(fresh.folder / "latest") == "step-3"
    assert (fresh.folder / "latest" / "x").stat().st_mtime_ns == 10**18
    assert not (fresh.folder / "elsewhere").is_symlink()


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_written_all_the_time(world: World, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that grows keeps no set back; a file that is written in place does, and is named."""
    if not links:
        monkeypatch.setattr("sweepstack.onbox.runner.checkpoint_sets.linked", lambda *_: False)
    folder = world.owner.folder

    def write(name: str) -> Callable[[int, bool], None]:
        def at(call: int, _after: bool) -> None:
            with open(folder / name, "a") as file:
                file.write(f"{call}\n")

        return at

    world.save(world.owner, "replace")
    world.store.at = write("metrics.jsonl")
    assert world.owner.sets.copy(0.0, 0.0)
    world.store.at = write("model")
    world.save(world.owner, "replace")
    with pytest.raises(Changing, match="its files change while they are copied: model"):
        world.owner.sets.copy(0.0, 0.0)


def test_what_a_spoiled_copy_sent_is_not_taken_for_there(world: World) -> None:
    """A file that was written anew before it was sent lies under the digest of what it was; later a file has that."""
    world.save(world.owner, "rotate")
    begin, how = world.store.calls, "in place"

    def at(call: int, done: bool) -> None:
        if call == begin + 1 and not done:
            world.save(world.owner, how)

    world.store.at = at
    assert world.owner.sets.copy(0.0, 0.0)
    world.store.at = lambda *_: None
    fresh = TestBox(world)
    fresh.sets.bring(claim=False)
    assert fresh.content() == world.owner.content()


@pytest.mark.parametrize("before", ["999", ""])
def test_a_pointer_in_a_text_file_is_never_half(world: World, before: str) -> None:
    """`latest.txt` has a name of what grows, and is written anew: 999, 1000."""
    pointer = world.owner.folder / "latest.txt"
    world.save(world.owner, "replace")
    pointer.write_text(before)
    begin = world.store.calls

    def at(call: int, done: bool) -> None:
        if call == begin + 1 and not done:
            pointer.write_text("1000")

    world.store.at = at
    assert world.owner.sets.copy(0.0, 0.0)
    world.store.at = lambda *_: None
    fresh = TestBox(world)
    fresh.sets.bring(claim=False)
    assert (fresh.folder / "latest.txt").read_text() == "1000"


GOLDEN = Path(__file__).parents[1] / "golden" / "bucket-6f8d950f"


def test_what_an_older_commit_copied_is_the_oldest_set(world: World) -> None:
    """The golden bucket, which 6f8d950f left: docs/development.md, Golden sweeps."""
    (place,) = (GOLDEN / "abcdefghij" / "checkpoints" / CELL).iterdir()
    plain = world.store.root / WHERE / "checkpoints" / CELL / WORK
    shutil.copytree(place, plain)
    fresh = TestBox(world)
    assert "9 files" not in (said := fresh.sets.bring()), said
    assert "8 files came from what an older commit copied" in said
    assert fresh.content()["last.ckpt"] == "7"
    fresh.folder.joinpath("last.ckpt").write_text("8")
    assert fresh.sets.copy(0.0, 0.0)
    fresh.sets.prune()
    left = [one for one in plain.rglob("*") if one.is_file()]
    assert len(left) == 8, "it stays as the set before the first whole one"
    assert TestBox(world).sets.bring(claim=False) == "8 files came from set 1 of 000002-" + fresh.name
    fresh.folder.joinpath("last.ckpt").write_text("9 ")
    assert fresh.sets.copy(0.0, 0.0)
    fresh.sets.prune()
    assert not [one for one in plain.rglob("*") if one.is_file()]
