"""`sweepctl show CELL`: what produced a copy, and whether it is the one that was verified."""

from __future__ import annotations

import shutil

from sweepstack.cli.output import plain
from sweepstack.core.printable import visible
from tests.unit.cli.support import World


def test_a_copy_that_nobody_verified(world: World) -> None:
    first, _, _ = world.verified()
    first.seal("lr0.1", attempt=2, files={"metrics.json": b'{"loss": 0.5}'})
    world.run("pull")
    before = world.run("show", "lr0.1", "--json").json
    assert (before["verified"], before["attempt"]) == (True, 1), "that one is the result until then"
    shutil.rmtree(world.evidence / ".superseded")
    found = world.run("show", "lr0.1", "--json")
    assert found.code == 1
    assert found.json["verified"] is False
    assert found.json["attempt"] == 2


def test_what_cannot_be_seen_in_a_name_is_shown() -> None:
    """A name from a box can't turn the line around, nor hide in another one."""
    assert plain("model\u202egnp.pt\u200b\x1b[2J\tb\n") == "model\\u{202e}gnp.pt\\u{200b}\\u{1b}[2J\tb\n"
    assert visible("é 好 ü\n") == "é 好 ü\\u{a}"
