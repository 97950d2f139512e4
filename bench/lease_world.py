"""One month of a box in simulated time. What decides is the product's own code: the watcher with its lease, its tries
to stop the box, the requests to the vendor, the journal, and the runner's own end when nothing moves.

Simulated are the clock, the platform (`lease_platforms`) and what the system says of processes. Modules of the product
read time as `time.…`: that name is bound to a clock of ours meanwhile, so that nothing in them had to change for it. A
wait is what lets time pass: whatever falls into it happens then, and an end of the box is an exception out of it.

While nothing happens, the watcher's rounds are all alike, and are counted without being played: to the next event, or
the next moment at which one of its own counts is over.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import types
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.lease_plan import FOR_EVER, MONTH, Month
from bench.lease_platforms import DISK, rented
from bench.lease_system import Clock, Files, Shell
from sweepstack.core.journal import FAILED, OVER, Journal, could_not_stop, noted, parse_journal
from sweepstack.onbox.common import locks
from sweepstack.onbox.common.processes import Process
from sweepstack.onbox.runner import lease, off, patrol, records, vendor
from sweepstack.onbox.runner.cards import Usage
from sweepstack.onbox.runner.main import Standstill
from sweepstack.onbox.runner.patrol import PATROL_SECONDS, STALL_SECONDS, Growth, verdict_on

EPOCH = 1_800_000_000.0
MARGIN = 600.0
SETTLED = 8
"""Rounds that are played after something happened, before those that are all alike are counted only. A platform may
take 90 seconds to stop a box."""
ROUNDING = 1e-3
"""Seconds: so long after it a moment is past in every sum."""
LEFT = Process(99, 1, 99, 99, "1", frozenset())
"""A cell that has no runner."""


class Off(BaseException):
    """The box stands still: none of its processes goes on."""


class Reboot(BaseException):
    """The box was restarted: none of its processes goes on."""


class Over(BaseException):
    """The month is over."""


@dataclass
class Verdict:
    """What came of a month. `need`: its last moment at which the box was needed; `hours`: of compute after that.

    `late`: it did not end within lease + 10 minutes; `why`: what the journal or `status` says of that; `broken`:
    promises that did not hold."""

    month: Month
    need: float = 0.0
    hours: float = 0.0
    late: bool = False
    ended: bool = False
    why: str = ""
    broken: list[str] = field(default_factory=list)
    tries: int = 0
    log: str = ""


class World:
    """See the module. `leased`: False plays the same month of a box without a lease."""

    def __init__(self, month: Month, folder: Path, *, leased: bool = True) -> None:
        self.month, self.leased, self.verdict = month, leased, Verdict(month)
        self.home = folder / "box" / "data" / "sweep"
        self.home.mkdir(parents=True)
        self.key_file = folder / "environ"
        self.platform = rented(month.platform, EPOCH, month.detail)
        self.epoch = EPOCH
        self.now, self.jumped, self.booted = 0.0, 0.0, -1000.0
        self.due = list(month.happenings)
        self.need = self.since = 0.0
        self.watcher: lease.Watcher | None = None
        self.wants_watcher, self.played, self.tries, self.stands = False, 0, 0, False
        self.runner: int | None = None
        self.runners, self.standstill = 0, Standstill(self.home)
        self.cells = "none"
        """none, running, left (behind by a killed runner), waiting (for room), sealed, ended."""
        self.faults: set[str] = set()
        self.journal: records.Journal | None = None
        self.files: dict[str, bytes] = {}
        self.ticked = 0.0
        """When the runner last looked whether it has to end."""

    # Time

    @property
    def boot_clock(self) -> float:
        return self.now - self.booted

    @property
    def wall(self) -> float:
        return self.epoch + self.now + self.jumped

    def sleep(self, seconds: float) -> None:
        """All that happens in so many seconds happens."""
        end = self.now + max(0.0, seconds)
        while True:
            moment = min([end, *self._runner_at(), *([self.due[0].at] if self.due else [])])
            self.now = max(self.now, min(moment, MONTH))
            self.platform.move_to(self.epoch + self.now)
            self._needed_by_cells()
            self._must_go_on()
            if self.runner is not None and any(at <= self.now for at in self._runner_at()):
                self._tick()
            elif self.due and self.due[0].at <= self.now:
                self._happens()
            elif self.now >= end:
                return

    def round(self, seconds: float) -> None:
        """The pause between two rounds of the watcher."""
        tries = self.watcher._tries if self.watcher is not None else 0
        self.played = self.played + 1 if tries == self.tries else 0
        self.tries, count = tries, 1.0
        if self.played > SETTLED:
            cells = [at for at in (self.month.works, self.month.hangs or 0.0) if at > self.now and self.cells == "left"]
            nearest = min([MONTH, *self._runner_at(), *self._watcher_at(), *cells, *(one.at for one in self.due[:1])])
            count = max(1.0, (nearest - self.now) // seconds)
        self.sleep(count * seconds)

    def _must_go_on(self) -> None:
        if self.now >= MONTH:
            raise Over
        if not self.stands and not self.platform.computes():
            raise Off

    def _watcher_at(self) -> list[float]:
        """When one of the watcher's own counts is over."""
        found = []
        if self.watcher is not None:
            counts = (
                self.watcher.lease._looked._at + self.month.lease,
                self.watcher._next,
                self.watcher._left._busy + STALL_SECONDS,
            )
            moments = [count + self.booted + ROUNDING for count in counts]
            found = [moment for moment in moments if moment > self.now]
        return found

    def _runner_at(self) -> list[float]:
        """When the runner has something to do: it ends with its cell, or it may have to end when the lease is over."""
        if self.runner is None:
            return []
        if self.cells == "running" and self.month.hangs is None:
            return [max(self.month.works, self.ticked + 1.0)]
        if not self.leased:
            return []
        hung = (
            self.month.hangs + STALL_SECONDS + PATROL_SECONDS if self.month.hangs and self.cells == "running" else 0.0
        )
        return [max(self.standstill._lease._looked._at + self.booted + self.month.lease, hung, self.ticked + 1.0)]

    # The runner

    def start_runner(self) -> None:
        self.runner = os.open(self.home / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        assert locks.take(self.runner)
        self.runners += 1
        (self.home / "runner.pid").write_text(f"{self.runners}\n")
        self.journal = records.Journal(self.home / "journal.jsonl")
        self.standstill = Standstill(self.home)
        self.journal.append(
            "cell-started", cell="a", attempt=1, config_digest="c", code="d", version="v", argv=[], slot=0
        )
        self.cells, self.wants_watcher = "running", self.leased

    def works(self) -> bool:
        """Whether a cell is at work: such a one must never be ended."""
        return self.cells in ("running", "left") and self.now < min(self.month.works, self.month.hangs or FOR_EVER)

    def hung(self, _: Any) -> tuple[str, float]:
        """As the last line of the patrol says it."""
        at = self.now // PATROL_SECONDS * PATROL_SECONDS
        growth = Growth(min(at, self.month.hangs if self.month.hangs is not None else at))
        growth.wrote = True
        found = verdict_on(growth, at, STALL_SECONDS, 0.0)
        return (found.why, at - growth.wrote_at) if found.verdict == "hung" else ("", 0.0)

    def _tick(self) -> None:
        self.played, self.ticked = 0, self.now
        assert self.journal is not None
        if self.cells == "running" and self.month.hangs is None and self.now >= self.month.works:
            self._write("cell-sealed", cell="a", attempt=1, config_digest="c", manifest="sha256:" + "0" * 64, bytes=1)
            self._keep("sealed")
            self._end_runner("sealed")
            return
        running: Mapping[str, Any] = {"a": None} if self.cells == "running" else {}
        why = self.standstill.why(self._spec, running, self, blocked=self.cells == "waiting")  # type: ignore[arg-type]
        if not why:
            return
        if self.works():
            self.verdict.broken.append(f"the runner ended a cell that works: {why}")
        self._write("runner-stopped", signal="SIGTERM", why="lease", reason=why)
        self._end_runner("ended")

    def _write(self, event: str, **details: Any) -> None:
        """As the runner does; without its journal it ends."""
        assert self.journal is not None
        with contextlib.suppress(records.Fatal):
            self.journal.append(event, **details)

    def _end_runner(self, cells: str) -> None:
        if self.runner is not None:
            os.close(self.runner)
            assert self.journal is not None
            self.journal.close()
        self.runner, self.journal, self.cells = None, None, cells

    def _keep(self, name: str) -> None:
        """A file of the cell: it must be there at the end."""
        path = self.home / "cells/a/1/out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
        self.files[name] = name.encode()

    # What happens

    def _happens(self) -> None:
        self.played = 0
        happening = self.due.pop(0)
        what, _, switch = happening.what.partition(" ")
        if switch:
            (self.faults.add if switch == "on" else self.faults.discard)(what)
            if what not in ("full", "starved"):
                self.platform.goes_wrong(what, switch == "on")
        elif what == "look":
            if "cut" not in self.faults and not self.stands:
                os.utime(self.home / "looked", (self.wall, self.wall))
                self._needed()
        elif what == "jump":
            self.jumped += happening.value
        elif what == "killed" and self.runner is not None:
            self._end_runner("left" if self.cells == "running" else self.cells)
        elif what == "blocked" and self.runner is not None:
            self._needed()
            self.cells = "waiting"
        elif what == "started" and self.stands:
            self.platform.start()
            raise Reboot
        elif what == "reboot" and not self.stands:
            raise Reboot
        if self.runner is not None and not self.stands:
            self._tick()  # it looks several times a second

    def _needed(self, until: float = FOR_EVER) -> None:
        self.need = max(self.need, min(self.now, until))

    def _needed_by_cells(self) -> None:
        if self.cells in ("running", "left") and not self.stands:
            self._needed(min(self.month.works, self.month.hangs or FOR_EVER))

    # What the system says

    def of_cells(self, *_: Any) -> Sequence[Process]:
        alive = self.cells == "left" and (self.month.hangs is not None or self.now < self.month.works)
        return [LEFT] if alive else []

    def end_all(self, find: Callable[[], Sequence[Process]], grace: float) -> Sequence[Process]:
        if find() and self.works():
            self.verdict.broken.append(f"a cell that works ({self.month.style}) was ended by the watcher")
        self.sleep(grace)
        self.cells = "ended"
        return find()

    def gpus(self) -> list[dict[str, Any]]:
        return [{"util": 90 if self.works() and self.month.style == "gpu" else 0}]

    def usage(self, *_: Any) -> dict[int, Usage]:
        if self.month.style == "writes" and self.works():
            with open(self.home / "cells/a/1/log.txt", "a") as log:
                log.write("a line\n")
        worked = min(self.now, self.month.works, self.month.hangs or FOR_EVER)
        return {99: Usage(worked * (1.0 if self.month.style == "cpu" else 0.01), 0)}

    # The month

    @property
    def _spec(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "spec.json").read_text())
        return found

    def play(self) -> Verdict:
        """The whole of it."""
        told = self.platform.lease(self.month.lease) if self.leased else None
        spec = {"schema": 1, "identity": "i", "box": "box", "native_id": "box-1", "generation": 1, "durable": "mnt"}
        spec |= {"python": "python3", "artifacts": [], **({"lease": told} if told else {})}
        (self.home / "spec.json").write_text(json.dumps(spec))
        key = told["how"].get("key") if told else None
        self.key_file.write_bytes(b"" if self.month.keyless or not key else f"{key}={self.platform.secret}\0".encode())
        log = io.StringIO()
        with self._in_this_world(), contextlib.redirect_stderr(log):
            (self.home / "looked").touch()
            self._keep("half-done")
            (self.home / "cells/a/1/pid").write_text(json.dumps({"pid": LEFT.pid, "start": LEFT.start}))
            self.start_runner()
            with contextlib.suppress(Over):
                while True:
                    self._live()
            self._end_runner(self.cells)
        self.verdict.log += log.getvalue()
        return self._judged()

    def _live(self) -> None:
        """Until something ends all processes of the box."""
        try:
            while True:
                if not self.wants_watcher or self.stands:
                    self.sleep(self._rest())
                    continue
                self.sleep(1.0)
                self.watcher, self.played = lease.Watcher(self.home), 0
                try:
                    self.watcher.run()
                except Exception as error:  # as `main` does; the runner starts another one, while there is one
                    self.verdict.log += f"the watcher ended: {error!r}\n"
                self.watcher, self.wants_watcher = None, self.runner is not None
                self.sleep(lease.LOOK_SECONDS)
        except Off:
            self._stands_still()
        except Reboot:
            self._boots()

    def _rest(self) -> float:
        return min([MONTH, *self._runner_at(), *(one.at for one in self.due[:1])]) - self.now

    def _stands_still(self) -> None:
        if self.works():
            self.verdict.broken.append("the box was stopped while a cell works")
        if self.month.platform.endswith("volume"):
            self.verdict.broken.append(f"it stopped, and {' and '.join(DISK)} are wiped")
        self._settle()
        self._end_runner(self.cells if self.cells in ("sealed", "ended") else "ended")
        self.watcher, self.wants_watcher, self.stands = None, False, True

    def _boots(self) -> None:
        self._settle()
        self._end_runner("sealed" if self.cells == "sealed" else "ended")
        self.booted = self.since = self.now
        self.watcher, self.stands = None, False
        self.wants_watcher = self.leased  # RunPod and vast.ai run `on-start`

    def _settle(self) -> None:
        """A time in which the box computed is over: was it in time?"""
        if not self.stands and self.now > max(self.need, self.since) + self.month.lease + MARGIN:
            self.verdict.late = True

    @contextlib.contextmanager
    def _in_this_world(self) -> Iterator[None]:
        plain, rounds = Clock(self, self.sleep), Clock(self, self.round)
        request = types.SimpleNamespace(Request=urllib.request.Request, build_opener=self._opener)
        variables = {name: value for name, value in os.environ.items() if not name.endswith("API_KEY")}
        with contextlib.ExitStack() as stack:
            for module, name, value in (
                (lease, "time", rounds),
                (off, "time", plain),
                (records, "time", plain),
                (locks, "time", plain),
                (vendor, "urllib", types.SimpleNamespace(error=urllib.error, request=request)),
                (vendor, "FIRST_PROCESS", self.key_file),
                (lease, "of_cells", self.of_cells),
                (lease, "end_all", self.end_all),
                (patrol, "time", rounds),
                (patrol, "usage", self.usage),
                (patrol, "gpus", self.gpus),
                (patrol.Hang, "_mark", lambda _: (int(self.now * 1e9), 0, b"")),  # no runner of these months hangs
                (lease, "os", Files(self)),
                (records, "os", Files(self)),
                (off, "os", Files(self)),
                (off, "subprocess", Shell(self)),
            ):
                stack.enter_context(patch.object(module, name, value))
            stack.enter_context(patch.dict(os.environ, variables, clear=True))
            yield

    def _opener(self, *_: Any) -> Any:
        return self.platform.opener(self.sleep)(*_)

    def hours_after(self, moment: float) -> float:
        """Hours of compute that were billed from this moment of the month until its end."""
        return self.platform.hours(self.epoch + moment, self.epoch + MONTH)

    def _judged(self) -> Verdict:
        verdict, data = self.verdict, (self.home / "journal.jsonl").read_bytes()
        self._settle()
        verdict.ended, verdict.need, verdict.hours = self.stands, self.need, self.hours_after(self.need)
        journal = parse_journal(data)
        verdict.tries = sum(entry["event"] == "box-off" for entry in journal.entries)
        if verdict.late and self.leased:
            verdict.why = self._why(journal)
        for name, kept in self.files.items():
            if (self.home / "cells/a/1/out" / name).read_bytes() != kept:
                verdict.broken.append(f"{name} is lost")
        if self.platform.stopped_itself() and not verdict.tries:
            verdict.broken.append("it stopped itself, and its journal does not have it")
        if self.platform.secret and self.platform.secret.encode() in data + verdict.log.encode():
            verdict.broken.append("a key is in the journal or the log")
        return verdict

    def _why(self, journal: Journal) -> str:
        """What tells it: the journal, also of what is over by now; else what `status` says of such a box."""
        said = [str(one.get("reason") or one.get("why")) for one in journal.entries if one["event"] in TOLD]
        if said:
            return next((one for one in said if one != off.ACCEPTED), said[-1])
        if self.stands:
            return ""
        if self.faults & {"cut", "starved"}:
            return UNREACHABLE
        note = noted((self.home / lease.LOCK).read_bytes())
        return could_not_stop(journal, datetime.fromtimestamp(self.wall, UTC), 1.0, note)


TOLD = (FAILED, OVER)
UNREACHABLE = "the box can't be reached"
"""By `status`: no packet gets there, or no process can be started for it."""
