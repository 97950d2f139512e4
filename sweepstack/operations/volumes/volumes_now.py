"""The volumes of a stack of volumes now: what each costs, which sweeps used it, whether it may end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sweepstack.core.observation import Existence
from sweepstack.core.records import Approval
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import VolumeRecord
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.sweep.target import approval_of
from sweepstack.operations.volumes.end_check import (
    VolumeContext,
    VolumeEnding,
    VolumeFacts,
    VolumeSeen,
    VolumeVerdict,
    observe_volume,
    policies,
    stack_of,
)
from sweepstack.operations.volumes.mounting_sweeps import Survey, recorded
from sweepstack.platforms.registry import load_platform, need
from sweepstack.profiles.load import load_profile
from sweepstack.status.engine.state import VolumeEntry
from sweepstack.teardown.check import may_end
from sweepstack.teardown.who_signed import OnRecord, signature_states, signed


@dataclass(frozen=True)
class VolumeOfState:
    """One volume of the state. `verdict`: whether it may end by the approval in the stack file. `approvals`: those of
    its end, by whom each is signed."""

    facts: VolumeFacts
    seen: VolumeSeen
    verdict: VolumeVerdict
    approvals: tuple[OnRecord, ...] = ()

    @property
    def state(self) -> str:
        """locked, cleared, gone, or unknown."""
        if self.seen.existence is Existence.GONE:
            return "gone"
        if self.seen.existence is not Existence.EXISTS or self.seen.account_problem:
            return "unknown"
        return "cleared" if self.verdict.allowed else "locked"

    @property
    def signed(self) -> list[str]:
        """See `who_signed.signed`."""
        return signed(self.approvals, self.verdict.reasons)

    @property
    def users(self) -> tuple[str, ...]:
        """The sweeps that used it, as far as the survey knows."""
        return tuple(user.stack for user in self.verdict.users)


@dataclass
class Holding:
    """All volumes of the stack.

    `orphans`: volumes with its tag that are not in its state; `problems`: what is not known.
    """

    volumes: tuple[VolumeOfState, ...] = ()
    orphans: tuple[VolumeRecord, ...] = ()
    problems: list[str] = field(default_factory=list)

    @property
    def bills(self) -> str:
        """Whether something bills: yes, nothing, or unknown, as for a sweep."""
        there = [one for one in self.volumes if one.state != "gone"]
        if self.orphans or any(one.facts.price_per_month != 0 for one in there):
            return "yes"
        return "unknown" if self.problems else "nothing"


def guarded(sources: Sources) -> list[VolumeEntry]:
    """The volumes of this stack, sorted by name."""
    return sorted((entry for entry in sources.state.volumes if entry.guarded), key=lambda entry: entry.name)


def holding(sources: Sources, ask: Callable[[Sequence[str]], Survey] | None = None) -> Holding:
    """Asks the platform for each volume, and for other volumes with the stack's tag. Reads only; an outage never
    raises.

    `ask`: finds which sweeps use them (native ids → survey); by default it reads the stack's own records, in which each
    sweep notes its use.
    """
    entries = guarded(sources)
    ids = [entry.native_id for entry in entries]
    found = ask(ids) if ask is not None else recorded(sources.store, ids) if sources.store else Survey()
    held = Holding(problems=list(dict.fromkeys([*found.problems, *sources.state.problems])))
    if sources.problem:
        held.problems.append(sources.problem)
    approval = approval_of(sources.target, held.problems)
    kept = []
    for entry in entries:
        volume = VolumeContext.of_entry(entry)
        seen, _ = observe_volume(volume, found.of(entry.native_id))
        verdict = may_end(VolumeEnding(volume, approval, seen, found), full=False)
        kept.append(
            VolumeOfState(volume.facts, seen, verdict, _approvals(entry, volume, seen, found, approval, verdict))
        )
        if kept[-1].state == "unknown":
            held.problems.append(f"volume {entry.name}: {seen.account_problem or seen.note or 'not known'}")
    held.volumes = tuple(kept)
    held.orphans = _orphans(sources, set(ids), held.problems)
    return held


def _approvals(
    entry: VolumeEntry,
    volume: VolumeContext,
    seen: VolumeSeen,
    users: Survey,
    proposed: Approval | None,
    verdict: VolumeVerdict,
) -> tuple[OnRecord, ...]:
    """Those of its end, in the state and in the stack file."""
    in_state = entry.approval
    checked: list[tuple[str, Approval | None, Sequence[str]]] = []
    if in_state is not None and in_state != proposed:
        checked.append(
            ("the state", in_state, may_end(VolumeEnding(volume, in_state, seen, users), full=False).unsigned)
        )
    checked.append(("the stack file", proposed, verdict.unsigned))
    binds, now = policies(volume), datetime.now(UTC)
    return signature_states(checked, entry.native_id, stack_of(volume.facts), binds, now=now)


def adapters_of(sources: Sources) -> set[str]:
    """The platforms of this stack's volumes: those in the state, and the one in the stack file."""
    found = {entry.adapter for entry in guarded(sources)}
    with contextlib.suppress(ConfigError):  # without a valid stack file the state is enough
        profile = load_profile(str(sources.target.file.sweep().get("platform")))
        found |= {profile.adapter} if not profile.unavailable else set()
    return found


def as_json(one: VolumeOfState) -> dict[str, Any]:
    """The volume in the JSON document."""
    return {
        "name": one.facts.name,
        "native_id": one.facts.native_id,
        "state": one.state,
        "reasons": list(one.verdict.reasons),
        "size_gb": one.facts.size_gb,
        "where": one.facts.where,
        "usd_per_month": one.facts.price_per_month,
        "keep_until": one.facts.keep_until or None,
        "used_by": list(one.users),
        "approvals": [approval.as_json() for approval in one.approvals],
    }


def _orphans(sources: Sources, known: set[str], problems: list[str]) -> tuple[VolumeRecord, ...]:
    identity = sources.state.identity
    if identity is None:
        return ()
    found: list[VolumeRecord] = []
    for adapter in sorted(adapters_of(sources)):
        try:
            platform = need(load_platform(adapter), HasVolumes)
            found += platform.list_volumes(box_layout.volume_tag(identity.identity, ""))
        except SweepstackError as error:
            problems.append(f"what {adapter} keeps for this stack is not known: {error}")
    return tuple(record for record in found if record.native_id not in known)
