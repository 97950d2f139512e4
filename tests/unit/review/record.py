"""Records the documents of the golden reviews: `python -m tests.unit.review.record`, some minutes with the real engine.

Each kind of change is made in a sweep on the local platform, and asked for as `sweepctl review` does: the engine's
preview and the picture of the sweep are kept (`golden/NAME.json`), without what no review reads. Then the reviews are
written (beside it, as Markdown), to be read by a person; `python -m tests.unit.review.record words` does that alone. A
name as a further argument records those whose names begin with it.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sweepstack.review.assess import assess
from sweepstack.review.markdown import markdown
from sweepstack.review.model import Review
from sweepstack.review.plan import SAME, read_plan
from tests.engine.commands import ROOT, ok
from tests.engine.harness import Stack
from tests.engine.test_volumes import Keeper
from tests.unit.review.pictures import of_document

ACCOUNT = {"RUNPOD_API_KEY": "a key of no account"}
"""A move to a platform is refused before it is asked for anything."""
GOLDEN = Path(__file__).parent / "golden"
READ = ("id", "inputs", "outputs")
Scene = Callable[["Recorder", Stack], None]


class Recorder:
    """Writes the documents. `only`: the beginning of the names that are wanted."""

    def __init__(self, only: str) -> None:
        self.only = only

    def take(self, name: str, stack: Stack, *, destroy: bool = False, of: str = "") -> None:
        """Asks for a review and keeps what it is made of. `of`: another stack of the same checkout."""
        if not name.startswith(self.only):
            return
        words = ("-m", "tests.unit.review.capture", of or stack.name, "yes" if destroy else "no")
        found = ok(stack.run("python", *words, env={"PYTHONPATH": str(ROOT), **ACCOUNT})).json()
        found["destroy"] = destroy
        found["document"] = trimmed(found["document"])
        text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        text = text.replace(str(stack.base), "/home/ada").replace(socket.gethostname(), "laptop")
        (GOLDEN / f"{name}.json").write_text(text + "\n")
        print(name, flush=True)


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    """The document without what no review reads: states of what stays the same, places in the program, durations."""
    steps = []
    for entry in document["steps"]:
        step = {key: entry[key] for key in ("op", "urn", "diffReasons") if key in entry}
        same = entry["op"] in SAME and (
            entry["op"] != "same" or _inputs(entry, "oldState") == _inputs(entry, "newState")
        )
        for key in ("oldState", "newState") if not same else ():
            step[key] = {name: entry.get(key, {})[name] for name in READ if name in entry.get(key, {})}
        steps.append(step)
    said = [{key: one[key] for key in ("urn", "message", "severity") if key in one} for one in document["diagnostics"]]
    return {"steps": steps, "diagnostics": said}


def _inputs(entry: dict[str, Any], of: str) -> Any:
    return entry.get(of, {}).get("inputs")


def of_a_finished_sweep(take: Recorder, stack: Stack) -> None:
    """Four cells are sealed on two boxes; nothing is verified, nothing approved."""
    stack.write_config()
    stack.init()
    take.take("new", stack)
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    ok(stack.up())  # what a refresh writes once is written now
    stack.save("finished")
    take.take("nothing", stack)
    take.take("destroy-none-verified", stack, destroy=True)
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "add-cells": lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2, 3, 4, 5]),
        "change-started-cell": lambda sweep: sweep["cells"].update(base={"width": 2}),
        "grow": lambda sweep: (
            sweep["cells"]["grid"].update(seed=[*range(12)]),
            sweep["boxes"].update({"box-2": {"want": "running"}}),
        ),
        "shrink-locked": lambda sweep: sweep["boxes"].update({"box-1": {"want": "gone"}}),
        "swap-locked": lambda sweep: sweep["boxes"].update({"box-1": {"want": "running", "resources": {"cpu": 2}}}),
        "move-platform": lambda sweep: (
            sweep.update(candidates=["runpod"], overrides={}, lease="2h", when_done="keep", budget={"usd": 60}),
            sweep["job"].update(image="org/image:1", resources={"gpu": {"name": ["A100"], "count": 1}, "disk": "50GB"}),
        ),
        "drop": lambda sweep: sweep["cells"].update(drop={"seed3": "it adds nothing"}),
        "take-out": lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2]),
        "stop": lambda sweep: sweep["boxes"].update({"box-1": {"want": "stopped"}}),
        "policy-broken": lambda sweep: (
            sweep.update(max_price=1.0),
            sweep["boxes"].update({"box-2": {"want": "running"}}),
        ),
    }
    for name, change in changes.items():
        stack.restore("finished")
        stack.edit_config(change)
        take.take(name, stack)
    stack.restore("finished")
    ok(stack.sweepctl("give-up", "data/box-1", "--reason", "its cells were a mistake"))
    ok(stack.up())
    take.take("destroy-abandoned", stack, destroy=True)
    stack.restore("finished")
    stack.vanish("box-1")
    take.take("vanished", stack)


def of_a_verified_sweep(take: Recorder, stack: Stack) -> None:
    """All is pulled and verified; then parts of it are approved."""
    stack.write_config()
    stack.init()
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    stack.verify()
    stack.save("verified")
    take.take("destroy-verified-not-approved", stack, destroy=True)
    (copy,) = stack.evidence.glob("cells/seed3/model.safetensors")
    copy.write_bytes(copy.read_bytes()[:-1])
    take.take("destroy-some-verified", stack, destroy=True)
    stack.restore("verified")
    stack.approve("--box", "box-1")
    take.take("destroy-approved-not-up", stack, destroy=True)
    stack.edit_config(lambda sweep: sweep["boxes"].update({"box-1": {"want": "gone"}}))
    take.take("shrink-cleared", stack)
    stack.restore("verified")
    stack.approve()
    take.take("approve", stack)
    ok(stack.up())
    take.take("destroy-all-verified", stack, destroy=True)
    stack.edit_config(lambda sweep: sweep["boxes"].update({"box-1": {"want": "running", "resources": {"cpu": 2}}}))
    take.take("swap-cleared", stack)
    for name, change in CHANGES.items():
        stack.restore("verified")
        change(stack)
        take.take(name, stack)
    stack.restore("verified")
    policy = stack.checkout / "policy.yaml"
    policy.write_text("max_price_per_hour: 20.00\n")
    ok(stack.up())
    policy.write_text("max_price_per_hour: 10.00\n")
    take.take("policy-stricter", stack)
    policy.unlink()
    stack.restore("verified")
    stack.approve("--expires", "20s")
    ok(stack.up())
    over = datetime.now(UTC) + timedelta(seconds=20)
    stack.wait_for(lambda: datetime.now(UTC) > over, "the approval to expire")
    take.take("destroy-expired", stack, destroy=True)


def _settings(sweep: dict[str, Any]) -> None:
    sweep.update(budget={"usd": 5000}, when_done="stop", max_price=17.0)
    sweep["overrides"]["local"].update(price_per_hour=9)
    sweep["job"].setdefault("env", {}).update(live="1")


def _new_code(stack: Stack) -> None:
    train = next(stack.checkout.parent.rglob("train.py"))
    train.write_text(train.read_text() + "\n# another\n")


CHANGES: dict[str, Callable[[Stack], object]] = {
    "settings": lambda stack: stack.edit_config(_settings),
    "smoke": lambda stack: stack.edit_config(lambda sweep: sweep["job"].update(smoke={"run": "true"})),
    "new-code": _new_code,
    "retry": lambda stack: ok(stack.sweepctl("retry", "seed1", "--reason", "its curve looks odd")),
}
"""Changes that end nothing and add no cell."""


def of_volumes(take: Recorder, stack: Stack) -> None:
    """A stack of volumes loses one of them."""
    stack.write_config()
    keeper = Keeper(stack)
    ok(keeper.pulumi("up"))
    text = keeper.file.read_text()
    keeper.file.write_text(text.replace("      other: {size: 1GB}\n", ""))
    take.take("volume-removed", stack, of="keep")
    keeper.file.write_text(text)
    take.take("volumes-destroyed", stack, of="keep", destroy=True)
    ok(keeper.approve("data/other", "--reason", "it is empty"))
    take.take("volumes-destroyed-approved", stack, of="keep", destroy=True)


def of_a_policy(take: Recorder, stack: Stack) -> None:
    """A new sweep beside a policy of its project, which it does not keep to."""
    stack.write_config()
    stack.edit_config(lambda sweep: sweep.update(max_price=5.0))
    (stack.checkout / "policy.yaml").write_text("max_price_per_hour: 1.00\nregions: [EU-RO-1]\n")
    stack.init()
    take.take("policy-file-broken", stack)


SCENES: tuple[Scene, ...] = (of_a_finished_sweep, of_a_verified_sweep, of_volumes, of_a_policy)


def recorded() -> Iterator[tuple[str, Review]]:
    """Each golden review, made of its documents."""
    for path in sorted(GOLDEN.glob("*.json")):
        found = json.loads(path.read_text())
        plan = read_plan(found["document"], destroy=found["destroy"])
        yield path.stem, assess(plan, of_document(found["live"]))


def main(only: str = "", scene: str = "") -> None:
    """Records what is asked for, and writes all reviews."""
    GOLDEN.mkdir(exist_ok=True)
    for one in SCENES if only != "words" else ():
        if scene and scene not in one.__name__:
            continue
        with tempfile.TemporaryDirectory(prefix="review-") as folder:
            stack = Stack(Path(folder) / "sweep")
            try:
                one(Recorder(only), stack)
            finally:
                stack.close()
    for name, review in recorded():
        (GOLDEN / f"{name}.md").write_text(markdown(review))


if __name__ == "__main__":
    main(*sys.argv[1:])
