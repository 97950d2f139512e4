"""The whole loop of a sweep on a real platform, as a person types it, and what the box is asked on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweepstack.core.bucket_address import evidence_uri
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.authoring import box_answers as facts
from sweepstack.extensions.authoring.box_answers import FactAnswer, Mark
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.profiles.model import Profile
from tests.engine.commands import Result
from tests.engine.harness import Stack
from tests.live.books import MOST_PER_HOUR
from tests.live.run import LiveRun
from tests.live.transcript import Transcript

BOX = "box-0"
PROJECT = "sweepstack"
BEAT_SECONDS = 30.0
COMMAND_SECONDS = 1800.0
"""A deadline: a real box needs minutes to start, and its first cell waits for pip."""
CANCEL_SECONDS = 60.0
STOP_SECONDS = 900.0
"""So long may the box take to stop itself once its lease is over."""
LEASE_SECONDS = 180.0
"""What the lease becomes for the stop from inside, counted from the last look. The box has it when it is started again,
too, until `up` has reached it: shorter, and a slow start ends with a second stop."""
SIMULATED_SECONDS = 45.0
"""The same on a simulated platform, whose boxes start at once."""
QUIET = frozenset({"status", "audit"})
"""Commands whose output tells of all that the account holds, and stays out of the transcript."""
SHORTEN = """
import json, os, sys
path, seconds = sys.argv[1], float(sys.argv[2])
spec = json.load(open(path))
spec["lease"]["seconds"] = seconds
with open(path + ".new", "w") as file:
    json.dump(spec, file)
os.replace(path + ".new", path)
"""
EVENTS = """
import json, sys
for line in open(sys.argv[1]):
    entry = json.loads(line)
    if entry["event"] in ("box-off", "box-off-failed"):
        print(json.dumps({name: entry.get(name) for name in ("event", "why", "reason")}))
"""


class Failed(Exception):
    """A step did not go as it must. The message has no output of commands: the transcript has that."""


@dataclass
class Journey:
    """One loop. `answers` grows on the way, and counts also where the loop fails later."""

    run: LiveRun
    profile: Profile
    stack: Stack
    transcript: Transcript
    answers: list[FactAnswer] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    """What did not go as it must, and did not keep the loop from going on."""
    _seen: dict[str, Any] = field(default_factory=dict)
    _after: dict[str, Any] | None = None
    _native_id: str = ""
    _stopped: bool = False
    """Whether the platform said that the box was stopped, in the step in which it was to stop itself."""

    def prepare(self, stack_file: Path) -> None:
        """Writes the stack file of this run, and gives its sweep the run's own name, so that each tag begins with it.
        Asks nothing of a platform."""
        self.stack.config_file.write_text(stack_file.read_text("utf-8"), "utf-8")
        self.stack.edit_config(self._ours)
        evidence = evidence_uri(self.stack.checkout, f"results/{self.stack.name}")
        assert evidence is not None
        identity = self.run.prefix.removeprefix(box_layout.TAGS).rstrip("-")
        EvidenceStore.found(evidence, identity, PROJECT, self.stack.name)

    def _ours(self, sweep: dict[str, Any]) -> None:
        sweep["candidates"] = [self.run.platform_name]
        sweep["cells"]["grid"] = {"lr": [0.1, 0.03], "seed": [0, 1]}
        sweep["max_price"] = min(float(sweep.get("max_price") or MOST_PER_HOUR), MOST_PER_HOUR)
        sweep["budget"] = {"usd": self.run.purse.ceiling, "hours": 2}
        sweep |= {"lease": "10m", "when_done": "keep", "pull_to": f"results/{self.stack.name}"}

    def play(self) -> None:
        """All steps. Raises Failed at the first one after which the next would make no sense, OverBudget and
        KeyboardInterrupt where the run ends; what is rented is then the caller's to end."""
        steps: list[tuple[str, Callable[[], None]]] = [
            ("preview: nothing is rented", self._preview),
            ("up: rents one box (3 to 15 minutes)", self._up),
            ("ask the box for the profile's facts", self._ask),
            ("destroy, unarmed: must be refused", self._unarmed),
            ("wait until 4 cells are done (2 to 10 minutes)", self._wait),
            ("pull and verify", lambda: self._verify(4)),
            ("the stop from inside: the lease runs out (2 to 16 minutes)", self._own_stop),
            ("up with 2 more cells: starts it again, and looks what the stop left (2 to 15 minutes)", self._again),
            ("wait until 6 cells are done", self._wait),
            ("pull, verify and approve", self._approve),
            ("up: clears the box for its end", self._clear),
            ("destroy", self._destroy),
            ("audit, and the platform's own list", self._audit),
        ]
        for number, (title, step) in enumerate(steps, 1):
            begun = time.monotonic()
            self.transcript.say(f"[{number}/{len(steps)}] {title}")
            try:
                step()
            finally:
                self.transcript.say(f"        {time.monotonic() - begun:.0f} s; ${self.run.purse.spent():.4f} so far")

    def facts(self) -> list[FactAnswer]:
        """All that the box has answered."""
        return [
            *(facts.compare_with_profile(self.profile, self._seen, self._after) if self._seen else []),
            *self.answers,
        ]

    # the steps

    def _preview(self) -> None:
        self._yes("pulumi", "stack", "init", self.stack.name, "--non-interactive")
        self._yes(*self._pulumi("preview"))
        if self.run.held():
            raise Failed("a preview rented something")

    def _up(self) -> None:
        tag = box_layout.box_tag(self.run.prefix.removeprefix(box_layout.TAGS).rstrip("-"), BOX, 1)
        self.run.purse.take(tag, float(self.stack.config()["max_price"]))
        self._yes(*self._pulumi("up"))
        held = self.run.held("box")
        if [entry.tag for entry in held] != [tag]:
            raise Failed(f"one box called {tag} was to be there, and the platform lists {held}")
        self._native_id = held[0].id
        (box,) = json.loads(self._yes("sweepctl", "status", "--json", "--stack", self.stack.name).out)["boxes"]
        price = float(box.get("price_per_hour") or 0.0)
        self.run.purse.reprice(tag, price)
        self.transcript.say(f"        it costs ${price:.3f}/h")

    def _ask(self) -> None:
        self._seen = self._asked(mark="write")
        self.answers.append(FactAnswer("kind", self.profile.kind, "a rented box that SSH reaches", "agrees"))
        with contextlib.suppress(PlatformError):
            record = self._record()
            if record.endpoint is not None:
                box = "through the vendor's relay" if record.endpoint.proxied else "straight to its own port"
                self.answers.append(FactAnswer("ssh", "nothing typed", box, "told"))

    def _unarmed(self) -> None:
        result = self._run(*self._pulumi("destroy"))
        if self._native_id not in {entry.id for entry in self.run.held("box")}:
            raise Failed("an unarmed destroy ended the box: nothing was verified")
        if result.rc == 0 or "refused" not in result.text.lower():
            raise Failed(f"an unarmed destroy was not refused (exit code {result.rc})")

    def _wait(self) -> None:
        self._yes("sweepctl", "wait", "done", "--stack", self.stack.name)

    def _verify(self, cells: int) -> str:
        """Returns the receipt."""
        self._yes("sweepctl", "pull", "--stack", self.stack.name)
        verify = json.loads(self._yes("sweepctl", "verify", "--json", "--stack", self.stack.name).out)
        if (verify["verified"], verify["total"]) != (cells, cells):
            raise Failed(f"{verify['verified']} of {verify['total']} cells are verified; there were to be {cells}")
        return str(verify["receipt"])

    def _own_stop(self) -> None:
        """A flaw where it does not stop: the loop goes on, since its end matters more."""
        if self.profile.own_key is None:
            self.transcript.say("        left out: its platform puts no key into a box")
            return
        seconds = LEASE_SECONDS if self.run.pace >= 1 else SIMULATED_SECONDS
        self._yes(*self._on_box("python3", "-c", SHORTEN, box_layout.SPEC, str(seconds)))
        ends, why = time.monotonic() + STOP_SECONDS, "it still runs"
        beat = time.monotonic() + BEAT_SECONDS
        while time.monotonic() < ends:
            with contextlib.suppress(PlatformError):  # asked again
                self._stopped = self._record().phase is Phase.STOPPED
                if self._stopped:
                    return  # what its journal says is read once it is started again
            if time.monotonic() > beat:
                self._beat("it still runs")
                beat = time.monotonic() + BEAT_SECONDS
            time.sleep(self.run.poll)
        events = self._events()
        why = str(events[-1].get("reason") or why) if events else "its journal has no try to stop it"
        self.answers.append(facts.judge_own_key(self.profile, False, why))
        self.flaws.append(f"the box did not stop itself within {STOP_SECONDS / 60:.0f} minutes: {why}")

    def _again(self) -> None:
        self.stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2]))
        self._yes(*self._pulumi("up"))
        if not self._stopped:
            return
        tried = any(event["event"] == "box-off" and event["why"] == "lease" for event in self._events())
        why = "the platform stopped it, and its journal has no try of its own"
        self.answers.append(facts.judge_own_key(self.profile, tried, why))
        if not tried:
            self.flaws.append(why)
        self._after = self._asked(mark="look")

    def _approve(self) -> None:
        self._yes("sweepctl", "approve", self._verify(6), "--stack", self.stack.name)

    def _clear(self) -> None:
        self._yes(*self._pulumi("up"))
        if [entry.id for entry in self.run.held("box")] != [self._native_id]:
            raise Failed("the box that was approved for its end is not there any more, before the destroy")

    def _destroy(self) -> None:
        self._yes(*self._pulumi("destroy"))
        if self.profile.meter_stop_verb == "destroy" and not self.run.held():
            self.answers.append(
                FactAnswer("meter_stop_verb", "destroy", "not in the platform's list after it", "agrees")
            )

    def _audit(self) -> None:
        result = self._run("sweepctl", "audit", "--json")
        try:
            found = json.loads(result.out)["findings"]
        except (ValueError, KeyError) as error:
            raise Failed(f"audit printed no findings (exit code {result.rc})") from error
        ours = [one for one in found if str(one["tag"]).startswith(self.run.prefix)]
        self.transcript.say(f"        audit: {len(ours)} of this run; {len(found) - len(ours)} others, not shown")
        if left := [*(one["native_id"] for one in ours), *(entry.id for entry in self.run.held())]:
            raise Failed(f"after the destroy this is left: {left}")

    # commands

    def _record(self) -> BoxRecord:
        """What the adapter says of the box. No look that would renew its lease. Raises PlatformError."""
        platform = self.run.platform()
        return platform.get(self._native_id, platform.account())

    def _pulumi(self, verb: str) -> list[str]:
        yes = [] if verb == "preview" else ["--skip-preview", "--yes"]
        return ["pulumi", verb, "--stack", self.stack.name, "--non-interactive", *yes]

    def _on_box(self, *words: str) -> list[str]:
        return ["sweepctl", "ssh", BOX, "--stack", self.stack.name, "--", *words]

    def _asked(self, *, mark: Mark) -> dict[str, Any]:
        result = self._run(*self._on_box(*facts.question(self.profile, self.run.prefix, mark=mark)))
        try:
            return facts.parse_answers(result.out)
        except ValueError as error:
            self.flaws.append(f"the box could not be asked: {error} (exit code {result.rc})")
            return {}

    def _events(self) -> list[dict[str, Any]]:
        said = self._run(*self._on_box("python3", "-c", EVENTS, box_layout.JOURNAL)).out
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def _yes(self, *argv: str) -> Result:
        result = self._run(*argv)
        if result.rc != 0:
            for line in (result.out + "\n" + result.err).strip().splitlines()[-25:]:
                self.transcript.say(f"        | {line}")
            raise Failed(f"`{_shown(argv)}` ended with {result.rc}")
        return result

    def _run(self, *argv: str) -> Result:
        """Runs a command to its end, and writes what it printed. A command that an interrupt cuts short is asked to end
        before it is killed: the engine then writes down what it has rented."""
        self.transcript.note(f"\n$ {_shown(argv)}")
        begun = time.monotonic()
        process = self.stack.start(*argv)
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=BEAT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    self._beat(f"{argv[0]} {argv[1]}, {time.monotonic() - begun:.0f} s")
                    if time.monotonic() - begun > COMMAND_SECONDS:
                        raise Failed(f"`{_shown(argv)}` still runs after {COMMAND_SECONDS / 60:.0f} minutes") from None
        except BaseException:
            _end(process)
            raise
        result = Result(argv, process.returncode, out, err, time.monotonic() - begun)
        private = argv[1] in QUIET
        self.transcript.note("(not shown: it tells of all that the account holds)" if private else f"{out}\n{err}")
        self.transcript.note(f"→ exit code {result.rc} after {result.seconds:.1f} s")
        return result

    def _beat(self, what: str) -> None:
        self.transcript.beat(f"        … {what}; ${self.run.purse.spent():.4f} so far")


def _shown(argv: Sequence[str]) -> str:
    """A command for people: a program in an argument is not shown."""
    return " ".join("…" if "\n" in word or word.startswith("{") else word for word in argv)


def _end(process: subprocess.Popen[str]) -> None:
    for number, seconds in ((signal.SIGINT, CANCEL_SECONDS), (signal.SIGKILL, CANCEL_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=seconds)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what the engine started, too
