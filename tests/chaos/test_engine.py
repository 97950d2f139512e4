"""Fault plans through the real engine: pulumi, the plugin's own process, a rented machine with a real sshd.

One here for each platform; `python -m tests.chaos --engine 30` plays thirty.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.judge import GENERATION
from tests.chaos.plans import platform_of
from tests.engine.commands import Result
from tests.rented.world import World, rented, without_internet
from tests.simulators.core import Reply, Request, draw
from tests.simulators.rental import rentals as platforms
from tests.simulators.rental import stack_of

pytestmark = pytest.mark.engine
SEEDS = range(int(os.environ.get("SWEEPSTACK_CHAOS_ENGINE", len(platforms()))))
SLOW = {"never_ready", "stuck"}
"""A create waits a quarter of an hour for these; the plans below the engine have them."""
MOST_COMMANDS = 3


@dataclass
class Play:
    """One plan. `let_go`: native ids for which a person has given the word."""

    seed: int
    world: World
    story: list[str] = field(default_factory=list)
    let_go: set[str] = field(default_factory=set)
    told: int = 0

    def __post_init__(self) -> None:
        dice = random.Random(f"engine {self.seed}")
        sim, its = self.world.sim, self.world.its
        for rule in draw(self.seed, [choice for choice in its.menu if choice.kind not in SLOW], latest=4):
            sim.faults.append(rule)
            self.story.append(f"fault {rule.kind} at {rule.match} from {rule.nth}, {rule.times} times {rule.params}")
        self.strike = dice.choice((its.create, its.create, its.read, "")) if self.seed % 4 else ""
        self.nth, self.after = dice.randint(1, 3), dice.random() < 0.7
        self.story.append(f"kill -9 of the plugin at {self.strike or 'no call'}, {self.nth}")
        self.seen = 0
        self.answer, sim.answer = sim.answer, self.answered

    def answered(self, request: Request, handler: Any) -> Reply:
        """The platform's answer; at one call the plugin is killed, before or after it."""
        due = bool(self.strike) and fnmatchcase(f"{request.method} {request.route}", self.strike)
        self.seen += due
        due = due and self.seen == self.nth
        if due and not self.after:
            self.kill()
        reply: Reply = self.answer(request, handler)
        if due and self.after:
            self.kill()
        return reply

    def kill(self) -> None:
        """kill -9 of this stack's plugin: by the checkout that it runs from."""
        mark = f"{self.world.stack.checkout}/sweepstack/provider"
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().decode(errors="replace")
                if mark in command and "\0-m\0sweepstack.provider\0" in command:
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
        assert killed, "no plugin of this checkout was found"

    def command(self, *words: str) -> Result:
        """One command; whatever came of it, the books are right."""
        stack = self.world.stack
        self.story.append(f"$ {' '.join(words)}")
        if words[0] == "pulumi":
            result = stack.pulumi(*words[1:], "--skip-preview", timeout=400, noisy=True)
        else:
            result = stack.sweepctl(*words[1:], timeout=200, noisy=True)
        self.story.append(result.text[-1500:])
        assert self.world.key not in result.text, "the key was shown"
        assert "internal error in sweepstack" not in result.text, str(self)
        self.judge()
        return result

    def judge(self) -> None:
        """Nothing leaked, nothing twice, nothing ended without an approval."""
        sim = self.world.sim
        with sim.lock:
            rentals = [one for one in sim.ledger.all() if one.kind == self.world.its.box]
            calls, self.told = sim.calls[self.told :], len(sim.calls)
        births = self.world.stack.births()
        state = {str(box["id"]) for box in self.world.stack.resources("Box")}
        known = state | {birth["native_id"] for birth in births if not birth.get("ended_at")}
        tags = {birth["tag"] for birth in births if not birth.get("ended_at") and not birth["native_id"]}
        for rental in rentals:
            assert rental.ended is not None or rental.id in known or rental.tag in tags, f"leaked {rental}\n{self}"
        for number, one in enumerate(rentals):
            for other in rentals[number + 1 :]:
                same = GENERATION.sub("", one.tag) == GENERATION.sub("", other.tag)
                assert not (same and (one.ended is None or one.ended > other.begun)), f"{one} and {other}\n{self}"
        method, _, template = self.world.its.delete.partition(" ")
        ended = {c.path.rstrip("/").rpartition("/")[2] for c in calls if (c.method, c.route) == (method, template)}
        recorded = {birth["native_id"] for birth in births}
        assert ended & (recorded | state) <= self.let_go, f"ended without an approval: {ended - self.let_go}\n{self}"

    def way_out(self) -> None:
        """At most three commands to "nothing bills"."""
        typed = 0
        while self.world.rentals():
            assert typed < MOST_COMMANDS, f"stuck: {self.world.rentals()} bill after {typed} commands\n{self}"
            typed += 1
            if not self.world.rentals() <= self.let_go:
                self.command("sweepctl", "give-up", "data/box-0", "--reason", "a drill")
                self.let_go |= self.world.rentals()
            elif not self.cleared():
                self.command("pulumi", "up")
            else:
                self.command("pulumi", "destroy")

    def cleared(self) -> bool:
        """The state holds the boxes and the approval of their end."""
        words = {box["id"] for box in self.world.stack.resources("Box") if box["inputs"].get("approval")}
        return self.world.rentals() <= words

    def __str__(self) -> str:
        calls = [f"{c.method} {c.path} → {c.status} {' '.join(c.faults)}" for c in self.world.sim.calls[-60:]]
        return "\n".join([f"seed {self.seed}", *self.story, "", *calls])


@pytest.mark.proof  # on the handlers: test_plans_first_half.py; a killed plugin: tests/engine/test_crash.py
@pytest.mark.parametrize("seed", SEEDS)
def test_plan(tmp_path: Path, seed: int) -> None:
    platform = platform_of(seed)
    with rented(platform, tmp_path, stack_of(platform)) as world:
        without_internet(world.stack)
        world.stack.edit_config(
            lambda sweep: sweep["cells"].update(base={"epochs": 1}, grid={"lr": [0.1], "seed": [0]})
        )
        world.stack.init()
        play = Play(seed, world)
        play.command("pulumi", "up")
        play.command("pulumi", "destroy")
        if seed % 3:
            play.command("pulumi", "up")
        world.sim.faults.clear()
        play.strike = ""
        play.way_out()
        assert world.rentals() == set(), str(play)
