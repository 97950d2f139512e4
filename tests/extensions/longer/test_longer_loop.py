"""Cells that begin from others, typed as a user types it, on the real engine: by hand, and by `tend`."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import COMMAND_SECONDS, ok
from tests.engine.harness import Stack

RUN = "python train.py --seed {seed} --out {out} && cp {checkpoints}/metrics.json {out}/begun.json || true"
CHAIN = ("seed0", "longer", "longest")


def longer(sweep: dict[str, Any]) -> None:
    sweep["cells"]["add"] = [
        {"name": "longer", "seed": 7, "from": "seed0"},
        {"name": "longest", "seed": 8, "from": "longer"},
    ]
    sweep["job"]["run"] = RUN


def pulled(stack: Stack, cell: str, file: str) -> Any:
    return json.loads((Path(stack.evidence) / "cells" / cell / file).read_text())


def begun_as_it_says(stack: Stack) -> None:
    """Each cell of the chain began from the verified copy of the one before it."""
    for source, cell in pairwise(CHAIN):
        assert pulled(stack, cell, "begun.json") == pulled(stack, source, "metrics.json")
        assert pulled(stack, cell, "manifest.json")["from"]["cell"] == source


def test_a_longer_cell_waits_begins_from_the_verified_copy_and_its_box_ends(make_stack: Callable[..., Stack]) -> None:
    """It waits in words while its source is not verified; `up` brings it then, and `tend` what begins from that; their
    own copies let the box go."""
    stack = make_stack(cells=("seed0",), boxes=("box-0", "box-1"))
    stack.edit_config(longer)
    preview = ok(stack.pulumi("preview"))
    assert "cells of each box: box-0 3" in preview.text, str(preview)
    assert "box box-1: not rented: no cell" in preview.text, str(preview)
    up = ok(stack.up())
    assert "longer waits for seed0: it is not verified yet" in up.text.replace("\n", " "), str(up)
    stack.wait_done()
    stack.wait_idle()
    (way,) = stack.sweepctl("status", "--json").json()["next"]
    assert way.startswith("sweepctl tend "), way
    ok(stack.sweepctl("pull"))
    told = stack.verify()
    assert told["verified"] == 1
    assert told["next"] == [f"pulumi up --stack {stack.name}    (starts what begins from a verified cell)", way]
    refused = stack.destroy()
    assert refused.rc, str(refused)
    up = ok(stack.up())
    assert "longer begins from seed0, as verified (" in up.text.replace("\n", " "), str(up)
    tend = ok(stack.sweepctl("tend", "--interval", "1s", "--timeout", "5m"))
    assert "1 cell may begin now" in tend.out, str(tend)
    begun_as_it_says(stack)
    begun = pulled(stack, "longer", "manifest.json")["from"]
    shown = ok(stack.sweepctl("show", "longer")).text
    assert f"seed0, manifest {begun['manifest']}" in " ".join(shown.split()), shown
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []


@pytest.mark.proof  # what a round decides: test_tend.py
def test_a_tend_that_is_killed_again_and_again_loses_no_cell_and_starts_none_twice(
    make_stack: Callable[..., Stack],
) -> None:
    """`kill -9` at any moment, with a second one beside it; an `up` that it had begun goes on by itself."""
    stack = make_stack(cells=("seed0",), boxes=("box-0",))
    stack.edit_config(longer)
    ok(stack.up())
    chance = random.Random(34)
    words = ("tend", "--interval", "1s", "--timeout", "5m", "--stack", stack.name)
    for _ in range(12):
        first, second = (stack.start("sweepctl", *words) for _ in range(2))
        time.sleep(chance.uniform(0.5, 8.0))  # any moment is as good as another: nothing is awaited
        first.send_signal(signal.SIGKILL)
        second.send_signal(signal.SIGKILL)
        first.wait(COMMAND_SECONDS)
        second.wait(COMMAND_SECONDS)
    ok(stack.sweepctl(*words[:-2]))
    begun_as_it_says(stack)
    assert stack.started() == sorted(CHAIN)
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
