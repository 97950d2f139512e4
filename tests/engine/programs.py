"""Programs that use sweepstack's resources without its components, as an adversary would write them."""

from __future__ import annotations

import json
import textwrap

from sweepstack.core.spelling import inside
from tests.engine.commands import ok
from tests.engine.harness import Stack

BASE = '''
import json
from pathlib import Path

import pulumi
from pulumi import ResourceOptions as Options

from sweepstack.core.records import Cell
from sweepstack.core.roster import Roster
from sweepstack.core.spelling import camel, outside

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
"""Where things are; after the first `up` also `box`: native_id, account, generation as literals."""
LITERAL = SETTINGS.get("box", {})
CELLS = [Cell(name=name, params={"seed": int(name.removeprefix("seed"))}) for name in SETTINGS["cells"]]
ROSTER = Roster(cells=tuple(CELLS), dropped={}).digest
TEARDOWN = {"verb": "destroy", "kills": ["scratch", "data"], "keeps": ["durable"]}


class Resource(pulumi.CustomResource):
    """Any of sweepstack's resources, by type, with the outputs that are asked of it."""

    def __init__(self, kind, name, inputs, outputs=(), opts=None):
        token = f"sweepstack:index:{kind}"
        super().__init__(token, name, outside(token, {**inputs, **dict.fromkeys(outputs)}), opts)
        for output in outputs:
            setattr(self, output, getattr(self, camel(output)))


def identity():
    where = {"project": "attack", "stack": pulumi.get_stack(), "pull_to": SETTINGS["evidence"]}
    return Resource("Identity", "identity", where, ("identity", "evidence"))


def volume(i):
    inputs = {"identity": i.identity, "evidence": i.evidence, "adapter": SETTINGS["adapter"], "name": "store"}
    return Resource("Volume", "store", inputs, ("native_id",))


def box(i, v, opts=None, resource_name="a", **changed):
    inputs = {
        "identity": i.identity,
        "evidence": i.evidence,
        "adapter": SETTINGS["adapter"],
        "name": "a",
        "resources": {"cpu": 1},
        "price_per_hour": 1.25,
        "mounts": {"mnt/durable": v.native_id},
        "roster_digest": ROSTER,
        "teardown": TEARDOWN,
    }
    return Resource("Box", resource_name, inputs | changed, ("native_id", "account", "generation"), opts)


def of(b):
    """What queue and gate say of their box: from the resource, or as literals when there is none."""
    if b is None:
        return {"box": LITERAL["native_id"], "account": LITERAL["account"], "generation": LITERAL["generation"]}
    return {"box": b.native_id, "account": b.account, "generation": b.generation}


def queue(i, b, opts=None, resource_name="a-queue", **changed):
    from sweepstack.core.workdir import collect

    inputs = {
        "identity": i.identity,
        "evidence": i.evidence,
        "stack": pulumi.get_stack(),
        "adapter": SETTINGS["adapter"],
        "box_name": "a",
        **of(b),
        "roster_digest": ROSTER,
        "teardown": TEARDOWN,
        "job": {
            "run": "python train.py --seed {seed} --out {out}",
            "workdir": SETTINGS["job"],
            "env": {"DRILL_CONTROL": SETTINGS["control"]},
            "slots": SETTINGS["slots"],
            "code": collect(Path(SETTINGS["job"]), ()).digest,
        },
        "cells": [{"name": c.name, "params": {k: json.dumps(p) for k, p in c.params.items()}} for c in CELLS],
        "artifacts": [{"path": "model.safetensors", "load": "safetensors", "keys": ["w1"]}],
    }
    return Resource("Queue", resource_name, inputs | changed, ("launched_at",), opts)


def gate(i, b, opts=None, resource_name="a-gate", **changed):
    inputs = {
        "identity": i.identity,
        "evidence": i.evidence,
        "adapter": SETTINGS["adapter"],
        "box_name": "a",
        **of(b),
        "roster_digest": ROSTER,
        "teardown": TEARDOWN,
    }
    return Resource("Gate", resource_name, inputs | changed, (), opts)
'''

WHOLE = """
from base import *
i = identity()
v = volume(i)
b = box(i, v, Options(delete_before_replace=True))
q = queue(i, b)
g = gate(i, b, Options(depends_on=[q]))
"""


def write_program(stack: Stack, text: str) -> None:
    """Puts `text` into the project as its program."""
    (stack.project / "__main__.py").write_text(textwrap.dedent(text).lstrip())


def become_program(stack: Stack, *, slots: int = 1) -> None:
    """Makes `stack` a project of its own beside the checkout, whose plugin it uses, with the whole program."""
    stack.project = stack.base / "program"
    stack.project.mkdir()
    (stack.project / "Pulumi.yaml").write_text(
        textwrap.dedent(f"""\
        name: attack
        runtime: python
        plugins:
          providers:
            - name: sweepstack
              path: {stack.checkout / "sweepstack" / "provider"}
        options:
          refresh: always
        """)
    )
    (stack.project / "base.py").write_text(BASE)
    write_settings(stack, slots=slots)
    write_program(stack, WHOLE)
    stack.env["PYTHONPATH"] = f"{stack.checkout}:{stack.env['PYTHONPATH']}"
    ok(stack.run("pulumi", "stack", "init", stack.name, "--non-interactive"))


def write_settings(stack: Stack, *, slots: int = 1, with_box: bool = False) -> None:
    """What the program reads; `with_box`: with the box's facts from the state, for programs that name it literally."""
    settings = {
        "adapter": stack.adapter,
        "evidence": str(stack.evidence),
        "job": str(stack.job),
        "control": str(stack.control),
        "cells": list(stack.cells),
        "slots": slots,
    }
    if with_box:
        (outputs, *_) = (inside(one["type"], one["outputs"]) for one in stack.resources("Box"))
        settings["box"] = {key: outputs[key] for key in ("native_id", "account", "generation")}
    (stack.project / "settings.json").write_text(json.dumps(settings))
