"""`sweepctl doctor BOX`: which processes hold a box's GPUs beside its cells; ends one on request.

The runner's patrol finds them; where several workers share the box, that of each worker on its own node. Nothing is
ended by itself: whose a process is, and whether it matters, a person knows.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sweepstack.cli.box_access import find_box, way_to
from sweepstack.cli.output import Out, size, span
from sweepstack.core.heartbeat import MISSED, TAIL_BYTES, parse_patrol
from sweepstack.launch.first_step import read_journal
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.target import Target

UNSEEN = ("by no process that can be seen", "GPUs are not seen any more")
"""In alarms of the patrol: then it is not known who holds a GPU."""
SECONDS = 60.0
ENDED, ANOTHER, ALIVE = 0, 3, 4
END = """
import os, signal, sys, time
pid, start = int(sys.argv[1]), sys.argv[2]
def there():
    try:
        with open("/proc/%d/stat" % pid) as handle:
            words = handle.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]
if there() != start:
    sys.exit(3)
for number, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
    os.kill(pid, number)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if there() != start:
            sys.exit(0)
        time.sleep(0.1)
sys.exit(4)
"""
"""Ends the process on the box, and no other that has its number since."""


@dataclass(frozen=True)
class Holder:
    """One process, as the patrol of the box saw it. `start`: by the kernel, "" from an older runner. `box`: the id of
    another box that it belongs to. `worker`, `host`: the worker that saw it, and its node, where several share the
    box."""

    pid: int
    start: str
    gpus: tuple[int, ...]
    user: str
    own: bool
    command: str
    seconds: float
    memory: int | None
    box: str = ""
    worker: str = ""
    host: str = ""


@dataclass(frozen=True)
class Watch:
    """A patrol whose file is read: of the box's runner (`worker` is ""), or of one of its workers."""

    path: str
    worker: str = ""
    host: str = ""


def holders(target: Target, box: str, end: int | None, out: Out) -> int:
    """Names them; ends the process `end` before. Raises No where it was not ended, Unsure where they are not known."""
    look_again = [f"sweepctl status --stack {target.stack}"]
    channel = way_to(target, find_box(target, box))
    found, unknown = seen(channel, box, look_again)
    if end is not None:
        holder = next((one for one in found if one.pid == end), None)
        if holder is None:
            raise No(f"{end} holds no GPU of {box}, or belongs to a running cell: nothing was ended", look_again)
        _end(channel, holder, box, look_again)
        found = [one for one in found if one.pid != end]
    out.document(
        {
            "stack": target.stack,
            "box": box,
            "ended": end,
            "holders": [vars(one) | {"gpus": list(one.gpus)} for one in found],
            "unknown": unknown,
        }
    )
    for why in unknown:
        out.line(why, style="yellow")
    if end is not None:
        out.line(f"ended {end} on {box}")
    for one in found:
        held = f", {size(one.memory)}" if one.memory is not None else ""
        cards = ", ".join(map(str, one.gpus))
        where = f"node {one.host}  " if one.host else ""
        whose = f"{one.user}, box {one.box}" if one.box else one.user
        out.line(
            f"{where}pid {one.pid}  GPU {cards}{held}  {whose}  for {span(one.seconds)}  {one.command}", wrap=False
        )
    if not (found or unknown) and end is None:
        out.line(f"no process beside the cells holds a GPU of {box}")
    mine = [one for one in found if one.own and not one.box]
    if mine:
        here = f"sweepctl doctor {box} --end {mine[0].pid} --stack {target.stack}"
        out.next([f"{_on_node(mine[0], box) or here}    (if it is not needed)"])
    return 0


def seen(channel: Channel, box: str, look_again: list[str]) -> tuple[list[Holder], list[str]]:
    """What the last line of the patrol says; of several workers, of each of which no end is known, and of which of them
    it is not known. Raises Unsure where nothing is known: there is no line, or it is old."""
    watches = _watches(channel, box, look_again)
    tails = channel.tails([one.path for one in watches], TAIL_BYTES)
    found: dict[tuple[str, int, str], Holder] = {}
    unknown: list[str] = []
    unseen: list[str] = []
    for watch in watches:
        tail = tails.get(watch.path, (0, b""))[1]
        try:
            for holder in _of(watch, tail, box):
                found.setdefault((holder.host, holder.pid, holder.start), holder)  # workers of one node see the same
        except LookupError as error:
            unknown.append(str(error))
        else:
            patrol = parse_patrol(tail)
            said = patrol.alarms if patrol is not None else ()
            unseen += [one for one in said if any(words in one for words in UNSEEN) and one not in unseen]
    if len(unknown) == len(watches):
        raise Unsure(unknown[0], look_again)
    return list(found.values()), [*unknown, *unseen]


def _watches(channel: Channel, box: str, look_again: list[str]) -> list[Watch]:
    known = read_journal(channel).workers
    if not known:
        return [Watch(box_layout.PATROL)]
    names = [one.name for one in known.values() if not one.ended]
    if not names:
        raise Unsure(f"no worker of {box} is at work: who holds a GPU of its nodes is not known", look_again)
    folders = {name: f"{box_layout.WORKERS}/{name}" for name in names}
    records = channel.tails([f"{folder}/worker.json" for folder in folders.values()], TAIL_BYTES)
    return [
        Watch(box_layout.worker_patrol(name), name, _host(records.get(f"{folder}/worker.json", (0, b""))[1]))
        for name, folder in folders.items()
    ]


def _host(record: bytes) -> str:
    try:
        return str(json_text.loads(record)["host"])
    except (KeyError, ValueError, TypeError):
        return "?"


def _of(watch: Watch, tail: bytes, box: str) -> list[Holder]:
    """What one patrol says. Raises LookupError with the words where it says nothing of now."""
    patrol = parse_patrol(tail)
    now = datetime.now(UTC)
    if patrol is None or patrol.age(now) > max(MISSED * patrol.interval, SECONDS):
        whose = f"worker {watch.worker} of {box} on {watch.host}" if watch.worker else box
        what = "has written no line yet" if patrol is None else f"wrote its last line {span(patrol.age(now))} ago"
        raise LookupError(f"the patrol of {whose} {what}: who holds a GPU there now is not known")
    for line in reversed(tail.splitlines()):
        try:
            row = json_text.loads(line)
            if row["time"] and datetime.fromisoformat(row["time"]) == patrol.time:
                return [holder for one in row.get("holders") or () if (holder := _read(one, watch)) is not None]
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return []


def _on_node(holder: Holder, box: str) -> str:
    """The command that ends it on its node; "" where it is on the host of the box itself."""
    task = holder.worker.rpartition(".")[0]
    job = f"srun --overlap --jobid=$(squeue --noheader --jobs={task} --format=%A)"
    return f"sweepctl ssh {box} -- sh -c '{job} kill {holder.pid}'" if holder.host else ""


def _read(one: Mapping[str, Any], watch: Watch) -> Holder | None:
    try:
        memory = one.get("memory")
        return Holder(
            pid=int(one["pid"]),
            start=str(one.get("start") or ""),
            gpus=tuple(int(gpu) for gpu in one["gpus"]),
            user=str(one["user"]),
            own=bool(one["own"]),
            command=str(one["command"]),
            seconds=float(one["seconds"]),
            memory=memory if isinstance(memory, int) else None,
            box=str(one.get("box") or ""),
            worker=watch.worker,
            host=watch.host,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _end(channel: Channel, holder: Holder, box: str, look_again: list[str]) -> None:
    if not holder.own:
        raise No(f"{holder.pid} on {box} is {holder.user}'s to end; nothing was ended", look_again)
    if elsewhere := _on_node(holder, box):
        raise No(
            f"{holder.pid} is on node {holder.host}, where only a job of yours gets in; nothing was ended",
            [f"{elsewhere}    (if it still is that one)"],
        )
    if not holder.start:
        raise No(
            f"the runner of {box} is an older one, which does not say which process {holder.pid} is; nothing was ended",
            [f"sweepctl ssh {box} -- kill {holder.pid}    (if it still is that one)"],
        )
    done = channel.run([channel.python, "-c", END, str(holder.pid), holder.start], timeout=SECONDS)
    if done.returncode == ANOTHER:
        raise No(f"{holder.pid} on {box} has ended, or is another process by now; nothing was ended", look_again)
    if done.returncode == ALIVE:
        raise No(f"{holder.pid} on {box} lives on after SIGKILL: it hangs in the driver; restart the box", look_again)
    if done.returncode != ENDED:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise Unsure(f"{holder.pid} on {box} may live: {said[0] if said else done.returncode}", look_again)
