"""Rents one box: finds it by its tag, or rents the cheapest offer, and waits until it can be used.

vast.ai has no idempotency key. Instead: a lock among this user's processes with a note of what its last holder made,
the tag as the label, a complete list before a create, one PUT for each offer, and the list again after a lost answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Unreachable,
)
from sweepstack.onbox.host.offers import no_offer_left
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common import probe, start_lease
from sweepstack.platforms.common.deadline import DeadlineOver, Lasting
from sweepstack.platforms.common.look_again import look_again
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.tag_lock import hold_tag_lock
from sweepstack.platforms.common.tag_memory import Memory
from sweepstack.platforms.vastai import volumes
from sweepstack.platforms.vastai.api import VERB_SECONDS
from sweepstack.platforms.vastai.channel import FOLDERS, ROOT, answers
from sweepstack.platforms.vastai.errors import NoSuchThing, RentedAnyway, StartQueued
from sweepstack.platforms.vastai.offers import Ask, disk_for, market_at, up_to_step
from sweepstack.platforms.vastai.pages import Row
from sweepstack.platforms.vastai.power import end_for_sure, own_stop
from sweepstack.platforms.vastai.session import Session, box_number, still_creating
from sweepstack.platforms.vastai.states import is_fatal, status_message

DEFAULT_IMAGE = "ubuntu:22.04"
"""Small, so that it is pulled quickly; the driver's libraries come from the host."""
ON_START = (
    f"mkdir -p {' '.join(f'{ROOT}/{folder}' for folder in FOLDERS)}; touch ~/.no_auto_tmux; "
    "command -v python3 >/dev/null || "
    "{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3; }; "
    f"[ ! -x {ROOT}/{box_layout.ON_START} ] || {ROOT}/{box_layout.ON_START}"
)
"""Runs at every start of the container; vast.ai itself starts sshd. vast.ai stores it in clear text: no secrets."""
LOOK_AGAIN = (0.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each look for the box that a create with a lost answer may have made."""
GRACE_SECONDS = 30.0
"""A state that never leads to a running box counts when it has lasted so long: lists lag behind."""
SEARCH_AGAIN_SECONDS = 30.0
KEY_SECONDS = 20.0
_GONE_SECONDS = 60.0


class _Removed(PlatformError):
    """The box was ended from elsewhere while we waited for it."""


class Renting:
    """One create; costs money. See `Platform.create`."""

    def __init__(self, session: Session, request: BoxRequest, wait: Wait) -> None:
        self._session = session
        self._client = session.client
        self._request = request
        self._wait = wait
        self._paid = 0.0
        self._egress: float | None = None
        self._refusals: list[str] = []

    def run(self) -> BoxRecord:
        """The box, ready to be used. Blocks. Raises what `Platform.create` raises."""
        request = self._request
        if not request.tag or len(request.tag) > 256:
            raise PlatformError(f"the tag {request.tag[:80]!r} can't be a label of vast.ai: 1 to 256 characters")
        if request.public_key and len(request.public_key.split()) < 2:
            raise PlatformError("the public key is none: `ssh-ed25519 AAAA…` is what one looks like")
        try:
            with hold_tag_lock("vastai", self._session.account, request.tag, self._wait, request.asked) as memory:
                present = self._found() or memory.box(self._by_id, self._found)
                if present is None:
                    self._must_be_wanted()
                    with memory.renting():  # only after OutcomeUnknown and StillCreating may there be a box
                        identifier = self._rent(memory)
                    memory.made(str(identifier))
                else:
                    memory.made(present.native_id)
                    identifier = self._fitting(present)
        except DeadlineOver as error:
            if self._refusals and not self._wait.cancelled.is_set():
                none_left = no_offer_left(self._refusals, request.name)
                raise NoCapacity(f"{none_left}\n  no other offer was asked for: {error}") from error
            raise PlatformError(f"{error}: no request to make {request.name} was sent") from error
        if present is None:
            self._wait.progress(f"{request.name}: rented instance {identifier} of vast.ai")
            return replace(self._until_ready(identifier, adopted=False), egress_per_gb=self._egress)
        self._wait.progress(f"{request.name}: adopted instance {identifier} of vast.ai{_told(present.note)}")
        if present.phase is Phase.ENDING:
            raise NotYetGone(f"instance {identifier} carries the tag {request.tag} and is being destroyed: finish that")
        if present.phase.at_rest:
            return present
        return self._until_ready(identifier, adopted=True)

    def _fitting(self, present: BoxRecord) -> int:
        """The id of the box that carries the tag, once it is proved to have the volumes that are asked for."""
        if present.phase is not Phase.ENDING:
            session, wanted = self._session, set(self._request.mounts.values())
            number = int(present.native_id)
            volumes.must_fit(session, number, self._request.tag, wanted)
        return int(present.native_id)

    def _must_be_wanted(self) -> None:
        if self._wait.cancelled.is_set():
            raise PlatformError(f"cancelled before {self._request.name} was made: nothing exists, nothing bills")

    def _found(self) -> BoxRecord | None:
        return self._session.found(self._request.tag, known=self._request.known)

    def _by_id(self, native_id: str) -> BoxRecord | None:
        row = self._session.row(box_number(native_id))
        return None if row is None else self._session.record(row)

    # ---------------------------------------------------------------- renting

    def _rent(self, memory: Memory) -> int:
        """The id of a new instance. Raises NoCapacity with every refusal when no offer could be rented."""
        refusals = self._refusals
        volume, machine = volumes.for_box(self._session, self._request, self._wait)
        market = market_at(self._client.source)
        for ask in self._free_asks(machine, refusals):
            name = (
                f"offer {ask.offer.key} ({ask.offer.gpu_count} x {ask.offer.gpu}, {ask.offer.price_per_hour:.4f} USD/h)"
            )
            try:
                self._must_be_wanted()
                return self._attempt(ask, volume, memory)
            except (NoCapacity, RentedAnyway) as error:
                refusals.append(f"{name}: {error}")
                self._wait.progress(f"{self._request.name}: {refusals[-1]}")
            except (RateLimited, DeadlineOver):
                market.give_back(ask.ask_id)
                raise
            finally:
                market.settle(ask.ask_id)
        if not refusals:
            raise NoCapacity(f"{self._request.name}: {self._nothing_fits(machine)}; nothing was rented")
        raise no_offer_left(refusals, self._request.name)

    def _free_asks(self, machine: int | None, refusals: list[str]) -> Iterator[Ask]:
        """The offers that no other box of this process takes. Each is reserved for this box when it is yielded. A
        search shows 64 offers at most, so it is repeated while other boxes are still trying those that it showed."""
        market, tried = market_at(self._client.source), set[int]()
        while True:
            busy = False
            for ask in self._asks(machine, refusals, tried):
                if market.take(ask.ask_id):
                    tried.add(ask.ask_id)
                    yield ask
                elif ask.ask_id not in market.settled:
                    busy = True
            if not busy:
                return
            self._wait.progress(f"{self._request.name}: other boxes of this run take what vast.ai shows; asking again")
            self._session.deadline.extend_for_queue(paced(SEARCH_AGAIN_SECONDS))
            self._session.deadline.pause(paced(SEARCH_AGAIN_SECONDS), "offers that no other box of this run takes")

    def _asks(self, machine: int | None, refusals: list[str], tried: set[int]) -> Iterator[Ask]:
        """The chosen offer, then all others by price, then those of a new search, since the first may be some seconds
        old. Leaves out those that were `tried`."""
        market, request, deadline = market_at(self._client.source), self._request, self._session.deadline
        constraints, shown = request.constraints, set[int]()
        if request.offer and not tried:
            ask = market.chosen(self._client, request.offer, constraints, deadline, bid=request.bid, machine=machine)
            if ask is not None and machine in (None, ask.machine_id):
                shown.add(ask.ask_id)
                yield ask
            else:
                refusals.append(f"offer {request.offer}: it is not to be had any more as it was chosen")
                self._wait.progress(f"{request.name}: {refusals[-1]}")
        for fresh in (False, True):
            for ask in market.asks(self._client, constraints, deadline, bid=request.bid, machine=machine, fresh=fresh):
                if ask.ask_id not in tried | shown:
                    shown.add(ask.ask_id)
                    yield ask

    def _attempt(self, ask: Ask, volume: int | None, memory: Memory) -> int:
        """Sends one PUT for one offer. Returns the id of the instance that it made."""
        bid = None
        if self._request.constraints.spot:
            bid = self._request.bid if self._request.bid is not None else up_to_step(ask.min_bid or 0.0)
        self._paid, self._egress = ask.offer.price_per_hour, ask.offer.network_per_gb
        linked = {}
        if volume is not None:
            linked = {"link_volume": volume, "mount_path": f"{ROOT}/{next(iter(self._request.mounts))}"}
        memory.sending()
        try:
            return self._client.create(
                ask.ask_id,
                self._session.deadline,
                image=self._request.image or DEFAULT_IMAGE,
                disk=float(disk_for(self._request.constraints)),
                env=dict(self._request.env),
                label=self._request.tag,
                onstart_cmd=self._on_start(),
                cancel_unavail=True,
                runtype="ssh_direct",
                price=bid,
                **linked,
            )
        except RentedAnyway as error:
            memory.made(str(error.contract))
            self._undo(error)
            if not isinstance(error.why, RequestRefused | NoCapacity | OutcomeUnknown):
                raise error.why from error  # no money, no right: no other offer will do
            raise
        except (OutcomeUnknown, StartQueued) as error:
            made = self._look_for_it()
            if made is None:
                raise OutcomeUnknown(
                    f"{error}. No box {self._request.tag} shows up so far; it may yet, and bill"
                ) from error
            return made
        except NoCapacity:
            raise
        except RequestRefused:
            if (made := self._look_for_it(looks=1)) is not None:
                return made
            raise

    def _on_start(self) -> str:
        """With the lease from the first second, where there is one. The text is in it and not among the variables: it
        is not documented how long one may be."""
        seconds, stop = self._request.lease_seconds, own_stop(start_lease.HERE)
        if seconds is None:
            return ON_START
        home = f"{ROOT}/{box_layout.HOME}"
        held = start_lease.text(seconds, home, "CONTAINER_API_KEY", "CONTAINER_ID", stop)
        return f"{start_lease.VARIABLE}=$(cat << \\END\n{held}\nEND\n)\n{start_lease.COMMAND}\n{ON_START}"

    def _undo(self, error: RentedAnyway) -> None:
        """Destroys the instance that a refused request made. It runs nothing yet, and no other call can have made
        it."""
        identifier = error.contract
        self._wait.progress(f"{self._request.name}: {error}; it is destroyed again")
        try:
            why = end_for_sure(self._session, identifier, paced(_GONE_SECONDS))
        except PlatformError as problem:
            why = str(problem)
        if why:
            raise still_creating(
                self._guess(identifier),
                f"{error.why}",
                f"instance {identifier} was made all the same, and that it is gone is not proved: {why}",
            ) from error

    def _look_for_it(self, looks: int = len(LOOK_AGAIN)) -> int | None:
        """The id of the box that a request with a lost answer may have made; None when none shows up."""
        session, known = self._session.with_deadline(VERB_SECONDS), self._request.known
        found = look_again(lambda: session.found(self._request.tag, known=known), LOOK_AGAIN[:looks])
        return int(found.native_id) if found is not None else None

    def _nothing_fits(self, machine: int | None) -> str:
        ceiling = self._request.max_price
        where = f" on machine {machine}, where its volume is" if machine is not None else ""
        below = f" for {ceiling:g} USD/h or less, disk included" if ceiling is not None else ""
        return f"vast.ai has no offer{where} that has all that is asked for{below}"

    # ---------------------------------------------------------------- waiting

    def _until_ready(self, identifier: int, *, adopted: bool) -> BoxRecord:
        seen = self._guess(identifier)
        reason = told = ""
        keyed = not self._request.public_key or (not adopted and self._let_in_at_once(identifier))
        shown = adopted
        deadline = self._session.deadline
        absent, dead_end = (Lasting(deadline, paced(GRACE_SECONDS)) for _ in range(2))
        begun, since = deadline.left(), time.monotonic()

        def ready() -> bool:
            nonlocal seen, reason, keyed, shown, told
            try:
                row = self._look(identifier, since, shown or begun - deadline.left() > paced(GRACE_SECONDS))
            except DeadlineOver:
                raise
            except Unreachable as error:  # the box goes on booting while vast.ai does not answer
                told = f" ({error})"
                return False
            if absent.held(row is None and shown):
                raise _Removed(f"{identifier} was removed, not by this command, while it was being made: nothing bills")
            if row is None:
                return False  # it was made a moment ago: not every answer knows it yet
            shown, seen, told = True, self._session.record(row), status_message(row)
            keyed = keyed or self._let_in(identifier, adopted=adopted)
            stuck = dead_end.held(seen.phase not in (Phase.RUNNING, Phase.CREATING))
            if seen.phase is Phase.RUNNING:
                return keyed and self._answers(seen)
            if is_fatal(row):
                reason = seen.note
                return True
            if seen.phase is Phase.CREATING:
                reason = ""
                return False
            if seen.phase is Phase.STOPPED and adopted:
                return True
            if stuck:
                reason = self._stands(seen) + told
                return True
            return False

        try:
            what = f"{self._request.name} ({identifier}) to be ready"
            why = self._session.watch(what, self._wait, behind="create", later=not adopted).until(ready)
            if why:
                seen = self._last_look(identifier, seen)
        except _Removed:
            raise
        except PlatformError as error:  # the error carries the id, so that it is not lost
            raise still_creating(seen, str(error)) from error
        if why or reason:
            raise still_creating(seen, why + told if why else "", reason or seen.note)
        ceiling = self._request.max_price
        if not adopted and ceiling is not None and (seen.price_per_hour or 0.0) > ceiling * 1.001:
            raise still_creating(
                seen,
                f"instance {identifier} costs {seen.price_per_hour:.4f} USD/h, and at most {ceiling:g} is allowed: "
                f"vast.ai offered it for {self._paid:.4f}. It runs and bills",
            )
        return seen

    def _look(self, identifier: int, since: float, thorough: bool) -> Row | None:
        """The instance in a list that all waiting callers share. `thorough`: prove its absence before returning
        None."""
        age = min(self._session.poll_seconds("create"), time.monotonic() - since)
        row = self._client.listed(identifier, self._session.deadline, age=age, forgotten=True)
        return self._session.row(identifier) if row is None and thorough else row

    def _let_in_at_once(self, identifier: int) -> bool:
        """Like `_let_in`, for a box that was rented just now, with a deadline of its own. A cancel must not end it
        early: the next create adopts a booting box, and could not get in without the key. After a failure `_let_in`
        tries again."""
        session = self._session.with_deadline(paced(KEY_SECONDS))
        with contextlib.suppress(PlatformError):
            session.client.attach_key(identifier, self._request.public_key, session.deadline)
            return True
        return False

    def _let_in(self, identifier: int, *, adopted: bool) -> bool:
        """Whether the box accepts the user's public key; tries once to add it."""
        deadline = self._session.deadline
        try:
            if adopted and self._client.holds_key(identifier, self._request.public_key, deadline):
                return True
            self._client.attach_key(identifier, self._request.public_key, deadline)
        except DeadlineOver:
            raise
        except (Unreachable, OutcomeUnknown, NoSuchThing):
            return False
        return True

    def _answers(self, seen: BoxRecord) -> bool:
        if seen.endpoint is None:
            return False
        mounts = {mount: f"{ROOT}/{mount}" for mount in self._request.mounts}
        return not probe.ON or answers(seen.native_id, seen.endpoint, mounts)

    def _last_look(self, identifier: int, seen: BoxRecord) -> BoxRecord:
        """The box's record when the waiting was ended early: the engine stores the state of this moment."""
        session = self._session.with_deadline(paced(10.0) + 5.0)
        with contextlib.suppress(PlatformError):
            row = session.client.listed(identifier, session.deadline)
            return session.record(row) if row is not None else seen
        return seen

    def _stands(self, seen: BoxRecord) -> str:
        if seen.phase is Phase.STOPPED and self._request.constraints.spot:
            return (
                f"the bid was too low from the start: instance {seen.native_id} stands still, and its disk bills. "
                "Raise the bid, or destroy it"
            )
        return f"instance {seen.native_id} is {seen.phase}, not running{_told(seen.note)}"

    def _guess(self, identifier: int) -> BoxRecord:
        """The record of a box that no answer shows yet."""
        return BoxRecord(
            str(identifier),
            self._request.tag,
            self._session.account,
            Phase.CREATING,
            self._paid or None,
            None,
            "vast.ai",
        )


def _told(note: str) -> str:
    return f" ({note})" if note else ""
