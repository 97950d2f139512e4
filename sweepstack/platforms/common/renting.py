"""Renting a box, as adapters do it alike: one order of steps, and what differs as hooks.

`create` is the order: lock, find, wanted?, rent, made, too dear?, ready. `first_granted` asks for the offers, one after
another; `until_ready` waits. `look_again` looks several times for what a create with a lost answer may have made:
lists lag behind. `lease_text` is what a start command runs so that a lease holds from a container's first second: the
text of `onbox.start_lease`, which goes to the vendor with the request that rents the box.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from sweepstack.onbox import start_lease
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import OutcomeUnknown, PlatformError, StillCreating, Unreachable, one_line
from sweepstack.onbox.host.capabilities import OwnStop
from sweepstack.onbox.host.offers import no_offer_left
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver, Watch
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.tag_lock import Memory, hold_tag_lock

R = TypeVar("R")
T = TypeVar("T")
LOOKS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
"""Seconds before each look for a box whose create may have been carried out."""
CENT_OF_A_CENT = 1e-4
"""USD. A price that is so much above the highest one is not above it: prices are rounded."""

HERE = start_lease.HERE
"""Stands for the box's own id in its requests: a start command is written before there is one."""
LEASE_VARIABLE = "SWEEPSTACK_LEASE"
LEASE_COMMAND = (
    f'while :; do command -v python3 > /dev/null && python3 -c "${LEASE_VARIABLE}"; sleep 5; done > /dev/null 2>&1 '
    "< /dev/null &"
)
"""Runs the text in `LEASE_VARIABLE`, in the background, as soon as there is a Python, and again should it be killed."""
PAUSE_SECONDS = 5.0
GONE_SECONDS = 120.0
"""A box may take so long to end after it was asked for. `launch` waits longer than for this and two requests."""


@dataclass(frozen=True)
class Hooks:
    """What an adapter says of its own in `create`. `by_id` and `by_tag` return None only for a box that is proved
    absent.

    `by_tag`: takes how old a list may be, in seconds, and `first_look` that of the first list. `rent`: costs money; it
    is called while the tag's lock is held (which gives the `Memory`), and when it is proved that there is no box of
    this tag. `adopt`: raises for a box of this tag that can't be used. `begin`: what is done to the box while the lock
    is held. `dear`: raises for a box that costs too much; asked before and after `ready`. `ready`: blocks until the box
    can be used; it is told whether it was made just now, since one that was adopted and stands still is returned as it
    is: the caller starts it. `word`: what is said of a box that `rent` made.
    """

    platform: str
    account: str
    by_id: Callable[[str], BoxRecord | None]
    by_tag: Callable[[float], BoxRecord | None]
    rent: Callable[[Memory], BoxRecord]
    adopt: Callable[[BoxRecord], None]
    ready: Callable[[BoxRecord, bool], BoxRecord]
    dear: Callable[[BoxRecord], None]
    begin: Callable[[BoxRecord], BoxRecord] = lambda record: record
    first_look: Callable[[Memory], float] = lambda memory: 0.0
    word: str = "rented"


def create(hooks: Hooks, request: BoxRequest, wait: Wait) -> BoxRecord:
    """See `Platform.create`."""
    with hold_tag_lock(hooks.platform, hooks.account, request.tag, wait, request.asked) as memory:
        age = hooks.first_look(memory)
        try:
            record = memory.find(hooks.by_id, lambda: hooks.by_tag(age), lambda: hooks.by_tag(0.0))
            made = record is None
            if record is None:
                must_be_wanted(request, wait)
                record = hooks.rent(memory)
        except DeadlineOver as error:
            raise PlatformError(f"{error}: no request to make {request.name} was sent") from error
        memory.made(record.native_id)
        if not made:
            hooks.adopt(record)
        note = f" ({record.note})" if record.note else ""
        wait.progress(f"{request.name}: {hooks.word if made else 'adopted'} {record.location}{note}")
        record = hooks.begin(record)
    hooks.dear(record)
    record = hooks.ready(record, made)
    hooks.dear(record)
    return record


@dataclass(frozen=True)
class Try(Generic[R]):
    """One request that may make a box. `name`: the offer, for the list of refusals. `what`: what is asked for, and of
    whom. `send`: sends it, and returns what was made, or the refusal where the next offer is worth a try."""

    name: str
    what: str
    send: Callable[[], R | PlatformError]


NoneLeft = Callable[[list[PlatformError], list[str]], PlatformError]
"""The error when every offer was refused: of the refusals, and of the same in words."""


def first_granted(
    tries: Iterable[Try[R]],
    look: Callable[[], BoxRecord | None] | None,
    request: BoxRequest,
    wait: Wait,
    deadline: Deadline,
    memory: Memory,
    refusals: list[str],
    none_left: NoneLeft | None = None,
) -> R | BoxRecord:
    """What the first of the `tries` that is granted made, or the box that `look` finds after a lost answer (None: the
    tries look for it by themselves). Costs money. Call it while holding the tag's lock (which gives `memory`), and tell
    `memory` what was made.

    Adds each refusal to `refusals`. Raises `none_left`, by default NoCapacity with all of them, when no offer is left,
    or when the time is over after a refusal; PlatformError when it is over before; at once, what `send` raises."""

    def error_of_all() -> PlatformError:
        return none_left(reasons, refusals) if none_left is not None else no_offer_left(refusals, request.name)

    def too_late(why: str) -> PlatformError:
        if not reasons or wait.cancelled.is_set():
            return PlatformError("\n".join([f"{request.name}: nothing was rented: {why}", *refusals]))
        last = error_of_all()
        return type(last)(f"{last}\n  no other offer was asked for: {why}")

    reasons: list[PlatformError] = []
    try:
        for one in tries:
            must_be_wanted(request, wait)
            if why := deadline.why_over():
                raise DeadlineOver(why)
            wait.progress(f"{request.name}: asking {one.what}")
            with memory.renting():
                memory.sending()
                granted = one.send() if look is None else sent_or_found(one.send, look, LOOKS, request.name, wait)
                if isinstance(granted, PlatformError):
                    memory.nothing()
            if not isinstance(granted, PlatformError):
                return granted
            reasons.append(granted)
            refusals.append(f"{one.name}: {one_line(granted)}")
            wait.progress(f"{request.name}: {one_line(granted)}")
    except DeadlineOver as error:
        raise too_late(str(error)) from error
    raise error_of_all()


@dataclass(frozen=True)
class Comes:
    """How a box comes up. `look`: the box as it is now, None while that is too early to tell. `silent`: why one that
    runs can't be used yet, "" when it can; `waits`: the same of one that is being made. `bills`: what its owner pays in
    each phase, in words. `ended`: what happened to one that is gone; `cause`: what may be wrong with one that stands
    still and has no note; with `rests` it is returned as it is. `last`: the box once more, when the waiting ended
    before it was ready.
    """

    look: Callable[[], BoxRecord | None]
    silent: Callable[[BoxRecord], str]
    bills: Mapping[Phase, str]
    ended: str
    cause: str
    waits: Callable[[BoxRecord], str] = lambda seen: ""
    rests: bool = False
    last: Callable[[BoxRecord], BoxRecord] = lambda seen: seen


def until_ready(name: str, record: BoxRecord, comes: Comes, watch: Watch) -> BoxRecord:
    """Blocks until the box runs and can be used. Raises PlatformError when it is gone: then nothing bills. Every error
    that leaves it rented is StillCreating with its id."""
    seen, why_not = record, ""

    def settled() -> bool:
        nonlocal seen, why_not
        try:
            found = comes.look()
        except Unreachable as error:  # an outage does not end the waiting: only the deadline does
            why_not = one_line(error)
            return False
        if found is None:
            return False
        seen, why_not = found, ""
        if seen.phase is Phase.RUNNING:
            why_not = comes.silent(seen)
            return not why_not
        if seen.phase is Phase.CREATING:
            why_not = comes.waits(seen)
            return False
        return True

    try:
        why = watch.until(settled)
    except PlatformError as error:  # the error carries the id, so that it is not lost
        costs = comes.bills[Phase.UNKNOWN]
        raise StillCreating(record.native_id, seen.outputs(), [f"{one_line(error)}; {costs}"]) from error
    if seen.phase is Phase.GONE:
        ended = f"{record.native_id} was {comes.ended}, not by this command, while it came up"
        raise PlatformError(f"{ended}: nothing bills")
    if why:
        seen = comes.last(seen)
    if why and why_not:
        why = f"{why} ({why_not})"
    if not why and seen.phase is not Phase.RUNNING and not (comes.rests and seen.phase is Phase.STOPPED):
        why = f"{name} is {seen.phase}, not running: {seen.note or comes.cause}"
    if why:
        raise StillCreating(record.native_id, seen.outputs(), [f"{why}; {comes.bills.get(seen.phase, 'it may bill')}"])
    return seen


def must_be_wanted(request: BoxRequest, wait: Wait) -> None:
    """Raises PlatformError when the user has cancelled. Call it before a request that may make a box."""
    if wait.cancelled.is_set():
        raise PlatformError(f"cancelled before {request.name} was rented: nothing exists, nothing bills")


def with_key(request: BoxRequest) -> BoxRequest:
    """The request with the user's public key. Raises PlatformError when there is no key: without one the box could not
    be reached."""
    if request.public_key.strip():
        return request
    from sweepstack.channel.ssh.keys import public_key

    return replace(request, public_key=public_key())


def must_not_be_too_dear(record: BoxRecord, name: str, max_price: float | None) -> None:
    """Raises StillCreating for a box that costs more than `max_price` (USD/h). Does not end it: a person decides."""
    price = record.price_per_hour
    if max_price is None or price is None or price <= max_price + CENT_OF_A_CENT:
        return
    why = (
        f"{name} was rented and costs {price:.4f} USD/h, above the {max_price:.4f} that you allow: it bills "
        "now. Raise max_price to keep it, or destroy it"
    )
    raise StillCreating(record.native_id, record.outputs(), [why])


def look_again(
    look: Callable[[], T | None], pauses: Iterable[float], cancelled: threading.Event | None = None
) -> T | None:
    """The first find of `look`, which is called after each of the `pauses` (seconds); None when it finds nothing, or
    after a cancel. A PlatformError of `look` counts as no find. Without `cancelled` it can't be ended early: to learn
    the id of a box that may bill is worth the time."""
    cut = cancelled or threading.Event()
    for seconds in pauses:
        if seconds and cut.wait(paced(seconds)):
            return None
        try:
            found = look()
        except PlatformError:
            continue
        if found is not None:
            return found
    return None


def sent_or_found(
    send: Callable[[], R], look: Callable[[], T | None], pauses: Iterable[float], name: str, wait: Wait
) -> R | T:
    """What `send` returns, which may make a box; after a lost answer what `look` finds (`look_again`). Costs what
    `send` costs. Raises what `send` raises; OutcomeUnknown when its answer is lost and nothing is found."""
    try:
        return send()
    except OutcomeUnknown as error:
        wait.progress(f"{name}: {one_line(error)}; looking for it by its tag")
        found = look_again(look, pauses, wait.cancelled)
        if found is None:
            raise
        return found


def lease_text(seconds: float, home: str, key: str, here: str, requests: Iterable[OwnStop]) -> str:
    """The program, to be run by `LEASE_COMMAND`. `key` and `here`: the variables of the container that hold the key and
    the box's id. `requests`: as `CanStopItself.own_stop`, with `HERE` for the id."""
    asked = {"seconds": seconds, "home": home, "key": key, "here": here, "pause": PAUSE_SECONDS, "gone": GONE_SECONDS}
    sent = [(asked.method, asked.url, dict(asked.body)) for asked in requests]
    return f"{_lease_program()}\nhold(**{asked | {'requests': sent}!r})"


@cache
def _lease_program() -> str:
    """The source without what only people read: docstrings, annotations, comments."""
    tree = ast.parse(Path(start_lease.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = ast.get_docstring(node, clean=False) is not None
            node.body = node.body[1:] if said else node.body
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    tree.body = [one for one in tree.body if not (isinstance(one, ast.ImportFrom) and one.module == "typing")]
    return ast.unparse(tree).replace("    ", " ")
