"""Cards that are faulty or do nothing: a driver's tool and a kernel's log that answer as theirs do.

The answers are in the form of `nvidia-smi --format=csv,noheader,nounits` (driver 535 to 570) and of the kernel's log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.runner.cards import IDLE_LINES, GpuHealth, xids

TOOL = """#!/bin/sh
case $1 in
*power.draw*) {power};;
*pci.bus_id*) {bus};;
*ecc.errors*) {errors};;
*) echo "Field \\"x\\" is not a valid field to query." >&2; exit 2;;
esac
"""
REFUSED = "echo 'Field \"retired_pages.pending\" is not a valid field to query.'; exit 2"
LOG = "[ 5107.644336] NVRM: Xid (PCI:0000:{where}): {number}, pid='<unknown>', name=<unknown>, {words}"
Tools = Callable[..., str]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Writes the tools of a box, and gives the PATH on which they are."""

    def write(power: str = REFUSED, errors: str = REFUSED, log: str = "exit 1", bus: str = REFUSED) -> str:
        for name, text in (
            ("nvidia-smi", TOOL.format(power=power, errors=errors, bus=bus)),
            ("dmesg", f"#!/bin/sh\n{log}\n"),
        ):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        return str(tmp_path)

    return write


def cards(*utils: int | None) -> list[dict[str, Any]]:
    return [{"index": index, "util": util} for index, util in enumerate(utils)]


def looks(health: GpuHealth, path: str, times: int, *utils: int | None) -> list[str]:
    said: list[str] = []
    for _ in range(times):
        said = health.look(cards(*utils), path)
    return said


def test_u21_a_busy_card_with_the_power_of_an_idle_one_is_told(tools: Tools) -> None:
    """Utilization says that some kernel ran: it may be one that spins, or a card that is stuck."""
    path, health = tools(power="printf '0, 68.41, 400.00\\n1, 391.07, 400.00\\n'"), GpuHealth()
    assert looks(health, path, IDLE_LINES - 1, 100, 100) == []
    (said,) = looks(health, path, 1, 100, 100)
    assert said.startswith("GPU 0 says 100% in use, at 68 of 400 W, an idle card's power")


@pytest.mark.parametrize(("util", "watts"), [(20, "68.41"), (100, "391.07"), (100, "[N/A]"), (None, "68.41")])
def test_u21_idle_or_at_work_or_unknown_is_no_alarm(tools: Tools, util: int | None, watts: str) -> None:
    path = tools(power=f"echo '0, {watts}, 400.00'")
    assert looks(GpuHealth(), path, IDLE_LINES + 1, util) == []


def test_u21_one_busy_look_ends_the_count(tools: Tools) -> None:
    path, health = tools(power="echo '0, 68.41, 400.00'"), GpuHealth()
    looks(health, path, IDLE_LINES - 1, 100)
    looks(health, path, 1, 10)
    assert looks(health, path, IDLE_LINES - 1, 100) == []


def test_u22_memory_errors_that_cannot_be_corrected(tools: Tools) -> None:
    """Those of before the runner came are the driver's count, and no alarm."""

    def seen(first: int, second: int) -> tuple[list[str], list[object]]:
        path = tools(errors=f"printf '0, {first}, No\\n1, {second}, No\\n2, [N/A], Yes\\n'")
        found = cards(5, 5, 5)
        return health.look(found, path), [gpu.get("uncorrected") for gpu in found]

    health = GpuHealth()
    pages = "GPU 2 has bad pages of memory, retired at the next restart of the machine only"
    assert seen(0, 7) == ([pages], [0, 7, None])
    assert seen(0, 9) == (["GPU 1 had 2 memory errors that can't be corrected: rent another one", pages], [0, 9, None])
    assert seen(0, 9)[0][0].startswith("GPU 1 had 2 "), "on each line from then on"
    assert seen(3, 1)[0][:2] == [
        f"GPU {index} had {new} memory errors that can't be corrected: rent another one"
        for index, new in ((0, 3), (1, 1))
    ], "the driver of the second began anew"


def test_u22_a_card_whose_driver_knows_no_such_field_is_no_alarm(tools: Tools) -> None:
    assert GpuHealth().look(cards(100), tools()) == []


def test_u22_an_xid_that_ends_a_card_is_told_once_it_is_new(tools: Tools) -> None:
    """What the log held before the runner came was another user's."""
    old = LOG.format(where="3b:00", number=79, words="GPU has fallen off the bus.")
    health = GpuHealth()
    assert health.look(cards(0), tools(log=f'echo "{old}"')) == []
    new = LOG.format(where="5e:00", number=79, words="GPU has fallen off the bus.")
    harmless = LOG.format(where="5e:00", number=31, words="Ch 00000012, MMU Fault")
    path = tools(log=f'echo "{old}\n{harmless}\n{new}"')
    said = ["the driver reports Xid 79 of the GPU at 0000:5e:00: it has fallen off the bus; rent another box"]
    assert health.look(cards(0), path) == said
    assert health.look(cards(0), path) == said, "it stays true"


def test_u22_a_card_of_another_customer_is_no_alarm(tools: Tools) -> None:
    """The kernel's log is the whole machine's: of eight cards the box may have one."""
    health, ours = GpuHealth(), "echo '0, 00000000:5E:00.0'"
    health.look(cards(0), tools(bus=ours))
    theirs = LOG.format(where="3b:00", number=79, words="GPU has fallen off the bus.")
    assert health.look(cards(0), tools(bus=ours, log=f'echo "{theirs}"')) == []
    own = LOG.format(where="5e:00", number=79, words="GPU has fallen off the bus.")
    (said,) = health.look(cards(0), tools(bus="exit 1", log=f'echo "{theirs}\n{own}"'))
    assert "0000:5e:00" in said
    assert health.look([], tools(bus="exit 1", log=f'echo "{own}"')) == [said], "the tool lists no card that is lost"


def test_a_log_that_may_not_be_read_says_nothing(tools: Tools) -> None:
    refused = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    assert xids(tools(log=refused)) == {}


def test_a_box_without_a_card_asks_nothing(tmp_path: Path) -> None:
    assert GpuHealth().look([], str(tmp_path)) == []
