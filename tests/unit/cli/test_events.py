"""Events as commands tell them: `status`, `status --watch`, `tend` and `audit`, through a real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.cli import events
from sweepstack.operations.events import channels
from tests.unit.cli.support import STACK, Box, World
from tests.unit.cli.test_watching import read_until, start
from tests.unit.operations.events.hooks import SECRET, Hook, hook


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(channels, "BACKOFF", 0.01)
    with hook() as found:
        monkeypatch.setenv("SWEEP_HOOK", found.url)
        yield found


@pytest.fixture
def box(world: World, server: Hook) -> Box:
    """A box on which one cell has failed and one runs; the stack file names a webhook."""
    made = world.add()
    made.launch("lr0.1", "lr0.3", "lr0.9")
    made.start("lr0.1")
    made.fail("lr0.1")
    made.start("lr0.3")
    made.alive()
    tells(world)
    return made


def tells(world: World, words: str = "{webhook: SWEEP_HOOK}") -> None:
    world.file.path.write_text(f"{world.file.path.read_text()}    events: {words}\n")


def test_the_first_command_that_looks_tells_and_no_other(world: World, box: Box, server: Hook) -> None:
    first, second = world.run("status"), world.run("status", "--json")
    assert (first.code, first.err, second.code) == (0, "", 0)
    (body,) = server.taken
    assert body == second.json["events"][0] | {"at": body["at"]}
    assert (body["kind"], body["box"], body["cell"], body["per_hour"]) == ("failed", "box-0", "lr0.1", 0.5)
    assert body["text"] == (
        "sweep-t: cell lr0.1 failed on box box-0: exit code 1; $0.50/h goes on. "
        "Next: sweepctl logs --stack sweep-t lr0.1"
    )
    box.fail("lr0.3")
    assert world.run("wait", "--timeout", "1s").code == 1
    assert [body["cell"] for body in server.taken] == ["lr0.1", "lr0.3"]


def test_without_events_in_the_stack_file_they_are_only_shown(world: World, box: Box, server: Hook) -> None:
    world.write_stack_file()
    assert [event["kind"] for event in world.run("status", "--json").json["events"]] == ["failed"]
    assert server.taken == []


@pytest.mark.parametrize("answer", [500, "hang", "cut"])
def test_a_server_in_trouble_changes_no_answer_and_blocks_shortly(
    world: World, box: Box, monkeypatch: pytest.MonkeyPatch, answer: int | str
) -> None:
    monkeypatch.setattr(events, "PATIENCE", 0.5)
    with hook(answer) as broken:
        monkeypatch.setenv("SWEEP_HOOK", broken.url)
        result = world.run("status")
        broken.go_on.set()
    assert result.code == 0
    assert result.err.count("SWEEP_HOOK") == 1
    assert SECRET not in result.out + result.err


@pytest.mark.parametrize(
    "words", ["{webhook: https://hooks.example/hunter2}", "{ntfy: https://u:hunter2@ntfy.example/t}", "[hunter2]"]
)
def test_events_that_do_not_read_are_said_and_quoted_nowhere(world: World, box: Box, server: Hook, words: str) -> None:
    world.write_stack_file()
    tells(world, words)
    result = world.run("status")
    assert result.code == 0
    assert "does not say whom to tell of events" in result.err
    assert "hunter2" not in result.out + result.err
    assert server.taken == []


def test_tend_tells_what_its_round_found_and_what_it_did(world: World, server: Hook) -> None:
    world.full()
    tells(world)
    result = world.run("tend", "--once")
    assert result.code == 0, result
    assert {body["kind"] for body in server.taken} == {"drained", "verified"}
    assert len(server.taken) == 3
    assert world.run("tend", "--once").code == 0
    assert len(server.taken) == 3


def test_watch_prints_an_event_once_when_it_comes(world: World, box: Box, server: Hook) -> None:
    process = start(world, "--interval", "0.2s", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        text = read_until(process.stdout.fileno(), "Next: sweepctl logs --stack sweep-t lr0.1", process)
        assert "failed     cell lr0.1 failed on box box-0: exit code 1; $0.50/h goes on. Next: " in text
        box.fail("lr0.3")
        more = read_until(process.stdout.fileno(), "Next: sweepctl logs --stack sweep-t lr0.3", process)
        assert more.count("cell lr0.3 failed") == 1
        assert "cell lr0.1 failed" not in more
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    assert [body["cell"] for body in server.taken] == ["lr0.1", "lr0.3"]


def test_watch_as_json_has_the_events_of_each_document(world: World, box: Box) -> None:
    result = world.run("status", "--watch", "--json", "--interval", "0.2s", "--timeout", "0.5s")
    (line,) = result.out.splitlines()
    assert [event["id"] for event in json.loads(line)["events"]] == [f"failed/{box.native_id}/lr0.1/0/1"]


def test_an_audit_tells_what_no_state_knows_and_status_does_not_again(
    world: World, box: Box, server: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    forgotten = world.add("box-7", price=2.0)
    forgotten.launch()
    tells(world)
    world.gone = ["box-7"]
    assert world.run("audit", stack=None).code == 1
    assert world.run("audit", stack=None).code == 1
    (body,) = [body for body in server.taken if body["kind"] == "audit"]
    assert body["id"] == f"audit/local/{forgotten.native_id}"
    assert (body["stack"], body["cost"]) == (STACK, "$2.00/h goes on")
    assert world.run("status").code == 1
    assert [body["kind"] for body in server.taken] == ["audit", "failed"]


def test_the_address_is_in_nothing_that_stays(world: World, box: Box, server: Hook) -> None:
    world.run("status")
    world.run("pull")
    assert len(server.taken) == 1
    shutil.rmtree(world.root / ".git", ignore_errors=True)
    holds = [path for path in world.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holds == list[Path]()
