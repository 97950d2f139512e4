"""`sweepctl provenance`: what produced a copy, and whether it is the one that was verified."""

from __future__ import annotations

import shutil

from sweepstack.cli.output import plain
from sweepstack.core.printable import visible
from tests.unit.cli.support import CODE, World


def test_what_produced_a_copy(world: World) -> None:
    *_, receipt = world.verified()
    assert receipt
    found = world.run("provenance", "lr0.1", "--json")
    assert found.code == 0
    assert found.json["verified"] is True
    assert (found.json["cell"], found.json["code"], found.json["params"]) == ("lr0.1", CODE, {"lr": 0.1})
    assert [file["path"] for file in found.json["files"]] == ["metrics.json", "log.txt"]
    text = world.run("provenance", "lr0.1").out
    for word in (CODE, "lr=0.1", "train.py", "generation 1, attempt 1", "metrics.json", "next   sweepctl results"):
        assert word in text, text


def test_a_copy_that_nobody_verified(world: World) -> None:
    first, _, _ = world.verified()
    first.seal("lr0.1", attempt=2, files={"metrics.json": b'{"loss": 0.5}'})
    world.run("pull")
    before = world.run("provenance", "lr0.1", "--json").json
    assert (before["verified"], before["attempt"]) == (True, 1), "that one is the result until then"
    shutil.rmtree(world.evidence / ".superseded")
    found = world.run("provenance", "lr0.1", "--json")
    assert found.code == 1
    assert found.json["verified"] is False
    assert found.json["attempt"] == 2


def test_no_copy(world: World) -> None:
    world.full()
    missing = world.run("provenance", "lr0.1")
    assert missing.code == 1
    assert "sweepctl pull" in missing.err
    other = world.run("provenance", "lr0.11")
    assert other.code == 1
    assert 'did you mean "lr0.1"' in other.err


def test_what_cannot_be_seen_in_a_name_is_shown() -> None:
    """A name from a box can't turn the line around, nor hide in another one."""
    assert plain("model\u202egnp.pt\u200b\x1b[2J\tb\n") == "model\\u{202e}gnp.pt\\u{200b}\\u{1b}[2J\tb\n"
    assert visible("é 好 ü\n") == "é 好 ü\\u{a}"
