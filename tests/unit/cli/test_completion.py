"""What the shell offers on Tab."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from sweepstack.cli import completion
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.evidence.search_log import local_log
from tests.unit.cli.support import STACK, World


@pytest.fixture(autouse=True)
def own_cache(world: World) -> None:
    world.monkeypatch.setenv("XDG_CACHE_HOME", str(world.folder / "cache"))


EACH = """
import importlib, json, os, sys
from sweepstack.cli.app import app
for words in json.loads(sys.argv[1]):
    importlib.import_module("sweepstack.cli.commands." + words[0].replace("-", "_"))
    sys.stdout.flush()
    if os.fork():
        os.wait()
        print(end="\\0")
        continue
    os.environ |= {"COMP_WORDS": " ".join(["sweepctl", *words]), "COMP_CWORD": str(len(words))}
    app(prog_name="sweepctl")
"""
"""Each by a process of its own, which need not import again what the one before did: that takes a second."""


def complete(world: World, *lines: tuple[str, ...]) -> list[list[str]]:
    """What bash is given for the words of each line, the last of which is being typed."""
    command = [sys.executable, "-c", EACH, json.dumps(lines)]
    environment = {**os.environ, "_SWEEPCTL_COMPLETE": "complete_bash"}
    done = subprocess.run(command, cwd=world.root, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return [said.split() for said in done.stdout.split("\0")[:-1]]


def test_stacks_cells_and_boxes(world: World) -> None:
    world.add("box-0")
    world.add("box-1")
    completed = {
        ("status", "--stack", "sw"): [STACK],
        ("logs", "--stack", STACK, "lr0"): ["lr0.1", "lr0.3", "lr0.9"],
        ("logs", "--stack", STACK, "--of", "setup", "b"): ["box-0", "box-1"],
        ("give-up", "--stack", STACK, "cell/lr0.9"): ["cell/lr0.9"],
        ("give-up", "--stack", STACK, "data/b"): ["data/box-0", "data/box-1"],
        ("give-up", "--stack", STACK, "un"): ["unclaimed/"],
    }
    assert complete(world, *completed) == [*completed.values()]
    world.monkeypatch.setenv("PULUMI_STACK", STACK)
    assert complete(world, ("results", "lr0.3")) == [["lr0.3"]]


class Context:
    """What a completion is asked with."""

    params: ClassVar = {"stack": STACK}


def test_the_roster_is_expanded_once_for_a_version_of_the_file(world: World) -> None:
    assert completion.cells(Context, "") == ["lr0.1", "lr0.3", "lr0.9"]  # type: ignore[arg-type]

    def heavy(path: Path) -> dict[str, list[str]]:
        raise AssertionError("it was read again")

    world.monkeypatch.setattr(completion, "_expanded", heavy)
    assert completion.cells(Context, "lr0.3") == ["lr0.3"]  # type: ignore[arg-type]
    world.monkeypatch.undo()
    world.monkeypatch.chdir(world.root)
    world.lrs = "[0.5]"
    world.write_stack_file()
    assert completion.cells(Context, "") == ["lr0.5"]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "config: [", "config: {sweepstack:sweep: 5}"])
def test_a_file_that_does_not_read_offers_nothing(world: World, text: str) -> None:
    world.file.path.write_text(text)
    assert completion.cells(Context, "") == []  # type: ignore[arg-type]
    assert complete(world, ("logs", "--stack", STACK, "lr0")) == [[]]


def test_nothing_heavy_is_imported_on_a_second_tab(world: World) -> None:
    assert completion.cells(Context, "")  # type: ignore[arg-type]
    code = (
        "import sys; from sweepstack.cli import completion as completing; "
        f"ctx = type('C', (), {{'params': {{'stack': {STACK!r}}}}}); assert completing.cells(ctx, 'lr0.1'); "
        "print([name for name in ('pydantic', 'yaml', 'numpy', 'pulumi', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=world.root, capture_output=True, text=True)
    assert done.stdout == "[]\n", done


def test_show_and_install(world: World) -> None:
    """The shell is the process that asks: a real bash."""
    sweepctl = Path(sys.executable).parent / "sweepctl"
    environment = {**os.environ, "HOME": str(world.folder), "SHELL": "/bin/bash"}
    for option in ("--show-completion", "--install-completion"):
        done = subprocess.run(
            ["bash", "-c", f"{sweepctl} {option}; true"], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stderr == "", done
        assert "_SWEEPCTL_COMPLETE" in done.stdout or (world.folder / ".bash_completions/sweepctl.sh").is_file(), done


@pytest.mark.parametrize("pull_to", ["results/found", "s3://no-such-bucket.invalid/sweeps/t"])
@pytest.mark.needs_extension("search")
def test_the_cells_that_a_search_drew_are_offered_and_no_network_is_asked(world: World, pull_to: str) -> None:
    """Of evidence in a bucket: as a command on this computer read its log last."""
    text = world.file.path.read_text()
    search = "    search: {axes: {wd: {uniform: [0, 1]}}, at_most: {cells: 9}, at_once: 2}\n"
    text = re.sub(r"(?m)^    pull_to: .*$", f"    pull_to: {pull_to}", text).rstrip("\n") + f"\n{search}"
    world.file.path.write_text(text)

    def asked(*_: object) -> None:
        raise AssertionError("a network was asked")

    world.monkeypatch.setattr(socket.socket, "connect", asked)
    world.monkeypatch.setattr("sweepstack.evidence.search_log.log_at", asked)
    assert completion.cells(Context, "s") == ["s0", "s1"]  # type: ignore[arg-type]
    uri = evidence_uri(world.root, pull_to)
    log = local_log(uri) if uri is not None else None
    assert log is not None
    log.parent.mkdir(parents=True, exist_ok=True)
    steps = [Step(kind="suggested", cell=f"s{number}", number=number, params={"wd": 0.5}) for number in range(4)]
    log.write_bytes(SearchLog().with_steps(steps).data)
    world.monkeypatch.setattr(completion, "_expanded", asked)
    assert completion.cells(Context, "s") == ["s0", "s1", "s2", "s3"]  # type: ignore[arg-type]
    assert completion.given_up(Context, "cell/s3") == ["cell/s3"]  # type: ignore[arg-type]
    log.write_bytes(b"{")
    assert completion.cells(Context, "s") == ["s0", "s1"]  # type: ignore[arg-type]
