"""`sweepctl confirm worker BOX WORKER`: a person says that a worker of a shared box has ended.

For what neither its host nor the scheduler can prove: a node that was taken away, a scheduler that forgot the job. It
is written into the box's journal, and frees the cells that this worker had. A scheduler that waits for the end of that
worker itself (the pod of a node that is lost) is told, too, and first: it may hold what the box is read by. Where a
worker has several parts (pods, on nodes of their own) each is told of by its own name, and the cells are free once each
has ended.
"""

from __future__ import annotations

import json as json_text

from sweepstack.cli.box_access import find_box, way_to
from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.output import Out
from sweepstack.onbox.agent.channel import Channel, TakesWord
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import No, RequestRefused, SweepstackError, Unsure
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.state import BoxEntry

SECONDS = 120.0
RUNS, PARTS = 10, 12
"""What the runner says against it: the worker runs; other parts of it are not known to have ended."""


USES = ("which", "saw", "by")


def confirm(target: Target, statement: Statement, out: Out) -> int:
    """Exit 0: it is in the box's journal, and others take its cells; or the scheduler has it: of a box that is ending,
    or of a part of a worker. Raises No while it is seen to run, Unsure."""
    status = [f"sweepctl status --stack {target.stack}"]
    box, worker, person = statement.box, statement.named("worker"), statement.person
    words = statement.words('what shows it, such as --saw "the node was taken away"')
    entry = find_box(target, box)
    told = _told_scheduler(entry, worker, f"{person}: {words}", status)
    try:
        _write(target, entry, (worker, words, person), status)
        done = f"the journal of {box} has it: {worker} has ended ({person} saw: {words}); its cells are free"
        more = [f"pulumi up --stack {target.stack}    (if no other worker is there to take them)"]
    except _Unwritten as error:
        if not told:
            raise
        done, more = f"{told} ({person} saw: {words}); {error}", error.next
    out.document({"stack": target.stack, "box": box, "worker": worker, "saw": words, "by": person})
    out.line(done)
    out.next(more)
    return 0


class _Unwritten(No):
    """The box's journal takes no such end, or not yet; that of the scheduler stands."""


def _write(target: Target, entry: BoxEntry, said: tuple[str, str, str], status: list[str]) -> None:
    """Writes into the box's journal that this worker has ended. `said`: its name, what was seen, by whom. Raises No."""
    worker, words, person = said
    try:
        channel = way_to(target, entry)
    except No as error:
        raise error if isinstance(error, Unsure) else _Unwritten(str(error), error.next) from error
    argv = [channel.python, _program(channel, entry.name, worker, status), channel.absolute(box_layout.HOME)]
    done = channel.run([*argv, "--worker-ended", worker, "--saw", words, "--by", person], timeout=SECONDS)
    told = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    told = told.partition("Z ")[2] or told  # without its time
    if done.returncode == PARTS:
        raise _Unwritten(told, status)
    if done.returncode == RUNS:
        raise No(f"{told}. If it must not go on, end it first", status)
    if done.returncode:
        raise Unsure(f"that {worker} has ended may not be written down: {told}", status)


def _told_scheduler(entry: BoxEntry, worker: str, saw: str, status: list[str]) -> str:
    """What a scheduler wrote down that takes a person's word; "" for any other."""
    try:
        channel = entry.context().platform.channel(entry.native_id, entry.account)
        return channel.worker_ended(worker, saw) if isinstance(channel, TakesWord) else ""
    except RequestRefused as error:
        raise No(f"{error}; nothing was written down. If it must not go on, end it first", status) from error
    except SweepstackError as error:
        raise Unsure(f"box {entry.name}: {error}", status) from error


def _program(channel: Channel, box: str, worker: str, status: list[str]) -> str:
    """The program that this worker was started from, which is on the box still."""
    try:
        record = json_text.loads(channel.read(f"{box_layout.WORKERS}/{worker}/worker.json"))
        return str(record["program"])
    except FileNotFoundError:
        raise _Unwritten(f"no worker {worker} was on {box}: no cell waits for it alone", status) from None
    except (ValueError, KeyError, TypeError) as error:
        raise Unsure(f"the record of {worker} on {box} does not read: {error}", status) from error
