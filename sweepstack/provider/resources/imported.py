"""`pulumi import` of a box that was rented by hand, and the `up` that takes it into the sweep.

The import rents and ends nothing. It looks the box up by its id, and the engine puts it into its state, locked. The
engine does not say whether it only previews an import, so the record that it leaves (`imports/<box>.json`) is a hint:
who reads it asks the state. While the stack file does not name the box, no `up` goes on: with a program that lacks it
the engine would delete it. Named there, the same entry of the state becomes a box of the sweep, without a replace.

What lay on it before belongs to no cell, and is not counted: a person has to give that up by name, before it may end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.billing.stray import import_command, not_taken
from sweepstack.core.records import BOX_NAME, Birth, Imported
from sweepstack.core.resources import BoxInputs, BoxState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.box_layout import DURABLE, JOURNAL, OWN_TIERS, box_of, box_tag
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, SweepstackError, TeardownRefused
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.provider.resources import before_renting, policy_limits, teardown
from sweepstack.provider.resources.base import Failure, ReadAnswer
from sweepstack.provider.resources.create import seen_of
from sweepstack.provider.resources.founding import founded
from sweepstack.provider.resources.held_by_another import sign_box
from sweepstack.provider.session import Operation
from sweepstack.status.engine.state import read_state
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.ownership import read_owner, who

FOLDER = "imports"
FOLDERS_SECONDS = 60.0


def look_up(op: Operation, asked: str, load: Callable[[str], Platform]) -> ReadAnswer[BoxInputs, BoxState]:
    """The box `PLATFORM:ID` as it goes into the state, under the resource's name. Makes our folder on it, and claims
    the evidence of a sweep that has none yet; costs nothing. Blocks while platform and box answer.

    Raises SweepstackError where it is no box that this sweep may have: of another sweep, not running, not let in.
    `load`: the platform of an adapter.
    """
    named, _, native_id = asked.partition(":")
    if not native_id:
        way = import_command(op.stack, op.name, f"PLATFORM:{asked}")
        raise SweepstackError(f"{asked} does not say where the box is. Next: {way}")
    if re.fullmatch(BOX_NAME, op.name) is None:
        raise SweepstackError(f"{op.name} can't be a box's name: lower-case letters, digits and -, 40 at most")
    from sweepstack.provider.resources.import_plans import plan_of_box

    plan = plan_of_box(op, named)
    platform = load(plan.adapter)
    if not isinstance(platform, HasMarket):
        raise SweepstackError(f"{named} rents nothing: a machine of your own is named in the stack file (hosts)")
    store, _, _ = founded(op, op.project, op.stack, plan.pull_to)
    births = store.births()
    living = (birth for birth in births if birth.ended_at is None)
    box = next((birth for birth in living if birth.box == op.name or birth.native_id == native_id), None)
    if box is not None:
        raise SweepstackError(f"this sweep has box {box.box} on record ({box.native_id or box.tag} on {box.platform})")
    record, _ = _unowned(platform, native_id, store.marker.identity)
    number = 1 + max((birth.generation for birth in births if birth.box == op.name), default=0)
    inputs = BoxInputs(
        identity=store.marker.identity,
        evidence=store.objects.uri,
        adapter=plan.adapter,
        name=op.name,
        imported=True,
        roster_digest=plan.roster.digest,
        teardown=plan.teardown,
    )
    tag = box_tag(inputs.identity, op.name, number)
    known = {"native_id": native_id, "account": record.account, "price_per_hour": record.price_per_hour}
    seen = {"phase": record.phase.value, "created_at": record.created_at, **seen_of(record)}
    state = BoxState(**inputs.model_dump() | known | seen, generation=number, tag=tag)
    store.write_record(_hint(op.name), Imported(box=op.name, platform=named, native_id=native_id))
    op.info(in_the_way(op.stack, state, op.urn))
    return ReadAnswer(inputs, state)


def _hint(box: str) -> str:
    return f"{FOLDER}/{box}.json"


def _unowned(platform: Platform, native_id: str, identity: str) -> tuple[BoxRecord, Channel]:
    """The box, which runs, lets our key in and is no other sweep's. Raises SweepstackError."""
    account = platform.account()
    record = platform.get(native_id, account)
    if record.phase is Phase.GONE:
        raise SweepstackError(f"{platform.name} has no box {native_id} in the account {account}")
    if (marked := box_of(record.tag)) is not None:
        whose = "this sweep: pulumi up adopts it" if marked[0] == identity else "another sweep, and stays its"
        raise SweepstackError(f"{native_id} carries the mark {record.tag} of {whose}")
    if record.phase is not Phase.RUNNING:
        why = f" ({record.note})" if record.note else ""
        raise SweepstackError(
            f"{native_id} is {record.phase}{why}: import it once it runs, since it says itself whose it is"
        )
    from sweepstack.channel.ssh.channel import SshChannel  # reads the user's keys

    channel = platform.channel(native_id, account)
    try:
        if isinstance(channel, SshChannel):
            channel.prepare()
        owner, journal = read_owner(channel), channel.size(JOURNAL)
    except (PlatformError, OSError) as error:
        raise SweepstackError(
            f"{native_id} can't be read, so whose it is is not known: {error}. Next: let your key in there (the one of "
            "`sweepctl ssh`), and import it again"
        ) from error
    if (owner is not None and owner.identity != identity) or journal is not None:
        by = channel.absolute(JOURNAL)
        whose = f"{owner.person} for {owner.sweep}" if owner is not None else f"a sweep, as {by} says"
        raise SweepstackError(f"{native_id} is held by {whose}: it is not taken over")
    return record, channel


def check(op: Operation, evidence: Evidence, old: BoxInputs, new: BoxInputs) -> tuple[BoxInputs, list[Failure]]:
    """The inputs and failures of the change that takes an imported box (`old`), in a preview and in an `up`."""
    if new.imported:  # the engine checks what an import answered
        return new, []
    binds = policy_limits.bound(op, evidence, None, new.identity)
    new = new.model_copy(update={"policy": binds.copy, "clearance": "locked"})
    failures = policy_limits.box_problems(binds, new.model_dump(mode="json"), True)
    if new.adapter != old.adapter:
        there = f"box {new.name} was imported on {old.adapter}, and the stack file has it on {new.adapter}"
        failures.append(Failure("adapter", f"{there}: on: {old.adapter} for it"))
    if new.mounts:
        failures.append(Failure("mounts", f"box {new.name} was rented without the volume of mounts: take mounts out"))
    op.info(f"box {new.name}: taken as it is; nothing is rented")
    return new, failures


def take(op: Operation, at: BoxAt, old: BoxState, new: BoxInputs) -> BoxInputs:
    """Puts the imported box on record, so that it is adopted by its id; writes on it whose it is. From now on it counts
    to what the sweep costs. Raises SweepstackError where it is another sweep's meanwhile, for what the budget or the
    policy refuses, and while a teardown is open."""
    store = at.evidence.store
    teardown.refuse_during_teardown(store, f"box {old.name}", op.stack)
    new = policy_limits.require_policy(op, at.evidence, new, True)
    before_renting.refuse_past(op, store, new.budget, old.name, old.price_per_hour)
    if new.max_price is not None and (old.price_per_hour or 0.0) > new.max_price:
        bills = f"box {old.name} bills ${spell_rate(old.price_per_hour or 0.0)}/h"
        raise SweepstackError(
            f"{bills}, above max_price (${new.max_price}/h): it is not taken. Next: a higher max_price"
        )
    _, channel = _unowned(at.platform, old.native_id, old.identity)
    sign_box(op, channel, store, box=old.name, generation=old.generation)
    folders = [channel.absolute(folder) for folder in (*OWN_TIERS, DURABLE)]
    made = channel.run(["mkdir", "-p", *folders], timeout=FOLDERS_SECONDS)
    if made.returncode:
        raise SweepstackError(f"box {old.name}: {folders[0]} can't be made: {made.stderr.decode(errors='replace')}")
    birth = Birth(
        box=old.name,
        generation=old.generation,
        tag=old.tag,
        platform=old.adapter,
        account=old.account,
        native_id=old.native_id,
        price_per_hour=old.price_per_hour,
        begun_at=datetime.now(UTC),
        created_at=old.created_at,
        policy=teardown.policy_digest(new.policy),
        notes_requests=True,
        imported=True,
        by=who(),
    )
    store.write_birth(birth)
    return new


def taken(store: EvidenceStore, box: str) -> None:
    """Takes the record of an import away: its box is one of the sweep now."""
    store.write_record(_hint(box), None)


def refuse_end(op: Operation, box: BoxState) -> None:
    """Raises TeardownRefused for an imported box that no `up` has taken: its end is not this sweep's to ask for."""
    if box.imported:
        raise TeardownRefused(f"REFUSED. {in_the_way(op.stack, box, op.urn)}")


def not_declared(root: Path, stack: str, evidence: Evidence, declared: Collection[str], *, up: bool) -> str:
    """Why nothing may be changed: the state has an imported box that the program does not declare. "" where it has
    none. Asks the engine only where an import has left its record; an `up` takes that of an import away which was not
    gone through with. Where the evidence can't be read, the box's delete refuses. Raises SweepstackError where the
    state can't be read."""
    try:
        hints, torn = evidence.store.readable(FOLDER, Imported)
    except (EvidenceError, OSError):
        return ""
    if not torn and all(one.box in declared for one in hints):
        return ""
    boxes = [box for box in read_state(stack, root).boxes if box.imported]
    for hint in hints if up else ():
        if all(hint.box != box.name for box in boxes):
            evidence.store.write_record(_hint(hint.box), None)
    waiting = [box for box in boxes if box.name not in declared]
    return "\n".join(f"Nothing was changed. {in_the_way(stack, box, box.urn)}" for box in waiting)


def in_the_way(stack: str, box: BoxState, urn: str) -> str:
    """What an imported box is while the stack file does not name it, and the two ways on."""
    price = "at a price that is not known" if box.price_per_hour is None else f"${spell_rate(box.price_per_hour)}/h"
    what = f"box {box.name} ({box.native_id} on {box.adapter})"
    return not_taken(what, f"it bills {price}", f"{box.name}: {{}} below boxes", stack, urn)
