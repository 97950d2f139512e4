"""What is known of a search's cells once the box that ran them is gone."""

from __future__ import annotations

import json

from sweepstack.core.records import Cell
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.evidence.search_log import append
from tests.unit.cli.support import World, by_name

WHY = Step(kind="pruned", cell="s1", rule="asha", rung=1, x=1, value=2, bound=1, among=2, metric="loss")


def test_a_stop_is_told_with_its_numbers_also_where_what_the_cell_wrote_is_lost(world: World) -> None:
    """s0 ran and is lost, s1 was stopped; nothing was pulled. The decision is in the log, and not on the box."""
    drawn = [Step(kind="suggested", cell=f"s{number}", number=number, params={"lr": number}) for number in range(2)]
    came = [Step(kind="reached", cell=f"s{n}", rung=1, x=1, value=n + 1, metric="loss") for n in range(2)]
    append(world.store.objects, SearchLog(), [*drawn, *came, WHY])
    cell = World.cell
    world.monkeypatch.setattr(
        World,
        "cell",
        lambda it, name: Cell(name=name, params={"lr": int(name[1:])}) if name[0] == "s" else cell(it, name),
    )
    world.lrs = "[7]}\n      add: [{name: s0, lr: 0}, {name: s1, lr: 1}]  # "
    box = world.add()
    world.up_roster = world.file_roster()
    box.launch("s0", "s1")
    box.start("s0")
    box.start("s1")
    world.write_stack_file(drop=json.dumps({"s1": WHY.why}))
    world.up()
    box.log("cell-dropped", cell="s1", reason=WHY.why)
    assert world.run("status").code == 0  # which keeps its journal
    box.vanish()
    cells = by_name(world.run("status", "--json").json["cells"])
    assert (cells["s0"]["state"], cells["s1"]["state"]) == ("lost", "pruned")
    assert cells["s1"]["note"] == WHY.why
    assert f"pruned   s1: {WHY.why}" in " ".join(world.run("results").out.split("\n         "))
    assert "its log was on box box-0, which is gone" in " ".join(world.run("logs", "s1").err.split())
    shown = world.run("show", "s1")
    assert (shown.code, f"s1 has no sealed copy: {WHY.why}" in " ".join(shown.err.split())) == (1, True), shown.err
