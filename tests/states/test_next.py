"""`sweepctl status --next` along one sweep, from before its first stack until nothing bills, on the real commands."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.engine.commands import ok
from tests.states.conftest import At
from tests.states.fast import Fast
from tests.states.following import ASKED, filled, is_look
from tests.states.starts import STARTS
from tests.states.world import World

AT_MOST = 3


def told(world: World) -> dict[str, Any]:
    """What `status --next` says, which is what `status` says next; both are asked again where a cell may have ended
    between."""
    for left in reversed(range(ASKED)):
        document: dict[str, Any] = json.loads(
            world.types("sweepctl", "status", "--next", "--stack", world.name, "--json").out
        )
        status = json.loads(world.types("sweepctl", "status", "--stack", world.name, "--json").out)
        if [*document["next"], *document["otherwise"]] == status["next"]:
            break
        assert left, (document, status["next"])
    return document


def typed(world: World, document: dict[str, Any]) -> int:
    """Types the one next command; how many commands that were, looks not counted."""
    commands = [filled(tuple(shlex.split(part))) for part in document["command"].split(" && ")]
    for command in commands:
        ok(world.types(*command))
    return sum(not is_look(command) and command[:3] != ("pulumi", "stack", "init") for command in commands)


def states_of(document: dict[str, Any], phase: int) -> dict[str, str]:
    return {
        fact["what"]: state
        for state in ("proved", "open", "unknown")
        for fact in document[state]
        if fact["phase"] == phase
    }


def test_a_sweep_goes_through_all_phases(new_fast: Fast) -> None:
    world = new_fast
    world.write_config()
    first = told(world)
    assert (first["phase"]["number"], first["over"]) == (-1, False)
    ok(world.run("pulumi", "stack", "init", world.name, "--non-interactive"))
    assert told(world)["phase"] == {
        "number": 0,
        "name": "look before renting",
        "verify": f"pulumi preview --stack {world.name}",
    }
    world.hold("seed0", "seed1")
    typed(world, told(world))
    running = told(world)
    assert running["phase"]["number"] == 4
    assert states_of(running, 1) == {"box-0 is rented": "proved", "box-0 answers": "proved"}
    assert states_of(running, 3) == {"box-0 trains": "proved"}
    assert states_of(running, 4)["0 of 2 cells have ended well"] == "open"
    world.release()
    world.wait_done()
    world.wait_idle()
    finished = told(world)
    assert finished["phase"]["number"] == 5
    assert states_of(finished, 5)["0 of 2 cells are verified or waived"] == "open"
    records = {fact["by"] for fact in finished["proved"]}
    assert "the box's journal" in records
    for name in ("records/births/box-0-g1.json", "records/launches/box-0-g1.json"):
        assert name in records
        assert (world.evidence / name).exists(), name
    typed(world, finished)
    over = told(world)
    assert (over["phase"]["number"], over["over"], over["bills"]) == (5, True, "nothing")
    assert states_of(over, 5) == {
        "2 of 2 cells are verified or waived": "proved",
        "box-0 has ended": "proved",
        "nothing bills": "proved",
    }
    (receipt,) = (fact["by"] for fact in over["proved"] if "verified or waived" in fact["what"])
    assert (world.evidence / receipt).exists()


@pytest.mark.proof
@pytest.mark.parametrize("start", STARTS)
def test_next_alone_ends_every_start(start: str, fast_at: At) -> None:
    world = fast_at(start)
    count, seen = 0, set()
    while world.books():
        document = told(world)
        assert document["command"] not in seen, f"{document['command']} is named again"
        seen.add(document["command"])
        if "sweepctl wait" in document["command"]:
            world.release()
        count += typed(world, document)
        assert count <= AT_MOST, seen
    assert told(world)["over"]
