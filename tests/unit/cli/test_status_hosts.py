"""`sweepctl status` of boxes on hosts: what it costs in round trips, and that asking all at once changes no answer."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from bench.hosts_bench import world_on
from sweepstack.channel import prefetch
from sweepstack.channel.pinned_keys import default_folder
from sweepstack.channel.ssh import link as ssh_link
from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.channel.ssh.links import _SHARED, _SHARING
from sweepstack.cli.output import UNSURE, YES
from sweepstack.operations.strays import beside_sweep as sweep_search
from sweepstack.operations.sweep import collect
from tests.simulators.host import Host
from tests.simulators.machines import require
from tests.unit.cli.support import World, by_name

HOSTS = 2
CELLS = 12
MOST_TRIPS = 1
"""A box and a look: what a slow link makes of more is what a person waits for."""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    require()
    made = [Host(tmp_path / f"host-{number}") for number in range(HOSTS)]
    yield made
    for host in made:
        host.stop()


@pytest.fixture
def world(hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[World]:
    """A sweep at work: on each host a box with sealed cells, one that runs, and some that wait."""
    here = os.getcwd()
    made, _ = world_on(tmp_path / "world", CELLS, hosts, monkeypatch)
    made.capsys = capsys
    yield made
    os.chdir(here)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Round trips by what was asked in them; requests that go out together are one."""
    seen: Counter[str] = Counter()
    request, together = ssh_link.Link.request, ssh_link.Link.ask_all

    def one(link: ssh_link.Link, verb: str, **words: Any) -> None:
        seen[f"{verb} {words.get('name', '')}"] += 1
        request(link, verb, **words)

    def many(
        link: ssh_link.Link, questions: Sequence[prefetch.Question], *more: Any
    ) -> list[prefetch.PrefetchedAnswer]:
        seen["together"] += 1
        return together(link, questions, *more)

    monkeypatch.setattr(ssh_link.Link, "request", one)
    monkeypatch.setattr(ssh_link.Link, "ask_all", many)
    return seen


def status(world: World, code: int = YES) -> dict[str, Any]:
    result = world.run("status", "--json", fresh=False)
    assert result.code == code, result
    return dict(result.json)


def test_a_look_costs_one_round_trip_a_box(world: World, trips: Counter[str]) -> None:
    seen = status(world)
    running = [cell for cell in seen["cells"] if cell["state"] == "running"]
    assert [cell["step_text"] for cell in running] == ["1"] * HOSTS, "curves are among what was read"
    assert all(box["heartbeat_seconds"] is not None for box in seen["boxes"]), "and so are heartbeats"
    assert trips.total() <= MOST_TRIPS * HOSTS, trips


def test_asked_one_by_one_it_is_the_same_picture(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)

    class Still(datetime):
        """A clock that stands."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return now

    class NoPlatform:
        """What no platform is."""

    monkeypatch.setattr(collect, "datetime", Still)
    together = status(world)

    monkeypatch.setattr(prefetch, "PrefetchesBoxes", NoPlatform)
    monkeypatch.setattr(prefetch, "Prefetches", NoPlatform)
    asked: list[str] = []
    request = ssh_link.Link.request

    def one(link: ssh_link.Link, verb: str, **words: Any) -> None:
        asked.append(verb)
        request(link, verb, **words)

    monkeypatch.setattr(ssh_link.Link, "request", one)
    assert status(world) == together
    assert len(asked) > HOSTS


def test_a_cell_that_runs_and_has_no_curve_yet_costs_no_more(world: World, trips: Counter[str]) -> None:
    for curve in Path(world.platform_root).rglob("metrics.jsonl"):
        curve.unlink()
    seen = status(world)
    assert {cell["step_text"] for cell in seen["cells"]} == {""}
    assert trips.total() <= MOST_TRIPS * HOSTS, trips


def test_a_host_that_does_not_answer_is_unknown_and_the_other_is_read(world: World, hosts: list[Host]) -> None:
    status(world)
    hosts[0].stop()
    boxes = by_name(status(world, UNSURE)["boxes"])
    assert (boxes["box-0"]["phase"], boxes["box-1"]["phase"]) == ("unknown", "running")
    assert boxes["box-0"]["note"], "and why is said"


def test_a_host_that_answers_no_look_in_time_is_not_asked_again_and_why_is_tried_meanwhile(
    world: World, hosts: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a hole in the MTU: the look waited 20 s for it, then the search 38 s more, for the same silence."""
    asked: list[str] = []
    honest = sweep_search._lister

    def lister(adapter: str, *more: Any) -> Callable[[], Any]:
        def listed() -> Any:
            asked.append(adapter)
            return honest(adapter, *more)()

        return listed

    monkeypatch.setattr(sweep_search, "_lister", lister)
    monkeypatch.setattr(collect, "LOOK_SECONDS", 15.0)
    monkeypatch.setattr(collect, "TRY_SECONDS", 0.1)
    monkeypatch.setattr(ssh_mtu, "_TRIED", {})
    monkeypatch.setattr(ssh_mtu, "_gets_through", lambda way, *_: bool(way.proxy))  # small packets alone
    hosts[1].silence()
    seen = status(world, UNSURE)
    boxes = by_name(seen["boxes"])
    assert (boxes["box-0"]["phase"], boxes["box-1"]["phase"]) == ("running", "unknown")
    assert "it did not answer within 20 s" in boxes["box-1"]["note"]
    assert "sudo ip link set dev NAME mtu 1280" in boxes["box-1"]["note"]
    assert boxes["box-0"]["platform"] in asked
    assert boxes["box-1"]["platform"] not in asked
    assert any(boxes["box-1"]["platform"] in note for note in seen["notes"]), "and it is said"


def test_a_box_that_is_gone_is_gone_and_the_other_is_read(world: World) -> None:
    world.boxes[0].vanish()
    boxes = by_name(world.run("status", "--json", fresh=False).json["boxes"])
    assert (boxes["box-0"]["phase"], boxes["box-1"]["phase"]) == ("gone", "running")


@pytest.fixture
def shim(hosts: list[Host]) -> Path:
    """What a version manager puts in the PATH of the first host: it finds the interpreter anew at each call. Returns
    where it counts them."""
    folder, calls = hosts[0].folder / "shims", hosts[0].folder / "calls"
    folder.mkdir()
    calls.touch()
    (folder / "python3").write_text(f'#!/bin/sh\necho >> {calls}\nexec {os.path.realpath(sys.executable)} "$@"\n')
    (folder / "python3").chmod(0o755)
    hosts[0].say(PATH=f"{folder}:/usr/local/bin:/usr/bin:/bin")
    return calls


def anew(world: World, code: int = YES) -> dict[str, dict[str, Any]]:
    """The boxes, as a command sees them that was just started."""
    with _SHARING:
        _SHARED.clear()
    return by_name(status(world, code)["boxes"])


def test_an_interpreter_that_was_found_once_is_not_looked_for_again(world: World, shim: Path) -> None:
    assert anew(world)["box-0"]["phase"] == "running"
    first = shim.read_text()
    assert first, "it was asked"
    for _ in range(2):
        assert anew(world)["box-0"]["phase"] == "running"
    assert shim.read_text() == first


@pytest.mark.parametrize("wrong", ["/usr/bin/env", "python3; touch /tmp/x", ""])
def test_a_remembered_interpreter_that_is_gone_is_looked_for(world: World, shim: Path, wrong: str) -> None:
    anew(world)
    remembered = list(default_folder().glob("*/.python"))
    assert len(remembered) == HOSTS
    for kept in remembered:
        kept.write_text(wrong)
    found = [anew(world, code)["box-0"]["phase"] for code in ((YES,) if wrong != "/usr/bin/env" else (UNSURE, YES))]
    assert found[-1] == "running"
    assert found[:-1] in ([], ["unknown"]), "one that starts and is none costs a look, and only one"
    calls = len(shim.read_text().splitlines())
    anew(world)
    assert len(shim.read_text().splitlines()) == calls >= 2, "and the right one is remembered"


def test_another_host_key_is_told_once_with_the_way_out(world: World, hosts: list[Host]) -> None:
    """The text of the key stood there four times, `next` was to wait, and no cell was as it had been."""
    anew(world)
    box = world.boxes[0]
    world.store.write_journal(box.name, box.generation, (box.root / "data/sweep/journal.jsonl").read_bytes())
    hosts[0].new_key()
    with _SHARING:
        _SHARED.clear()
    said = world.run("status", fresh=False)
    assert said.code == UNSURE
    text = " ".join(said.out.split())
    assert text.count("the host key of") == 1, said.out
    assert "wait --stack" not in text
    assert text.count("sweepctl confirm host --stack sweep-t") == 1, said.out
    assert f"sweepctl confirm host --stack sweep-t {box.name} {hosts[0].address}" in text
    assert f"give-up --stack sweep-t data/{box.name}" in text
    refused = " ".join(
        line for line in (str(gate) for gate in world.run("status", "--json", fresh=False).json["gates"])
    )
    assert "the host key of" in refused, "documents have the whole text"
