"""How rented hosts end: by a command of their own, or by a person's step that is put on record.

One journey each, typed, over a real sshd. `shutdown` is a program on the host's PATH that writes down its call and ends
the sshd.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import assert_failed, ok
from tests.rented.host_stack import HostStack
from tests.rented.world import PACE

MOST = 48 << 20
"""Bytes of the 64 MB of such a tier; half of it has to be free."""
NEEDED = 100
"""Inodes that have to be free before a cell starts, where a file system has so few."""


@pytest.fixture
def rent(tmp_path: Path) -> Iterator[Callable[..., HostStack]]:
    """`rent(platform, …)`: a stack on a host that somebody pays for, config written, stack made, not up."""
    with ExitStack() as ends:

        def rented(platform: str, when_done: str, **overrides: Any) -> HostStack:
            stack = HostStack(tmp_path / "sweep")
            ends.callback(stack.end)
            stack.env["SWEEPSTACK_API_PACE"] = PACE
            stack.write_config()
            stack.edit_config(
                lambda sweep: sweep.update(
                    candidates=[platform],
                    budget={"usd": 5},
                    when_done=when_done,
                    lease="none",
                    overrides={platform: {"price_per_hour": 0.35, **overrides}},
                )
            )
            stack.init()
            return stack

        yield rented


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Path]:
    """A surviving tier that is out of files long before it is out of bytes."""
    if os.geteuid() != 0:
        pytest.skip("a file system of its own takes root to mount")
    place = tmp_path / "autodl-fs"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=1000", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def own_python(stack: HostStack) -> str:
    """A Python that lies where the host's `shutdown` does: a runner has the folder of its Python on PATH."""
    host = stack.host
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(host.folder)], check=True)
    return str(host.folder / "bin" / "python")


@pytest.mark.proof  # tests/onbox/test_off.py, test_disk.py, unit/provider/test_host_off.py, cli/test_confirm_gone.py
def test_the_laptop_is_closed_and_the_box_ends_its_own_bill(rent: Callable[..., HostStack], tier: Path) -> None:
    """A tier that runs out of files, and then of bytes, holds the queue up, and says so; with room again it goes on, is
    sealed there, and the box powers its host off. Nobody can tell until it is back; then one command ends it all."""
    stack = rent("autodl", "stop")
    host = stack.host
    there = {
        "stopped_price_per_hour": 0.01,
        "places": {"data": str(stack.base), "scratch": str(stack.base), "durable": str(tier)},
        "network": {"proxy": False, "mirrors": {"huggingface": False}, "caches": {"HF_HOME": False}},
        "python": own_python(stack),
    }
    stack.edit_config(lambda sweep: sweep["overrides"]["autodl"].update(there))
    record = host.install_shutdown()
    stack.hold("seed0")
    ok(stack.up())
    box = stack.box_dir("box-0")
    for number in range(os.statvfs(tier).f_favail - NEEDED // 2):
        (tier / f"somebody-else's-{number}").touch()
    stack.release()
    stack.wait_for(lambda: "queue-blocked" in events(stack), "the queue to be blocked")
    assert events(stack).count("cell-started") == 1
    said = stack.sweepctl("status")
    assert "inodes" in said.text, str(said)
    with (tier / "somebody-else's-bytes").open("wb") as bytes_of_another:
        os.posix_fallocate(bytes_of_another.fileno(), 0, MOST)
    for path in tier.glob("somebody-else's-[0-9]*"):
        path.unlink()
    stack.wait_for(lambda: blocked(stack) == ["inodes", "disk"], "the queue to be blocked by bytes")
    assert events(stack).count("cell-started") == 1

    spec = box / "data/sweep/spec.json"
    facts = json.loads(spec.read_text())
    assert facts["when_drained"]["native"] == "关机", "the box was not told to end its bill"
    spec.write_text(json.dumps(facts | {"off_seconds": 0}))  # nobody waits ten minutes here
    assert not record.exists()
    for path in tier.glob("somebody-else's-*"):
        path.unlink()
    stack.wait_for(lambda: record.exists() and not host.answers, "the box to power its host off")
    assert record.read_text() == "shutdown \n"
    assert events(stack)[-1] == "box-off"
    assert events(stack).count("cell-started") == len(stack.cells)

    unknown = stack.sweepctl("status", "--json").json()
    assert [box["phase"] for box in unknown["boxes"]] == ["unknown"], "silence was taken for an end"
    assert unknown["bills"] == "unknown", unknown["bills"]
    spec.write_text(json.dumps(facts))  # the ten minutes of the product: `finish` takes longer than nothing
    host.start()  # a person, in the console
    yes = [("Type yes to go on", "yes\n")]
    ended = stack.terminal("sweepctl", "finish", "--stack", stack.name, answers=yes)
    assert ended.rc == 1, "关机 leaves the disk billing, and 释放 is a person's"
    assert "bills $0.01/h until it is released: (释放)" in " ".join(ended.text.split()), str(ended)
    assert record.read_text() == "shutdown \n" * 2
    assert not host.answers
    assert ok(stack.sweepctl("status", "--json")).json()["bills"] == "yes"
    audit = stack.run("sweepctl", "audit")
    assert audit.rc == 1, str(audit)
    assert "confirm gone --stack t box-0" in audit.text, str(audit)
    ok(stack.sweepctl("confirm", "gone", "box-0", "--saw", "已释放"))
    assert ok(stack.sweepctl("status", "--json")).json()["bills"] == "nothing"
    ok(stack.run("sweepctl", "audit"))
    assert len(list(tier.glob("sweepstack/*/cells/*/manifest.json"))) == len(stack.cells), "关机 keeps the tier"


def blocked(stack: HostStack) -> list[str]:
    """What the queue has waited for."""
    return [str(entry["why"]) for entry in stack.journal("box-0") if entry["event"] == "queue-blocked"]


def events(stack: HostStack) -> list[str]:
    return [str(entry["event"]) for entry in stack.journal("box-0")]


@pytest.mark.proof
def test_a_person_ends_it_and_the_word_is_kept(rent: Callable[..., HostStack]) -> None:
    """A destroy ends what is ours and names the person's step; the word counts only while nobody answers there."""
    stack = rent("paperspace", "keep", network={"caches": {"HF_HOME": False}})
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    yes = [("Type yes to go on", "yes\n")]
    ended = stack.terminal("sweepctl", "finish", "--stack", stack.name, answers=yes)
    assert ended.rc != 0, str(ended)
    assert "turn the machine off, destroy it" in ended.text, str(ended)
    assert "sweepctl confirm gone" in ended.text, str(ended)
    assert stack.native_ids() == [], "something of ours is left on the host"
    assert len(stack.resources("Box")) == 1, "what bills was forgotten"
    assert stack.sweepctl("status", "--json").json()["bills"] == "yes"

    word = ("confirm", "gone", "box-0", "--saw", "the list is empty")
    refused = stack.sweepctl(*word)
    assert_failed(refused, "box box-0 still answers at", "Nothing was written")
    persons_step = f"sweepctl confirm gone --stack {stack.name} box-0 --saw"
    assert_failed(stack.destroy(), persons_step)
    stack.host.stop()
    assert_failed(stack.destroy(), persons_step)  # silence without a word is no end
    ok(stack.sweepctl(*word))
    ok(stack.destroy())
    assert not stack.state().get("resources")
    ok(stack.run("sweepctl", "audit"))
