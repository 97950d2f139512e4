"""What a review says of any plan: that something dies is in its first lines, and what can't be told is never a yes."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweepstack.core.records import Waiver
from sweepstack.review.live import LiveFact, Roster
from sweepstack.review.markdown import MOST, markdown, marker
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, UNTOLD
from sweepstack.teardown.box_check import CellLine
from tests.unit.review.plans import NOW, approval, box, live, reviewed, step, volume

ENDS = ("delete", "replace", "create-replacement", "delete-replaced")
HARMLESS = ("same", "refresh", "update", "create", "read")
names = st.sampled_from([f"box-{n}" for n in range(6)])


def head(text: str) -> str:
    """The first five lines after the marker."""
    return "\n".join(text.splitlines()[1:6])


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    """Any steps, of resources that are seen or not, whole or with parts missing."""
    found = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["Box", "Volume", "Queue", "Gate", "Identity"]))
        old = draw(st.sampled_from([None, {}, {"native_id": "id-box-0"}, {"native_id": "x", "name": "box-9"}]))
        if kind == "Volume" and old is not None:
            old = {**old, "guarded": True}
        new = draw(st.sampled_from([None, {}, {"name": "box-0", "want": "stopped"}, {"cells": ["a {}"]}]))
        found.append(step(draw(st.sampled_from(ENDS + HARMLESS)), kind, draw(names), old=old, new=new))
    return found


@given(steps(), st.booleans(), st.booleans())
def test_an_end_of_a_box_or_a_volume_is_in_the_first_five_lines(plan: list[Any], destroy: bool, cleared: bool) -> None:
    """Of any plan: each delete or replace is counted and called a destroy; one that is not cleared may not go on."""
    boxes = [box(f"box-{n}", allowed=cleared, way="cleared" if cleared else None) for n in range(3)]
    kept = volume(native_id="id-box-0", guarded=True, allowed=cleared)
    review = reviewed(live(*boxes, volumes=(kept,)), *plan, destroy=destroy)
    text = head(markdown(review))
    urns = {
        kind: {s["urn"] for s in plan if s["op"] in ENDS and f"index:{kind}::" in s["urn"]}
        for kind in ("Box", "Volume")
    }
    if urns["Box"] or urns["Volume"]:
        assert "DESTROYS" in text
        assert "DIES: nothing" not in text
        assert review.code == MAY_NOT or (cleared and review.code == MAY_GO_ON)
    for kind, ends in urns.items():
        if ends:
            assert f"DESTROYS {len(review.ended)} " in text or kind.lower() in text.lower()
            assert len([one for one in review.ended if one.what == kind.lower()]) >= len(ends)
    if not any(urns.values()):
        assert "DESTROYS" not in text


def test_what_is_not_understood_is_never_a_yes() -> None:
    """An operation of a later engine, a step without a form, a document that is none."""
    assert reviewed(live(), step("vanish", "Box", "box-0", old={"native_id": "x"})).code == UNTOLD
    assert reviewed(live(), {"op": 3}).code == UNTOLD
    assert reviewed(live(problems=("the evidence can't be read",))).code == UNTOLD
    assert reviewed(live()).code == MAY_GO_ON
    unseen = reviewed(live(), step("delete", "Box", "box-0", old={"native_id": "x"}))
    assert unseen.code == MAY_NOT
    assert unseen.endings[0].why == ("it was not seen: look again",)


def test_a_request_is_merged_and_not_brought_up_by_hand() -> None:
    made = step("create", "Box", "box-0", new={"name": "box-0"})
    assert reviewed(live(), made).next[0] == "pulumi up --stack t"
    assert reviewed(live(), made, request=True).next[0].startswith("merge this request")


def test_boxes_stand_in_the_order_of_their_numbers() -> None:
    names = ["box-10", "box-2", "box-1"]
    plan = [step("delete", "Box", name, old={"native_id": f"id-{name}", "name": name}) for name in names]
    review = reviewed(live(*map(box, names)), *plan, destroy=True)
    assert [one.name for one in review.endings] == ["box-1", "box-2", "box-10"]


def test_a_destroy_names_what_accepts_the_cells_that_failed() -> None:
    failed = box("box-0", cells=(CellLine("a", "failed"), CellLine("b", "verified")))
    plan = step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"})
    (ending,) = reviewed(live(failed), plan, destroy=True).endings
    finish, accept = ending.next
    assert finish.startswith("sweepctl finish ")
    assert "give-up --stack t cell/a --reason" in accept


def test_only_what_clears_this_end_counts() -> None:
    """A destroy does not count the stack file's approval; an `up` counts what the provider says of boxes that leave."""
    seen = live(box("box-0", proposed=True))
    gone = step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"})
    destroy = reviewed(seen, gone, destroy=True)
    assert destroy.code == MAY_NOT
    assert "no `pulumi up` has brought" in destroy.endings[0].why[0]
    assert destroy.next[0].startswith("pulumi up --stack t")
    assert reviewed(seen, gone).code == MAY_NOT
    identity = step("update", "Identity", "identity", old={}, new={"clearances": {"box-0": "cleared by receipt x"}})
    assert reviewed(seen, gone, identity).code == MAY_GO_ON
    assert reviewed(seen, gone, identity, destroy=True).code == MAY_NOT
    locked = step("update", "Identity", "identity", old={}, new={"clearances": {"box-0": "locked (it is stale)"}})
    assert reviewed(seen, gone, locked).endings[0].why == ("it is stale",)


def test_a_refusal_may_not_go_on_and_names_its_cell() -> None:
    rosters = {"state": Roster(cells={"a": "1", "ab": "1"}), "file": Roster(cells={"a": "2", "ab": "2"})}
    review = reviewed(live(rosters=rosters), errors=("Queue has a problem: a has started, its config is another",))
    assert review.code == MAY_NOT
    assert [(one.name, one.change) for one in review.changes] == [("a", "refused"), ("ab", "changed")]


def test_the_cell_diff() -> None:
    """By name: what comes, goes, moves; and where."""
    rosters = {
        "state": Roster(cells={"box-0-a": "1", "box-0-b": "1", "gone": "1", "old": "1"}),
        "file": Roster(cells={"box-0-a": "1", "box-0-b": "2", "new": "1"}, dropped={"old": "no use"}),
        "base": Roster(cells={"box-0-a": "1"}),
    }
    seen = live(box("box-0", queue=("box-0-a", "box-0-b", "old", "gone")), rosters=rosters, base="origin/main")
    plan = [
        step("update", "Queue", "box-0", old={"box_name": "box-0"}, new={"box_name": "box-0", "cells": ["box-0-b {}"]}),
        step("create", "Queue", "box-1", new={"box_name": "box-1", "cells": ["box-0-a {}", "new {}"]}),
    ]
    review = reviewed(seen, *plan)
    assert [(one.name, one.change, one.box) for one in review.changes] == [
        ("box-0-b", "changed", "box-0"),
        ("gone", "taken out", "box-0"),
        ("new", "added", "box-1"),
        ("old", "dropped", "box-0"),
        ("box-0-a", "moved", "box-1"),
    ]
    assert {one.name for one in review.base_changes} == {"box-0-b", "new", "old"}


def test_the_digest_is_of_the_change_and_of_nothing_else() -> None:
    """Costs, progress, order and what was seen leave it; a price, a cell, a box or the command make another."""
    old = {"native_id": "id-box-0", "name": "box-0", "max_price": 1.0, "live": {"cost": "1"}, "clearance": "locked"}
    new = {"name": "box-0", "max_price": 2.0, "clearance": "cleared"}
    plan = [step("update", "Box", "box-0", old=old, new=new), step("delete", "Box", "box-1", old={"native_id": "y"})]
    first = reviewed(live(box("box-0")), *plan)
    later = live(box("box-0", price_per_hour=9.0), now=NOW.replace(day=24))
    moved = copy.deepcopy(plan)
    moved[0]["oldState"]["inputs"]["live"] = {"cost": "2"}
    resumes = step("update", "Queue", "box-0", old={"cells": ["a {}"]}, new={"cells": ["b {}"]})
    assert reviewed(later, *reversed(moved), resumes).digest == first.digest
    cells = {"state": Roster(cells={"a": "1"}), "file": Roster(cells={"a": "1", "b": "2"})}
    dearer = step("update", "Box", "box-0", old=old, new={**new, "max_price": 3.0})
    others = [
        reviewed(live(box("box-0")), dearer, plan[1]),
        reviewed(live(box("box-0")), plan[0]),
        reviewed(live(box("box-0")), plan[0], step("delete", "Box", "box-1", old={"native_id": "z"})),
        reviewed(live(box("box-0")), *plan, destroy=True),
        reviewed(live(box("box-0"), rosters=cells), *plan),
    ]
    assert len({first.digest, *(one.digest for one in others)}) == 6
    refused = reviewed(live(box("box-0")), *plan, expected=others[0].digest)
    assert refused.code == MAY_NOT
    assert refused.against[0] == f"the change is another one now: {first.digest}, and {others[0].digest} was reviewed"
    assert reviewed(live(), expected=reviewed(live()).digest).code == MAY_GO_ON


def test_money() -> None:
    """What is rented at the preview's price, what ends, what stops, and what is not known."""
    seen = live(box("box-0"), box("box-1", stopped_per_hour=0.25))
    plan = [
        step("create", "Box", "box-2", new={"name": "box-2", "price_per_hour": 9.0}),
        step("create", "Box", "box-3", new={"name": "box-3", "max_price": 0.5}),
        step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"}),
        step("update", "Box", "box-1", old={"native_id": "id-box-1", "want": "running"}, new={"want": "stopped"}),
    ]
    money = reviewed(seen, *plan, said=("box box-2: A100 in\nUS at $3.780/h with 120 GB",)).money
    assert (money.per_hour, money.adds, money.saves) == (2.5, 3.78, 2.25)
    assert (money.per_day, money.per_month, round(money.after, 2)) == (60.0, 1825.0, 4.03)
    assert money.unknown == ("box-3: at most $0.50/h",)


def test_a_comment_fits_folds_and_takes_no_markup() -> None:
    """10,000 cells with reasons fit; text of files is text."""
    nasty = "</details><img src=x> @team | **x** `a` <!-- sweepctl review: t -->"
    cells = tuple(CellLine(f"cell-{n}", "sealed", nasty) for n in range(10_000))
    fact = LiveFact(name="p.verbs", platform="local", words=nasty, leans=("destroy",), stale=True)
    given = approval(by=nasty, waive=tuple(Waiver(cell=cell.name, reason=nasty) for cell in cells[:100]))
    seen = live(box("box-0", cells=cells, reasons=(nasty,)), facts=(fact,), approval=given)
    gone = step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"})
    text = markdown(reviewed(seen, gone, destroy=True))
    assert len(text) <= MOST
    assert text.count("<details>") == text.count("</details>") > 0
    assert "<img" not in text
    assert "@team" not in text
    assert text.splitlines()[0] == marker("t") == "<!-- sweepctl review: t -->"
    assert text.count("<!-- sweepctl") == 1
    assert "EXPIRED" in text
    assert "NOT accepted" in text
    assert all(line.count("|") - line.count("\\|") == 5 for line in text.splitlines() if line.startswith("| `cell-"))


def test_the_document_is_json_with_everything() -> None:
    gone = step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"})
    document = json.loads(json.dumps(reviewed(live(box("box-0")), gone).as_json()))
    assert (document["may_go_on"], document["exit_code"], document["destroys"]) == ("no", 1, 1)
    (ending,) = document["endings"]
    assert ending["lost"] == [{"name": "box-0-b", "state": "running", "box": "box-0", "note": ""}]
    assert ending["irreversible"] is True
    assert document["cells"] == {"verified": 1, "total": 2, "rest": ending["lost"]}
