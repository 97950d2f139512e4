"""One plan, played to its end, with what has to hold after every command and at the end.

Held against the simulator's own books (`judge`), never against what an adapter says:

- leaked: a rental lives that neither the state nor an open record knows, by id or by tag;
- doubled: two rentals of one box lived at the same time;
- ended: a DELETE was sent for a box that had none of the five reasons to end, or for another sweep's;
- stuck: faults have ceased, and three commands do not lead to "nothing bills";
- said: an error that does not name what may bill, or no next command, or says "nothing" of what bills, or holds a key.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sweepstack.core.records import Abandonment, Action, Approval, Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError
from tests.chaos.disks import DEAF
from tests.chaos.engine import STACK, Engine, Outcome, Program, Resource
from tests.chaos.judge import Judge, box_of
from tests.chaos.plans import Plan, Step
from tests.chaos.platform_process import Platforms
from tests.chaos.provider_process import Nursery, Provider
from tests.chaos.work import ROSTER
from tests.simulators.rental import rental

MOST_COMMANDS = 3
FACTS: dict[str, Any] = {"verb": "destroy", "kills": ["scratch", "data", "durable"], "keeps": []}
STOP = {"kills": [], "keeps": ["scratch", "data", "durable"], "price_per_hour": 0.01}


@dataclass
class Verdict:
    """What came of a plan. `broken`: promises that did not hold; `commands`: how many led to "nothing bills"."""

    plan: Plan
    broken: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    commands: int = 0
    fired: int = 0
    calls: int = 0


class Play:
    """One plan in a folder of its own."""

    def __init__(self, plan: Plan, folder: Path, nursery: Nursery, platforms: Platforms, ssh_key: Path) -> None:
        self.plan, self.folder, self.nursery, self.platforms = plan, folder, nursery, platforms
        self.project, self.disks = folder / "project", folder / "disks"
        for made in (self.project, self.disks, folder / "home", folder / "backend"):
            made.mkdir(parents=True)
        self.verdict = Verdict(plan)
        self.world = platforms.ask(open=plan.platform, faults=list(plan.faults), strikes=list(plan.strikes))
        self.engine = Engine(folder, self.program)
        self.names = [f"box-{number}" for number in range(plan.boxes)]
        self.judge = Judge(plan.platform, self.world, tuple(self.names), self.broke)
        self.approval: Approval | None = None
        self.verified: set[str] = set()
        """Native ids whose launched cells are all in a receipt, and on which nothing has happened since."""
        self.launched: dict[str, set[str]] = {}
        self.sealed: dict[str, set[str]] = {}
        self._told = len(self.books()["calls"])
        self._ssh_key = ssh_key

    # The program, and who runs it

    def program(self) -> list[tuple[str, str, Program]]:
        found: list[tuple[str, str, Program]] = [("Identity", "identity", self._identity)]
        for name in self.names:
            found.append(("Box", name, lambda kept, name=name: self._box(kept, name)))  # type: ignore[misc]
        for name in self.names:
            found.append(("Gate", name, lambda kept, name=name: self._gate(kept, name)))  # type: ignore[misc]
        return found

    def _identity(self, _: Any) -> dict[str, Any]:
        return {"project": "project", "stack": STACK, "pull_to": "results"}

    def _common(self, kept: Any) -> dict[str, Any] | None:
        identity = next((one for one in kept.values() if one.kind == "Identity"), None)
        if identity is None:
            return None
        facts = {**FACTS, **({"stop": STOP} if self.plan.stop else {})}
        approval = {"approval": self.approval.model_dump(mode="json", exclude_none=True)} if self.approval else {}
        return {
            "identity": identity.outputs["identity"],
            "evidence": identity.outputs["evidence"],
            "adapter": self.plan.platform,
            "roster_digest": ROSTER.digest,
            "teardown": facts,
            **approval,
        }

    def _box(self, kept: Any, name: str) -> dict[str, Any] | None:
        common = self._common(kept)
        return None if common is None else {**common, "name": name, "resources": {}}

    def _gate(self, kept: Any, name: str) -> dict[str, Any] | None:
        common = self._common(kept)
        box: Resource | None = next((one for one in kept.values() if (one.kind, one.name) == ("Box", name)), None)
        if common is None or box is None:
            return None
        known = {"box": box.id, "box_name": name}
        return {**common, **known, "account": box.outputs["account"], "generation": box.outputs["generation"]}

    def env(self, key: str) -> dict[str, str]:
        """What a shell of this person has set."""
        at_hand = self.world["key" if key == "own" else "other_key"]
        its = rental(self.plan.platform)
        home = self.folder / "home"
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'backend'}",
            "SWEEPSTACK_SSH_KEY": str(self._ssh_key),
            "SWEEPSTACK_API_PACE": "0.03",
            "SWEEPSTACK_API_TIMEOUT": "5",
            "SWEEPSTACK_CHAOS_DISKS": str(self.disks),
            its.url: self.world["url"],
            its.key: at_hand,
        }

    def provider(self, key: str = "own", *, aim: bool = True) -> Provider:
        """A new provider process."""
        self.said: list[str] = []
        made = self.nursery.provider(self.env(key), self.project, f"{self.plan.seed}", self.said)
        if aim:
            self.platforms.ask(aim=self.world["world"], pid=made.pid)
        return made

    # The plan

    def play(self) -> Verdict:
        """Every step, then peace, then the way out."""
        try:
            for step in self.plan.steps:
                self._do(step)
            self.platforms.ask(calm=self.world["world"])
            (self.disks / DEAF).unlink(missing_ok=True)
            self.note("— the faults cease")
            self.engine.delete_seconds = 30.0  # each ends now, and on a busy machine not within three
            self._way_out()
            books = self.books()
            self.verdict.calls = len(books["calls"])
            self.verdict.fired = sum(1 for call in books["calls"] if call["faults"])
            self.verdict.broken += [f"violation: {what}" for what in books["violations"]]
        except Exception as error:  # one plan's end is not the others'
            self.broke(f"crashed: {type(error).__name__}: {error}")
        finally:
            self.platforms.ask(close=self.world["world"])
        return self.verdict

    def _do(self, step: Step) -> None:
        self.note(f"$ {step}")
        match step.what:
            case "up" | "refresh" | "destroy" | "preview":
                self.command(step.what, step.key)
            case "twice":
                self._twice(step.key)
            case "run":
                self._run([])
            case "seal":
                self._run([cell.name for cell in ROSTER.cells])
            case "approve":
                self._approve(step.way)
            case "revoke":
                self.approval = None
            case "vanish" | "preempt":
                self._befall(step)
            case "deafen":
                (self.disks / DEAF).touch()
            case "hear":
                (self.disks / DEAF).unlink(missing_ok=True)

    def command(self, what: str, key: str = "own") -> Outcome:
        """One command of the engine, by a provider process of its own; what it did is held against the books."""
        before = self._reasons()
        provider = self.provider(key)
        try:
            outcome: Outcome = getattr(self.engine, what)(provider)
        finally:
            provider.close()
        self._judge(what, [outcome], before)
        return outcome

    def _twice(self, key: str) -> None:
        """Two `up`s at the same moment, each with the state as it was; the later one's state is what stays."""
        before = self._reasons()
        providers = [self.provider(key), self.provider(key, aim=False)]
        copies = [self.engine.state, deepcopy(self.engine.state)]
        with ThreadPoolExecutor(2) as pool:
            ups = [pool.submit(self.engine.up, providers[number], state=copies[number]) for number in range(2)]
            outcomes = [one.result() for one in ups]
        for provider in providers:
            provider.close()
        for where, resource in copies[1].items():
            self.engine.state[where] = resource
        self._judge("up", outcomes, before)

    def _run(self, sealed: list[str]) -> None:
        """The queues of all boxes of the state are given both cells."""
        provider = self.provider(aim=False)
        for box in self.engine.of("Box"):
            if box.outputs.get("phase") != "running" or not (self.disks / box.id).is_dir():
                continue
            generation = box.outputs["generation"]
            asked = {"box": box.name, "generation": generation, "native_id": box.id, "sealed": sealed}
            cells = [cell.name for cell in ROSTER.cells]
            told = provider.ask("run_cells", evidence=box.inputs["evidence"], cells=cells, **asked)
            assert not told.error, told.error
            self.launched[box.id] = set(cells)
            if set(sealed) - self.sealed.get(box.id, set()) or not sealed:
                self.verified.discard(box.id)
            self.sealed.setdefault(box.id, set()).update(sealed)
        provider.close()

    def _approve(self, way: str, key: str = "own") -> None:
        """An approval for every box that the state or the records know."""
        boxes = {(box.name, box.id, int(box.outputs.get("generation", 1))) for box in self.engine.of("Box")}
        boxes |= {(b.box, b.native_id, b.generation) for b in self.births() if b.native_id and b.ended_at is None}
        if self._store() is not None:
            provider = self.provider(key, aim=False)
            found = provider.ask("adrift", evidence=self.evidence)
            provider.close()
            boxes |= {(name, native_id, 0) for name, native_id in (found.value or {}).items()}
        receipt = None
        if way == "verify" and self._store() is not None:
            provider = self.provider(aim=False)
            asked = [{"name": name, "native_id": native_id, "generation": number} for name, native_id, number in boxes]
            told = provider.ask("verify_cells", evidence=self.evidence, stack=STACK, boxes=asked)
            provider.close()
            assert not told.error, told.error
            receipt = told.value["receipt"]
            done = {cell.name for cell in ROSTER.cells}
            self.verified |= {
                native_id
                for _, native_id, _ in boxes
                if self.launched.get(native_id) and self.sealed.get(native_id, set()) >= done
            }
        abandon = tuple(
            Abandonment(box=name, native_id=native_id, reason="not worth it")
            for name, native_id, _ in sorted(boxes)
            if way == "abandon"
        )
        now = datetime.now(UTC)
        self.approval = Approval(
            receipt=receipt,
            actions=tuple(
                Action(verb="destroy", box=name, native_id=native_id) for name, native_id, _ in sorted(boxes)
            ),
            abandon=abandon,
            waivers_digest=Approval.digest_waivers((), abandon),
            by="ada",
            at=now - timedelta(minutes=1),
            expires=now + timedelta(hours=72),
        )
        self.note(f"  approved: {way} {[native_id for _, native_id, _ in sorted(boxes)]}")

    def _befall(self, step: Step) -> None:
        living = [rental for rental in self.rentals() if rental["ended"] is None]
        if not living:
            return
        chosen = living[step.box % len(living)]["id"]
        what = "vanish" if step.what == "vanish" else rental(self.plan.platform).preempted
        self.platforms.ask(act=self.world["world"], what=what, **{"with": {"id": chosen}})

    # The way out

    def _way_out(self) -> None:
        """What the messages say: `up` adopts, a word lets go, `up` clears, `destroy` ends."""
        for number in range(MOST_COMMANDS + 2):
            living = self.living()
            if not living:
                break
            self.verdict.commands = number + 1
            accounts = {r["account"] for r in self.rentals() if r["id"] in living}
            key = "own" if self.world["account"] in accounts else "other"  # as WrongAccount says
            known = {box.id for box in self.engine.of("Box")}
            named = {birth.box for birth in self.births() if birth.ended_at is None}
            recorded = {r["id"] for r in self.rentals() if box_of(r["tag"]) in named}
            approved = {action.native_id for action in self.approval.actions} if self.approval else set()
            let_go = {one.native_id for one in self.approval.abandon} if self.approval else set()
            cleared = {box.id for box in self.engine.of("Box") if box.inputs.get("approval") == self._word()}
            # What was never rented is taken out of the stack file (`want: gone`), or `up` would rent it.
            wanted = {box_of(r["tag"]) for r in self.rentals() if r["id"] in living}
            self.names = [name for name in self.names if name in wanted | {box.name for box in self.engine.of("Box")}]
            if living - let_go and living <= known | recorded:
                self.note("$ approve abandon")
                self._approve("abandon", key)
            elif living <= known and living <= cleared & approved:
                self.note("$ destroy")
                self.command("destroy", key)
            else:
                self.note("$ up")
                self.command("up", key)
        living = self.living()
        if living or self.verdict.commands > MOST_COMMANDS:
            self.broke(f"stuck: after {self.verdict.commands} commands {sorted(living) or 'nothing'} still bills")

    def _word(self) -> dict[str, Any] | None:
        return self.approval.model_dump(mode="json", exclude_none=True) if self.approval else None

    # What is true

    def books(self) -> dict[str, Any]:
        told: dict[str, Any] = self.platforms.ask(books=self.world["world"])
        return told

    def rentals(self) -> list[dict[str, Any]]:
        """All boxes that were ever rented, but for those of other sweeps."""
        return self.judge.rentals(self.books())

    def living(self) -> set[str]:
        """Native ids of what bills."""
        return {rental["id"] for rental in self.rentals() if rental["ended"] is None}

    @property
    def evidence(self) -> str:
        return f"file://{socket.gethostname()}{self.project / 'results'}"

    def _store(self) -> EvidenceStore | None:
        try:
            return EvidenceStore.open(self.evidence)
        except EvidenceError:
            return None

    def births(self) -> list[Birth]:
        store = self._store()
        return store.births() if store else []

    def _reasons(self) -> dict[str, set[str]]:
        """Native id → why it may end by the next command: by words in the config, the state, and on record."""
        words = [self.approval] if self.approval else []
        for resource in self.engine.state.values():
            if resource.inputs.get("approval"):
                words.append(Approval.model_validate(resource.inputs["approval"]))
        store = self._store()
        for birth in self.births():
            if store and birth.native_id and (cleared := store.clearance(birth.native_id)):
                words.append(cleared)
        found: dict[str, set[str]] = {}
        for word in words:
            abandoned = {one.native_id for one in word.abandon}
            for action in word.actions:
                ways = found.setdefault(action.native_id, set())
                if action.native_id in abandoned:
                    ways.add("abandoned")
                if word.receipt is not None and action.native_id in self.verified:
                    ways.add("cleared")
                if action.native_id not in self.launched:
                    ways.add("nothing-launched")
        return found

    def _judge(self, what: str, outcomes: list[Outcome], reasons: dict[str, set[str]]) -> None:
        books = self.books()
        calls, self._told = books["calls"][self._told :], len(books["calls"])
        for call in calls:
            faults = f"   ⚡ {', '.join(call['faults'])}" if call["faults"] else ""
            self.note(f"    {call['method']} {call['path']} → {call['status'] or 'no answer'}{faults}")
        for outcome in outcomes:
            for line in outcome.warnings:
                self.note(f"  ! {line}")
            for error in outcome.errors:
                self.note("  ✗ " + error.replace("\n", "\n    "))
            if outcome.died:
                self.note("  ✗ the provider's process ended")
            if outcome.ok:
                self.note("  ✓")
        births = self.births()
        boxes = {box.id for box in self.engine.of("Box")}
        self.judge.hold_ends(calls, reasons, boxes | {birth.native_id for birth in births if birth.native_id})
        still = [birth for birth in births if birth.ended_at is None]
        known = boxes | {birth.native_id for birth in still if birth.native_id}
        self.judge.hold_books(books, known, {birth.tag for birth in still if birth.native_id is None})
        for outcome in outcomes:
            self.judge.hold_words(outcome, books, several=len(outcomes) > 1)
        for line in self.said:
            if any(self.world[key] in line for key in ("key", "other_key")):
                self.broke(f"a key in a line: {line[:80]}")

    def broke(self, what: str) -> None:
        if what not in self.verdict.broken:
            self.verdict.broken.append(what)
            self.note(f"  ✗✗ {what}")

    def note(self, line: str) -> None:
        self.verdict.story.append(line)
