"""`sweepctl status --next` in each state that a sweep can be in: its phase, its one command, and where that leads."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.billing.stray import Stray
from sweepstack.core.paths import PACKAGE
from sweepstack.status.lifecycle import PHASES
from sweepstack.status.ways_on import out_of_files
from tests.unit.cli.support import STACK, Box, World, by_name

AT_MOST = 3
LOOKS = {"results", "logs", "status", "audit"}
UP = f"pulumi up --stack {STACK}"
FINISH = f"sweepctl finish --stack {STACK}"


def no_state(world: World) -> None:
    world.engine_says("error: no stack named 'organization/sweepstack/sweep-t' found")
    shutil.rmtree(world.evidence)


def bare_stack(world: World) -> None:
    world.save(world.empty())


def half_an_up(world: World) -> None:
    world.add()
    world.boxes.clear()


def running(world: World) -> Box:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.begin = datetime.now(UTC) - timedelta(seconds=40)
    box.start("lr0.1")
    box.beat(running=[{"cell": "lr0.1", "attempt": 1, "verdict": "working"}])
    box.alive()
    return box


def first_failed(world: World) -> None:
    """What it failed of may be in all the others."""
    running(world).start("lr0.3")
    world.boxes[0].fail("lr0.3")


def hung(world: World) -> None:
    running(world).beat(ago=1, running=[{"cell": "lr0.1", "attempt": 1, "verdict": "hung", "why": "no output"}])


def stopped(world: World) -> None:
    """Its lease was over: it has stopped itself, in the middle of its cells."""
    box = running(world)
    box.log("lease-over", why="no look for 2h")
    box.log("box-off", native="stop")
    box.alive(False)
    world.platform.stop(box.native_id, box.record.account)


def gone(world: World) -> None:
    running(world).vanish()


def failed(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for name in ("lr0.1", "lr0.3"):
        box.seal(name)
    box.start("lr0.9")
    box.fail("lr0.9")


def wrong_files(world: World) -> None:
    """Of the first cell; the two others wait for a person."""
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.start("lr0.1")
    said = {"reason": "artifact missing: model.pt; there are: table.csv (9 B)", "class": "files", "final": True}
    box.log("cell-failed", cell="lr0.1", attempt=1, exit_code=0, **said)


def cut(world: World) -> None:
    failed(world)
    world.boxes[0].start("lr0.9", attempt=2)
    world.boxes[0].fail("lr0.9", attempt=2, checkpoint="3f3f3f3f3f3f3f3f/last.json")


def sealed(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for name in ("lr0.1", "lr0.3", "lr0.9"):
        box.seal(name)


def pulled(world: World) -> None:
    sealed(world)
    assert world.run("pull").code == 0


def verified(world: World) -> str:
    pulled(world)
    return str(world.run("verify", "--json").json["receipt"])


def approved(world: World) -> None:
    assert world.run("approve", verified(world)).code == 0


def cleared(world: World) -> None:
    approved(world)
    world.up()


def expired(world: World) -> None:
    approved(world)
    word = world.file.approval()
    assert word is not None
    world.file.write_approval(word.model_copy(update={"expires": datetime.now(UTC) - timedelta(hours=1)}))
    world.up()


def ended(world: World) -> None:
    verified(world)
    for box in world.boxes:
        world.platform.destroy(box.native_id, box.record.account)
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC), ended_how="cleared"))
    world.boxes.clear()
    world.save(world.empty())


def volume_bills(world: World) -> None:
    ended(world)
    left = Stray("volume", "local", world.volume, name="store", price_per_month=7.0, size_gb=100)
    world.monkeypatch.setattr("sweepstack.operations.sweep.collect.leftovers", lambda *_: (left,))


@dataclass(frozen=True)
class Row:
    """A state: its phase, the one command of `next`, and the state to which that leads; "" is the end. `then`: the
    command after it, where that one only looks. `proof`: words of one fact, and whether that is proved."""

    build: Callable[[World], object]
    phase: int
    command: str
    leads_to: str
    bills: str = "yes"
    then: str = ""
    proof: tuple[str, str] = ("the roster is known: 3 cells", "proved")


STATES = {
    "no state": Row(no_state, -1, f"pulumi stack init {STACK} && {UP}", "running", "unknown"),
    "no resources": Row(bare_stack, 0, UP, "running", "nothing"),
    "half an up": Row(half_an_up, 1, UP, "running"),
    "running": Row(
        running, 4, f"sweepctl wait --stack {STACK} done && {FINISH}", "", proof=("box-0 is watched", "proved")
    ),
    "first failed": Row(
        first_failed,
        4,
        f"sweepctl logs --stack {STACK} lr0.3",
        "",
        then=f"sweepctl wait --stack {STACK} done && {FINISH}",
        proof=("box-0 is watched", "proved"),
    ),
    "hung": Row(
        hung,
        4,
        f"sweepctl logs --stack {STACK} lr0.1 --tail 50",
        "running",
        then=f"sweepctl retry --stack {STACK} lr0.1 && {UP}",
        proof=("lr0.1 goes on", "open"),
    ),
    "stopped": Row(stopped, 4, UP, "running", proof=("box-0 answers", "open")),
    "gone": Row(gone, 4, UP, "running", "nothing", proof=("box-0 answers", "open")),
    "failed": Row(
        failed,
        4,
        f"sweepctl logs --stack {STACK} lr0.9",
        "",
        then=FINISH,
        proof=("2 of 3 cells have ended well", "open"),
    ),
    "wrong files": Row(wrong_files, 4, UP, "running", proof=("0 of 3 cells have ended well", "open")),
    "cut": Row(
        cut,
        4,
        f"sweepctl logs --stack {STACK} lr0.9",
        "running",
        then=f"sweepctl retry --stack {STACK} lr0.9 --from start && {UP}",
    ),
    "sealed": Row(sealed, 5, FINISH, "", proof=("3 of 3 cells have ended well", "proved")),
    "pulled": Row(pulled, 5, FINISH, "", proof=("0 of 3 cells are verified or waived", "open")),
    "verified": Row(verified, 5, f"sweepctl approve --stack {STACK}", "approved", proof=("box-0 may end", "open")),
    "approved": Row(approved, 5, UP, "cleared"),
    "cleared": Row(cleared, 5, f"pulumi destroy --stack {STACK}", "", proof=("box-0 may end", "proved")),
    "expired": Row(expired, 5, FINISH, "", proof=("box-0 may end", "open")),
    "ended": Row(ended, 5, f"sweepctl results --stack {STACK}", "", "nothing", proof=("box-0 has ended", "proved")),
    "volume bills": Row(
        volume_bills, 5, "sweepctl audit --end local:{volume}", "ended", proof=("volume store bills nothing", "open")
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_the_phase_and_the_one_command_of_each_state(world: World, name: str) -> None:
    row = STATES[name]
    row.build(world)
    fresh = name not in ("no state", "no resources", "ended", "volume bills")
    asked = world.run("status", "--next", "--json", fresh=fresh)
    assert asked.json["phase"]["number"] == row.phase
    assert asked.json["command"] == row.command.format(volume=world.volume)
    assert asked.json["bills"] == row.bills
    assert asked.json["over"] is (name == "ended")
    said = {fact["what"]: state for state in ("proved", "open", "unknown") for fact in asked.json[state]}
    if row.phase > -1:
        assert said[row.proof[0]] == row.proof[1]
    if row.then:
        assert asked.json["otherwise"][0].startswith(row.then)
    if counted(name) > AT_MOST:
        ends = FINISH if name == "cut" else f'sweepctl drop --stack {STACK} lr0.1 --reason "…" && {UP}'
        assert any(line.startswith(ends) for line in asked.json["otherwise"]), "the way that ends it is named"
    status = world.run("status", "--json", fresh=fresh)
    assert [*asked.json["next"], *asked.json["otherwise"]] == status.json["next"]


def counted(name: str) -> int:
    """How many commands lead from a state to the end, by the table above, whose commands are what `next` says. Fails
    where that goes round in a circle. A look counts as none, nor does `pulumi stack init`."""
    count, seen = 0, set()
    while name:
        assert name not in seen, f"{name} comes again"
        seen.add(name)
        row = STATES[name]
        parts = [shlex.split(part) for part in f"{row.command} && {row.then}".split(" && ") if part]
        count += sum(part[:3] != ["pulumi", "stack", "init"] and not looks(part) for part in parts)
        name = row.leads_to
    return count


def looks(part: list[str]) -> bool:
    return part[0] == "sweepctl" and part[1] in LOOKS and "--end" not in part


@pytest.mark.parametrize("name", STATES)
def test_three_commands_lead_from_each_state_to_nothing_bills(name: str) -> None:
    """One that is trained again takes four: the way that ends it is named beside, and takes two at most."""
    assert counted(name) <= (4 if name in ("hung", "cut") else AT_MOST)


def test_wrong_files_lead_to_the_stack_file_and_hold_the_cells_that_have_not_begun(world: World) -> None:
    wrong_files(world)
    seen = world.run("status", "--json").json
    assert by_name(seen["cells"])["lr0.3"]["note"] == "waits: lr0.1 left the wrong files"
    (note,) = (note for note in seen["notes"] if "wrong files" in note)
    assert note == (
        "box box-0: 2 cells wait that have not begun: lr0.1 left the wrong files "
        "(artifact missing: model.pt; there are: table.csv (9 B))"
    )
    assert seen["boxes"][0]["alarms"] == []  # it is no runner that died
    assert seen["next"] == [
        f"{UP}    (after artifacts names what lr0.1 left: seals it, and trains nothing)",
        f"sweepctl retry --stack {STACK} lr0.1 && {UP}    (trains it again)",
        f'sweepctl give-up --stack {STACK} cell/lr0.1 --reason "…" && {FINISH}    (to do without)',
    ]
    many = [f"c{number}" for number in range(50)]
    assert out_of_files(STACK, many)[-1].count("cell/") == 50, "with fewer the box stays locked"
    asked = world.run("wait", "done", "--json")
    assert asked.code == 1
    assert "2 cells wait that have not begun" in asked.out + asked.err


def test_every_phase_has_a_name_and_a_command_that_checks_it() -> None:
    assert [phase.number for phase in PHASES] == [-1, 0, 1, 2, 3, 4, 5]
    page = (PACKAGE.parent / "docs" / "lifecycle.md").read_text().replace("\u2212", "-")
    for phase in PHASES:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {phase.number} | {phase.name} |"))
        assert line.endswith(f"| `{phase.check('S', 'BOX')}` |")
