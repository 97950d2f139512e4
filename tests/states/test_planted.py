"""Dead ends that are put into the real code on purpose: each has to be found, and called what it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutants.model import Patch
from tests.states import losses
from tests.states.fast import Fast
from tests.states.following import DeadEnd, Walk
from tests.states.starts import STARTS

ROOT = Path(__file__).resolve().parents[2]
FOLLOWING = "sweepstack/status/next_commands.py"
WAYS = "sweepstack/teardown/refusal.py"
ALLOWED = '    Row("every box may end", lambda now: not now.locked, _of_cleared),\n'
UP = 'lambda now: [f"pulumi up --stack {now.stack}"]'


@dataclass(frozen=True)
class Planted:
    """What is broken, and the state in which a person meets it."""

    patches: tuple[Patch, ...]
    loss: tuple[str, ...] = ()
    start: str = "cleared"


PLANTED = {
    "more than three": Planted(
        # A sweep that may end is told to go on: `up` works, changes nothing, and is named again.
        (Patch(FOLLOWING, "if died else [end]", 'if died else [f"pulumi up --stack {now.stack}"]'),)
    ),
    "repeats what failed": Planted(
        # Without evidence a person is sent to the destroy, which is refused, and the refusal names no other way.
        (
            Patch(FOLLOWING, "    if not now.locked:\n        return [f", "    if True:\n        return [f"),
            Patch(
                FOLLOWING,
                "    if not unseen:\n",
                "    if True:\n        return sure_first(named)\n    if not unseen:\n",
            ),
            Patch(
                "sweepstack/teardown/refusal.py",
                "    if verdict.launched is None and not verdict.folder_lost:\n",
                '    if True:\n        return [("next", destroy)]\n    if verdict.launched is None:\n',
            ),
        ),
        ("evidence: gone",),
        "finished",
    ),
    "rents for a finished sweep": Planted(
        # All is verified and its box is gone; the way on rents another one.
        (
            Patch(
                FOLLOWING,
                '    return [*released, *asked, *_of_volumes(snapshot), f"sweepctl results --stack {stack}"]\n',
                '    return [f"pulumi up --stack {stack}"]\n',
            ),
            Patch(
                FOLLOWING,
                ALLOWED,
                f'    Row("", lambda now: all(one.gone for one in now.boxes), {UP}),\n{ALLOWED}',
            ),
            Patch(
                "components/sweep.py", "for box in fleet.boxes if box.name in shares.cells)", "for box in fleet.boxes)"
            ),
        ),
        ("boxes: deleted by hand",),
    ),
    "gives up without need": Planted(
        # A crash, and nothing in the way of the `up` that resumes: its box is offered to be given up, too.
        (Patch(WAYS, "    return others if any(", "    return named if any("),),
        start="cut",
    ),
    "loses first": Planted(
        # What gives a box up stands before the look of who can bring the evidence back.
        (Patch(FOLLOWING, 'then nothing is lost)", *ways]', 'then nothing is lost)", *ways][::-1]'),),
        ("marker: gone",),
        "finished",
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_it_fits(kind: str) -> None:
    for patch in PLANTED[kind].patches:
        patch.text(ROOT)


FIRST, *OTHERS = PLANTED  # `make test` plays FIRST ("more than three"), `make proof` all of them


@pytest.mark.parametrize("kind", [FIRST, *(pytest.param(other, marks=pytest.mark.proof) for other in OTHERS)])
def test_it_is_found(kind: str, new_fast: Fast) -> None:
    planted = PLANTED[kind]
    for patch in planted.patches:
        patch.apply(new_fast.checkout)
    for name in ("cut",) if planted.start == "cut" else ("finished", "cleared"):
        STARTS[name].prepare(new_fast)
        if name == planted.start:
            break
    losses.bring(new_fast, *planted.loss)
    with pytest.raises(DeadEnd) as found:
        Walk(new_fast, STARTS[planted.start].settled, passes=new_fast.release).to_the_end()
    assert found.value.kind == kind, str(found.value)
