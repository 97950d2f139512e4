"""`sweepctl retry` and `sweepctl drop`: what is to run again, and what no more."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.cells import CellsConfig
from sweepstack.core.roster import expand
from sweepstack.launch.retries import Retry, add, recorded_retries
from sweepstack.onbox.common.errors import ConfigError
from tests.unit.cli.support import ARTIFACT, CODE, IDENTITY, STACK, World, by_name


def mixed(world: World) -> None:
    """lr0.1 is sealed, lr0.3 failed for good, lr0.9 runs."""
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.start("lr0.3")
    box.fail("lr0.3")
    box.start("lr0.9")
    box.alive()


# retry


def test_a_failed_cell_goes_on_and_a_sealed_one_begins_anew(world: World) -> None:
    mixed(world)
    result = world.run("retry", "lr0.1", "lr0.3", "--reason", "a  bug", "--json")
    assert result.code == 0, result
    cells = by_name(result.json["cells"])
    assert (cells["lr0.1"]["from_checkpoint"], cells["lr0.3"]["from_checkpoint"]) == (False, True)
    assert result.json["next"] == [f"pulumi up --stack {STACK}"]
    found = recorded_retries(world.store)
    assert (found["lr0.1"].retry, found["lr0.1"].salt) == (1, 1)
    assert (found["lr0.3"].retry, found["lr0.3"].salt) == (1, 0)
    assert found["lr0.1"].manifest is not None
    assert found["lr0.3"].manifest is None
    assert found["lr0.3"].reason == "a bug"
    assert "@" in found["lr0.3"].by


def test_a_retry_keeps_the_count_of_the_stack_file(world: World) -> None:
    mixed(world)
    at = datetime.now(UTC)
    add(world.store, {"lr0.1": Retry(retry=2, salt=2, counted=5, manifest=None, by="me", at=at)})
    assert world.run("retry", "lr0.1", "--reason", "a bug").code == 0
    assert (recorded_retries(world.store)["lr0.1"].retry, recorded_retries(world.store)["lr0.1"].counted) == (3, 5)


def test_status_names_what_waits_for_the_next_up(world: World) -> None:
    """A `finish` in between would end the boxes without it; said nowhere before."""
    first, second, _ = world.verified()
    assert world.run("retry", "lr0.1", "--reason", "a doubt").code == 0
    words = "to run again, as was asked for: lr0.1. `pulumi up"
    up = f"pulumi up --stack {STACK}    (runs again what was asked for)"
    told = world.run("status", "--json").json
    assert words in " ".join(told["notes"])
    assert told["next"][0] == up
    for box in (first, second):
        box.vanish()
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC)))
    world.boxes.clear()
    told = world.run("status", "--json").json
    assert words in " ".join(told["notes"])
    assert told["next"][0] == up


def test_status_asks_for_no_up_for_a_retry_that_waits_in_a_queue_at_work(world: World) -> None:
    """Seen: for nine minutes `status` named an `up` that changed nothing."""
    mixed(world)
    box = world.boxes[0]
    assert world.run("retry", "lr0.3").code == 0
    up = f"pulumi up --stack {STACK}    (runs again what was asked for)"
    assert world.run("status", "--json").json["next"][0] == up
    box.retries = {"lr0.3": {"retry": 1, "salt": 0}}
    told = world.run("status", "--json").json
    assert "to run again, as was asked for" not in " ".join(told["notes"])
    assert not any(command.startswith("pulumi up") for command in told["next"])
    shown = next(cell for cell in told["cells"] if cell["name"] == "lr0.3")
    assert (shown["state"], shown["note"].partition(";")[0]) == ("pending", "to run again, as was asked for")
    assert told["next"][0].startswith(f"sweepctl wait --stack {STACK}")


def test_a_retry_that_waits_is_not_counted_again(world: World) -> None:
    mixed(world)
    for _ in range(2):
        result = world.run("retry", "lr0.1", "lr0.3", "--json")
        assert result.code == 0, result
    assert [cell["waits"] for cell in result.json["cells"]] == [True, True]
    assert {name: entry.retry for name, entry in recorded_retries(world.store).items()} == {"lr0.1": 1, "lr0.3": 1}


def test_a_retry_that_was_done_is_counted_up(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    assert world.run("retry", "lr0.1").code == 0
    digest = world.cell("lr0.1").config_digest
    code = recorded_retries(world.store)["lr0.1"].code
    again = {"cell": "lr0.1", "attempt": 2, "config_digest": digest, "code": code, "argv": [], "slot": 0, "retry": 1}
    box.log("cell-started", **again)
    box.fail("lr0.1", attempt=2)
    assert world.run("retry", "lr0.1").code == 0
    found = recorded_retries(world.store)["lr0.1"]
    assert (found.retry, found.salt) == (2, 1), "its own checkpoint, not that of the run before"


# after a retry that failed


def retried(world: World) -> str:
    """lr0.1 was verified, and failed when it was run again. Returns the receipt of before."""
    receipt = world.verified()[2]
    box, digest = world.boxes[0], world.cell("lr0.1").config_digest
    assert world.run("retry", "lr0.1", "--reason", "a doubt").code == 0
    box.log("cell-started", cell="lr0.1", attempt=2, config_digest=digest, code=CODE, argv=[], slot=0, retry=1)
    box.fail("lr0.1", attempt=2)
    return receipt


def test_a_second_retry_knows_the_copy_that_the_first_one_was_for(world: World) -> None:
    """It was forgotten: with its box gone, `up` took that copy for the result, and ran nothing."""
    retried(world)
    manifest = recorded_retries(world.store)["lr0.1"].manifest
    assert world.run("retry", "lr0.1").code == 0
    found = recorded_retries(world.store)["lr0.1"]
    assert (found.retry, found.salt, found.manifest) == (2, 1, manifest)
    assert world.run("retry", "lr0.1", "--json").json["cells"][0]["waits"] is True


def test_a_copy_that_its_box_doubts_runs_again_from_nothing(world: World) -> None:
    box, _ = world.full()
    box.seal("lr0.1", schema=2, doubts=["a process still wrote to t.csv"])
    assert world.run("pull").code == 0
    assert world.run("verify").code == 1
    assert by_name(world.run("status", "--json").json["cells"])["lr0.1"]["state"] == "suspect"
    for words in (("lr0.1",), ("--failed",), ("lr0.1", "--from", "start")):
        result = world.run("retry", *words, "--json")
        assert result.code == 0, result
        assert [cell["name"] for cell in result.json["cells"]] == ["lr0.1"]
    found = recorded_retries(world.store)["lr0.1"]
    assert (found.retry, found.salt) == (1, 1)
    assert found.manifest is not None


@pytest.mark.parametrize("verified_again", [False, True])
def test_the_verified_copy_stays_the_result_and_the_box_stays_locked(world: World, verified_again: bool) -> None:
    """Seen: status said only `failed`, `results` `missing`, and no command took the earlier copy back."""
    retried(world)
    if verified_again:
        assert world.run("pull").code == 0
        assert world.run("verify").code == 1
    cell = by_name(world.run("status", "--json").json["cells"])["lr0.1"]
    assert (cell["state"], cell["earlier"]) == ("failed", True)
    assert "the verified copy of attempt 1 stays its result" in cell["note"]
    gates = {gate["box"]: gate["state"] for gate in world.run("status", "--json").json["gates"]}
    assert gates["box-0"] == "locked"
    result = world.run("results")
    assert result.code == 1
    assert "earlier  lr0.1: failed, its verified copy of attempt 1 counts until a later one is verified" in result.out
    found = world.run("results", "--json").json
    assert by_name(found["cells"])["lr0.1"]["values"] == {"loss": 0.25}
    assert found["missing"] == []
    assert world.run("approve").code == 1


def test_a_waiver_settles_a_sweep_with_the_copy_of_before(world: World) -> None:
    retried(world)
    assert world.run("pull").code == 0
    receipt = world.run("verify", "--json").json["receipt"]
    assert world.run("give-up", receipt, "cell/lr0.1", "--reason", "the first run is good").code == 0
    world.up()
    told = world.run("status", "--json").json
    assert by_name(told["cells"])["lr0.1"]["state"] == "waived"
    assert {gate["state"] for gate in told["gates"]} == {"cleared"}
    result = world.run("results", "--json")
    assert result.code == 0
    assert by_name(result.json["cells"])["lr0.1"]["values"] == {"loss": 0.25}
    for box in list(world.boxes):
        box.vanish()
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC)))
    world.boxes.clear()
    after = by_name(world.run("results", "--json").json["cells"])
    assert after["lr0.1"]["values"] == {"loss": 0.25}
    again = by_name(world.run("verify", "--json").json["cells"])["lr0.1"]
    assert again["state"] == "failed", "its copy is good, and nothing calls it damaged"


def test_the_verified_copy_stays_the_result_until_the_one_of_the_retry_is_verified(world: World) -> None:
    """Seen: `pull` put it aside for a copy that `verify` refused, `results` said missing, and nothing took it back."""
    world.verified()
    box = world.boxes[0]
    manifest = world.run("show", "lr0.1", "--json").json["manifest"]
    assert world.run("retry", "lr0.1", "--reason", "a doubt").code == 0
    digest = world.cell("lr0.1").config_digest
    box.log("cell-started", cell="lr0.1", attempt=2, config_digest=digest, code=CODE, argv=[], slot=0, retry=1)
    box.seal("lr0.1", attempt=2, files={ARTIFACT.path: b'{"loss": 9.0}'}, schema=2, doubts=["still written to"])

    def shown(state: str) -> None:
        cell = by_name(world.run("status", "--json").json["cells"])["lr0.1"]
        assert (cell["state"], cell["earlier"]) == (state, True)
        found = world.run("results", "--json").json
        assert by_name(found["cells"])["lr0.1"]["values"] == {"loss": 0.25}
        assert found["missing"] == []
        assert "earlier  lr0.1:" in world.run("results").out
        told = world.run("show", "lr0.1", "--json")
        assert (told.json["manifest"], told.json["verified"]) == (manifest, True)

    shown("sealed")
    assert world.run("pull").code == 0
    shown("sealed")
    receipt = world.run("verify", "--json").json["receipt"]
    shown("suspect")
    gates = {gate["box"]: gate["state"] for gate in world.run("status", "--json").json["gates"]}
    assert gates["box-0"] == "locked"
    assert world.run("give-up", receipt, "cell/lr0.1", "--reason", "the first run is good").code == 0
    world.up()
    shown("waived")
    for one in list(world.boxes):
        one.vanish()
        world.store.write_birth(one.birth(ended_at=datetime.now(UTC)))
    world.boxes.clear()
    shown("waived")
    kept = world.store.root / ".superseded" / "lr0.1-1" / ARTIFACT.path
    kept.write_bytes(b'{"loss": 0.01}')
    assert by_name(world.run("results", "--json").json["cells"])["lr0.1"]["values"] == {}, "it is not what was sealed"


# with other checkpoints

CUT = "3f3f3f3f3f3f3f3f/last.json"


def cut(world: World, **beat: object) -> None:
    """lr0.3 failed at the checkpoint that it found."""
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for name in ("lr0.1", "lr0.9"):
        box.seal(name)
    box.start("lr0.3")
    box.fail("lr0.3", checkpoint=CUT)
    box.beat(**beat)


def uploads(checkpoints: dict[str, object]) -> dict[str, object]:
    """What the heartbeat of a runner with a bucket says of it."""
    waits = {"cells": [], "bytes": 0, "seconds": 0.0, "why": ""}
    return {"source": "s3://lab/x", "endpoint": "", **waits, "checkpoints": checkpoints}


def test_the_way_without_a_cut_checkpoint_is_named(world: World) -> None:
    """To train it again from the same checkpoint would fail again."""
    cut(world)
    told = world.run("status", "--json").json["next"]
    retry = f"sweepctl retry --stack {STACK} lr0.3 --from start && pulumi up --stack {STACK}"
    assert told[1] == f"{retry}    (begins at 0: {CUT} may be cut, and is kept)"
    assert not any("--from set" in line for line in told), "there is no bucket"
    assert world.run("pull").code == 0
    logs, begin, accept = world.run("verify", "--json").json["next"]
    assert logs == f"sweepctl logs --stack {STACK} lr0.3"
    assert begin == told[1]
    assert "cell/lr0.3" in accept


def test_next_names_the_set_before_where_there_is_a_bucket(world: World) -> None:
    cut(world, uploads=uploads({"lr0.3": {"age": 5.0, "bytes": 7, "sets": 2, "behind": ""}}))
    told = world.run("status", "--json").json["next"]
    assert [("--from set" in line, "--from start" in line) for line in told[1:3]] == [(True, False), (False, True)]
    world.boxes[0].beat(uploads=uploads({"lr0.3": {"age": 5.0, "bytes": 7, "sets": 1, "behind": ""}}))
    assert not any("--from set" in line for line in world.run("status", "--json").json["next"]), "that is the newest"


def test_from_start_begins_without_checkpoints_and_tells_where_they_are(world: World) -> None:
    cut(world)
    result = world.run("retry", "lr0.3", "--from", "start")
    assert result.code == 0, result
    found = recorded_retries(world.store)["lr0.3"]
    assert (found.retry, found.salt, found.set_of) == (1, 1, None)
    assert "from nothing" in result.out
    assert f"mnt/durable/{IDENTITY}/checkpoints/lr0.3/ on the box" in result.out


def test_a_retry_that_waits_can_still_be_told_to_begin_at_0(world: World) -> None:
    """What a person typed last counts, as one retry; and a plain retry goes on with what a fresh one then saved."""
    cut(world)
    assert world.run("retry", "lr0.3").code == 0
    assert world.run("retry", "lr0.3", "--from", "start").code == 0
    assert world.run("retry", "lr0.3", "--json").json["cells"][0]["waits"] is True
    found = recorded_retries(world.store)["lr0.3"]
    assert (found.retry, found.salt) == (1, 1)
    box, digest = world.boxes[0], world.cell("lr0.3").config_digest
    box.log("cell-started", cell="lr0.3", attempt=2, config_digest=digest, code=CODE, argv=[], slot=0, retry=1)
    box.fail("lr0.3", attempt=2)
    assert world.run("retry", "lr0.3").code == 0
    found = recorded_retries(world.store)["lr0.3"]
    assert (found.retry, found.salt) == (2, 1)


def test_from_set_names_the_run_whose_set_it_is(world: World) -> None:
    cut(world)
    text = world.file.path.read_text()
    world.file.path.write_text(text + "    mounts: {/ckpt: {source: s3://lab/x, mode: MOUNT_CACHED}}\n")
    result = world.run("retry", "lr0.3", "--from", "set", "--json")
    assert result.code == 0, result
    found = recorded_retries(world.store)["lr0.3"]
    assert (found.retry, found.salt, found.set_of) == (1, 1, 0)
    assert result.json["cells"][0]["from_checkpoint"] is True


def test_what_runs_is_ended_after_a_yes(world: World) -> None:
    """Seen: of the ways out of mixed code, the first one was refused while a cell ran."""
    mixed(world)
    for words, typed in ((("lr0.9",), None), (("--all",), "y")):
        result = world.run("retry", *words, types=typed)
        assert result.code == 1
        assert "1 cell would be ended while at work: lr0.9" in result.err
    assert recorded_retries(world.store) == {}
    assert world.run("retry", "--all", types="yes").code == 0
    found = recorded_retries(world.store)
    assert {name: again.ends for name, again in found.items()} == {"lr0.1": False, "lr0.3": False, "lr0.9": True}
    assert '"ends"' not in found["lr0.1"].model_dump_json(), "what an older version reads stays as it was"


def test_all_leaves_out_what_has_not_run(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    result = world.run("retry", "--all", "--json")
    assert result.code == 0
    assert [cell["name"] for cell in result.json["cells"]] == ["lr0.1"]
    result = world.run("retry", "lr0.9")
    assert result.code == 1
    assert "lr0.9 has not run yet" in result.err


@pytest.mark.parametrize("typed", ["yes", "y"])
def test_a_verified_copy_asks_for_the_word(world: World, typed: str) -> None:
    _, _, receipt = world.verified()
    result = world.run("retry", "--all", types=typed)
    assert "3 verified copies would count no more" in result.err
    assert (result.code, len(recorded_retries(world.store))) == ((0, 3) if typed == "yes" else (1, 0))
    if typed == "yes":
        assert f"the receipt {receipt} is stale" in result.out


def test_a_verified_cell_of_boxes_that_are_gone(world: World) -> None:
    """Said before: there is no box, so type `pulumi up`. That one rents nothing, as all is verified."""
    first, second, _ = world.verified()
    first.vanish()
    result = world.run("retry", "lr0.1", "--reason", "x")
    assert result.code == 0, result
    assert recorded_retries(world.store)["lr0.1"].salt == 1
    second.vanish()
    for box in (first, second):
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC)))
    world.boxes.clear()
    result = world.run("retry", "lr0.3", "--reason", "a doubt", "--json")
    assert result.code == 0, result
    assert result.json["next"] == [f"pulumi up --stack {STACK}"]
    assert recorded_retries(world.store)["lr0.3"].manifest is not None


# drop


def test_drop_refuses_what_would_not_load(world: World) -> None:
    world.full()
    before = world.file.path.read_bytes()
    assert "did you mean" in world.run("drop", "lr0.2", "--reason", "x").err
    for words in ((), ("--reason", " ")):
        refused = world.run("drop", "lr0.3", *words)
        assert refused.code == 2
        assert "why? It is kept with each cell" in refused.err
    for command in (("drop", "lr0.3"), ("retry", "lr0.3"), ("adopt",)):
        refused = world.run(*command, "--reason", "…")
        assert refused.code == 2
        assert 'write why; "…" is only the place for it' in refused.err
    assert world.file.path.read_bytes() == before
    assert world.run("drop", "lr0.1", "--reason", "x").code == 0
    assert world.run("drop", "lr0.3", "--reason", "x").code == 0
    result = world.run("drop", "lr0.9", "--reason", "x")
    assert result.code == 1
    assert "the last cell of the sweep" in result.err


def test_drop_takes_several_cells_or_none_of_them(world: World) -> None:
    """Seen: four calls for four cells."""
    world.full()
    before = world.file.path.read_bytes()
    assert "did you mean" in world.run("drop", "lr0.1", "lr0.2", "--reason", "x").err
    assert "these are the last cells" in world.run("drop", "lr0.1", "lr0.3", "lr0.9", "--reason", "x").err
    assert world.file.path.read_bytes() == before
    result = world.run("drop", "lr0.1", "lr0.3", "lr0.1", "--reason", "too slow", "--json")
    assert result.code == 0, result
    assert (result.json["cells"], result.json["changed"]) == (["lr0.1", "lr0.3"], True)
    assert world.file_roster().dropped == {"lr0.1": "too slow", "lr0.3": "too slow"}


STYLES = {
    "no drop": ("    cells:\n      grid: {lr: [0.1, 0.3, 1.0]}   # the axes\n\n    # files\n    artifacts: {}\n", 1),
    "flow drop": (
        "    cells:\n      grid: {lr: [0.1, 0.3, 1.0]}\n      drop: {lr0.1: no}  # why\n    artifacts: {}\n",
        0,
    ),
    "empty drop": ("    cells:\n      drop: {}\n      grid: {lr: [0.1, 0.3, 1.0]}\n", 0),
    "trailing comma": ("    cells:\n      grid: {lr: [0.1, 0.3, 1.0]}\n      drop: {lr0.1: no, }\n", 0),
    "block drop": (
        "    cells:\n      drop:\n        lr0.1: no  # why\n        # below\n      grid: {lr: [0.1, 0.3, 1.0]}\n",
        1,
    ),
    "block at the end": (
        "    cells:\n      grid:\n        lr:\n          - 0.1\n          - 0.3\n          - 1.0\n",
        1,
    ),
    # The parser ends a block where the next key of the sweep begins
    "block grid": ("    cells:\n      grid:\n        lr: [0.1, 0.3, 1.0]\n    artifacts: {}\n", 1),
    "block axis": ("    cells:\n      grid:\n        lr:\n        - 0.1\n        - 1.0\n    artifacts: {}\n", 1),
    "block list": ("    cells:\n      list:\n        - {lr: 0.1}\n        - lr: 1.0\n    artifacts: {}\n", 1),
    "block base": (
        "    cells:\n      grid: {lr: [0.1, 1.0]}\n      base:\n        epochs: 3  # e\n\n    # f\n    artifacts: {}\n",
        1,
    ),
    "block text": (
        "    cells:\n      grid: {lr: [0.1, 1.0]}\n      base:\n        note: |\n          # kept\n          as it is\n"
        "\n    artifacts: {}\n",
        1,
    ),
    "no newline at the end": ("    cells:\n      grid: {lr: [0.1, 0.3, 1.0]}", 1),
    "flow cells": ("    cells: {grid: {lr: [0.1, 0.3, 1.0]}}  # all\n    artifacts: {}\n", 0),
    "many lines of flow": ("    cells: {\n      grid: {lr: [0.1, 0.3, 1.0]}\n      }\n    artifacts: {}\n", 0),
}


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_drop_keeps_every_other_byte(tmp_path: Path, name: str, newline: str) -> None:
    text, more = STYLES[name]
    path = tmp_path / "Pulumi.x.yaml"
    before = f"# a sweep\nconfig:\n  sweepstack:sweep:\n{text}".replace("\n", newline)
    path.write_bytes(before.encode())
    file = StackFile(path, "stacks/Pulumi.x.yaml")
    assert file.write_drop("lr1.0", "it: diverged")
    assert not file.write_drop("lr1.0", "it: diverged")
    after = path.read_bytes().decode()
    roster = expand(CellsConfig.model_validate(file.sweep()["cells"]))
    assert roster.dropped["lr1.0"] == "it: diverged"
    assert after.count(newline) == before.count(newline) + more
    kept = [line for line in before.split(newline) if line.strip()]
    there = after.split(newline)
    assert len([line for line in kept if line not in there]) <= (1 if more == 0 else 0)
    assert after.count("#") == before.count("#")


def test_a_file_that_can_t_be_edited_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    text = "config:\n  sweepstack:sweep:\n    cells: &a {grid: {lr: [0.1, 1.0]}}\n    other: *a\n"
    path.write_text(text)
    with pytest.raises(ConfigError, match="was left as it is"):
        StackFile(path, "stacks/Pulumi.x.yaml").write_drop("lr1.0", "x")
    assert path.read_text() == text
