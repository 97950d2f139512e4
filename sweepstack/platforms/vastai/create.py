"""Rents one box: finds it by its tag, or rents the cheapest offer, and waits until it can be used.

vast.ai has no idempotency key. Instead: a lock among this user's processes with a note of what its last holder made,
the tag as the label, a complete list before a create, one PUT for each offer, and the list again after a lost answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

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
from sweepstack.platforms.common import reach_box, renting
from sweepstack.platforms.common.deadline import DeadlineOver, Lasting
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import Comes, Hooks, Try, first_granted, look_again
from sweepstack.platforms.common.tag_lock import Memory
from sweepstack.platforms.vastai import volumes
from sweepstack.platforms.vastai.api import VERB_SECONDS, Row
from sweepstack.platforms.vastai.offers import Ask, disk_for, market_at, up_to_step
from sweepstack.platforms.vastai.power import end_for_sure, own_stop
from sweepstack.platforms.vastai.session import Session, box_number, still_creating
from sweepstack.platforms.vastai.states import (
    BILLS,
    FOLDERS,
    ROOT,
    NoSuchThing,
    RentedAnyway,
    StartQueued,
    answers,
    is_fatal,
    status_message,
)

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


class Renting:
    """One create; costs money. See `Platform.create`."""

    def __init__(self, session: Session, request: BoxRequest, wait: Wait) -> None:
        self._session = session
        self._client = session.client
        self._request = request
        self._wait = wait
        self._paid = 0.0
        self._egress: float | None = None

    def run(self) -> BoxRecord:
        """The box, ready to be used. Blocks. Raises what `Platform.create` raises."""
        request = self._request
        if not request.tag or len(request.tag) > 256:
            raise PlatformError(f"the tag {request.tag[:80]!r} can't be a label of vast.ai: 1 to 256 characters")
        if request.public_key and len(request.public_key.split()) < 2:
            raise PlatformError("the public key is none: `ssh-ed25519 AAAA…` is what one looks like")
        hooks = Hooks(
            "vastai",
            self._session.account,
            by_id=self._by_id,
            by_tag=lambda age: self._found(),
            rent=self._rent,
            adopt=self._must_fit,
            ready=lambda record, made: self._until_ready(record, adopted=not made),
            dear=self._must_not_be_too_dear,
        )
        return renting.create(hooks, request, self._wait)

    def _must_fit(self, present: BoxRecord) -> None:
        """Returns when the box that carries the tag is proved to have the volumes that are asked for."""
        tag = self._request.tag
        if present.phase is Phase.ENDING:
            raise NotYetGone(f"instance {present.native_id} carries the tag {tag} and is being destroyed: finish that")
        volumes.must_fit(self._session, int(present.native_id), tag, set(self._request.mounts.values()))

    def _found(self) -> BoxRecord | None:
        return self._session.found(self._request.tag, known=self._request.known)

    def _by_id(self, native_id: str) -> BoxRecord | None:
        row = self._session.row(box_number(native_id))
        return None if row is None else self._session.record(row)

    # ---------------------------------------------------------------- renting

    def _rent(self, memory: Memory) -> BoxRecord:
        """A new instance, before any answer shows it. Raises NoCapacity with every refusal when no offer could be
        rented."""
        volume, machine = volumes.for_box(self._session, self._request, self._wait)
        refusals: list[str] = []
        tries = self._tries(volume, machine, refusals, memory)

        def none_left(_reasons: list[PlatformError], refused: list[str]) -> PlatformError:
            nothing = f"{self._request.name}: {self._nothing_fits(machine)}; nothing was rented"
            return no_offer_left(refused, self._request.name) if refused else NoCapacity(nothing)

        try:
            return first_granted(
                tries, None, self._request, self._wait, self._session.deadline, memory, refusals, none_left
            )
        finally:
            tries.close()  # gives the last offer free

    def _tries(
        self, volume: int | None, machine: int | None, refusals: list[str], memory: Memory
    ) -> Generator[Try[BoxRecord]]:
        market = market_at(self._client.source)
        for ask in self._free_asks(machine, refusals):
            offer = ask.offer
            what = f"offer {offer.key} ({offer.gpu_count} x {offer.gpu}, {offer.price_per_hour:.4f} USD/h)"
            try:
                yield Try(what, f"vast.ai for {what}", partial(self._asked, ask, volume, memory))
            finally:
                market.settle(ask.ask_id)

    def _asked(self, ask: Ask, volume: int | None, memory: Memory) -> BoxRecord | PlatformError:
        """The new instance, or the refusal where the next offer is worth a try."""
        try:
            return self._guess(self._attempt(ask, volume, memory))
        except (NoCapacity, RentedAnyway) as error:
            return error
        except (RateLimited, DeadlineOver):
            market_at(self._client.source).give_back(ask.ask_id)
            raise

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
        seconds, stop = self._request.lease_seconds, own_stop(renting.HERE)
        if seconds is None:
            return ON_START
        home = f"{ROOT}/{box_layout.HOME}"
        held = renting.lease_text(seconds, home, "CONTAINER_API_KEY", "CONTAINER_ID", stop)
        return f"{renting.LEASE_VARIABLE}=$(cat << \\END\n{held}\nEND\n)\n{renting.LEASE_COMMAND}\n{ON_START}"

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

    def _until_ready(self, record: BoxRecord, *, adopted: bool) -> BoxRecord:
        if adopted and record.phase.at_rest:
            return record
        identifier = int(record.native_id)
        keyed = not self._request.public_key or (not adopted and self._let_in_at_once(identifier))
        shown, told = adopted, ""
        deadline = self._session.deadline
        absent, dead_end = (Lasting(deadline, paced(GRACE_SECONDS)) for _ in range(2))
        begun, since = deadline.left(), time.monotonic()

        def look() -> BoxRecord | None:
            nonlocal keyed, shown, told
            row = self._look(identifier, since, shown or begun - deadline.left() > paced(GRACE_SECONDS))
            if absent.held(row is None and shown):
                return replace(record, phase=Phase.GONE)
            if row is None:
                return None  # it was made a moment ago: not every answer knows it yet
            shown, seen, told = True, self._session.record(row), status_message(row)
            keyed = keyed or self._let_in(identifier, adopted=adopted)
            on_its_way = seen.phase in (Phase.RUNNING, Phase.CREATING)
            if dead_end.held(not on_its_way):
                return replace(seen, note=f"{self._stands(seen)}{told}".strip())
            return seen if on_its_way or is_fatal(row) or (adopted and seen.phase is Phase.STOPPED) else None

        def silent(seen: BoxRecord) -> str:
            if not keyed:
                return "your key is not let in yet"
            return "" if self._answers(seen) else "it runs, and does not answer"

        what = f"{self._request.name} ({identifier}) to be ready"
        watch = self._session.watch(what, self._wait, behind="create", later=not adopted)
        comes = Comes(
            look,
            silent,
            BILLS,
            "removed",
            "vast.ai does not say why",
            waits=lambda seen: told.strip(" ()"),
            rests=adopted,
            last=self._last_look,
        )
        seen = renting.until_ready(self._request.name, record, comes, watch)
        return seen if adopted else replace(seen, egress_per_gb=self._egress)

    def _must_not_be_too_dear(self, seen: BoxRecord) -> None:
        """Of a box that was rented just now: one that was adopted may bid more by now."""
        ceiling = self._request.max_price
        if self._paid and ceiling is not None and (seen.price_per_hour or 0.0) > ceiling * 1.001:
            raise still_creating(
                seen,
                f"instance {seen.native_id} costs {seen.price_per_hour:.4f} USD/h, and at most {ceiling:g} is allowed: "
                f"vast.ai offered it for {self._paid:.4f}. It runs and bills",
            )

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
        return not reach_box.ON or answers(seen.native_id, seen.endpoint, mounts)

    def _last_look(self, seen: BoxRecord) -> BoxRecord:
        """The box's record when the waiting was ended early: the engine stores the state of this moment."""
        session = self._session.with_deadline(paced(10.0) + 5.0)
        with contextlib.suppress(PlatformError):
            row = session.client.listed(int(seen.native_id), session.deadline)
            return session.record(row) if row is not None else seen
        return seen

    def _stands(self, seen: BoxRecord) -> str:
        if seen.phase is Phase.STOPPED and self._request.constraints.spot:
            return "the bid was too low from the start: it stands still. Raise the bid, or destroy it"
        return seen.note

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
