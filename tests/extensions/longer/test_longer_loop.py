"""A cell that begins from another one, typed as a user types it, on the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.commands import ok
from tests.engine.harness import Stack

RUN = "python train.py --seed {seed} --out {out} && cp {checkpoints}/metrics.json {out}/begun.json || true"


def longer(sweep: dict[str, Any]) -> None:
    sweep["cells"]["add"] = [{"name": "longer", "seed": 7, "from": "seed0"}]
    sweep["job"]["run"] = RUN


def pulled(stack: Stack, cell: str, file: str) -> Any:
    return json.loads((Path(stack.evidence) / "cells" / cell / file).read_text())


def test_a_longer_cell_waits_begins_from_the_verified_copy_and_its_box_ends(make_stack: Callable[..., Stack]) -> None:
    """It waits in words while its source is not verified; `up` brings it then, and its own copy lets its box go."""
    stack = make_stack(cells=("seed0",), boxes=("box-0", "box-1"))
    stack.edit_config(longer)
    preview = ok(stack.pulumi("preview"))
    assert "cells of each box: box-0 2" in preview.text, str(preview)
    assert "box box-1: not rented: no cell" in preview.text, str(preview)
    up = ok(stack.up())
    assert "longer waits for seed0: it is not verified yet" in up.text.replace("\n", " "), str(up)
    stack.wait_done()
    stack.wait_idle()
    (way, *_) = stack.sweepctl("status", "--json").json()["next"]
    assert way.startswith("sweepctl pull "), way
    ok(stack.sweepctl("pull"))
    told = stack.verify()
    assert told["verified"] == 1
    assert told["next"] == [f"pulumi up --stack {stack.name}    (starts what begins from a verified cell)"]
    preview = ok(stack.pulumi("preview"))
    assert "longer begins from seed0, as verified (" in preview.text.replace("\n", " "), str(preview)
    refused = stack.destroy()
    assert refused.rc, str(refused)
    ok(stack.up())
    stack.cells = ("seed0", "longer")
    stack.run_loop()
    assert pulled(stack, "longer", "begun.json") == pulled(stack, "seed0", "metrics.json")
    begun = pulled(stack, "longer", "manifest.json")["from"]
    shown = ok(stack.sweepctl("show", "longer")).text
    assert begun["cell"] == "seed0"
    assert f"seed0, manifest {begun['manifest']}" in " ".join(shown.split()), shown
    ok(stack.destroy())
    assert stack.native_ids() == []
