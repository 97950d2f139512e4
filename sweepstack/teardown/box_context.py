"""One box: the facts by which the check decides about its end, its platform and its evidence."""

from __future__ import annotations

from datetime import datetime

from sweepstack.billing.cost import BoxCosts
from sweepstack.core.box_end import Moves
from sweepstack.core.records import Birth
from sweepstack.core.resources import BoxState, GateState, QueueState
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.host.capabilities import KnowsKeys
from sweepstack.onbox.host.platform import BoxRecord, Platform
from sweepstack.platforms.registry import load_platform


@dataclass(frozen=True)
class BoxFacts:
    """What the state remembers of a box: enough to end it weeks later from another computer."""

    identity: str
    evidence: str
    name: str
    native_id: str
    account: str
    generation: int
    verb: str
    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    roster_digest: str
    artifacts_digest: str | None = None
    price_per_hour: float | None = None
    created_at: datetime | None = None
    costs: BoxCosts | None = None
    moves: Moves | None = None
    """When the address of its host changes."""
    policies: tuple[str, ...] = ()
    """The policies that the state has (`sweepstack.core.policy_text`), as text: that of the entry, or of all."""
    urn: str = ""
    """Of the box, or of a resource on it, as the engine calls it now; "" where that is not known."""

    @classmethod
    def of(cls, known: BoxState | QueueState | GateState) -> BoxFacts:
        """What the state of any of its resources has of it, and what its end does there. Only that of the Box has price
        and age."""
        box, ends = known if isinstance(known, BoxState) else None, known.teardown
        return cls(
            identity=known.identity,
            evidence=known.evidence,
            name=known.name if isinstance(known, BoxState) else known.box_name,
            native_id=known.native_id if isinstance(known, BoxState) else known.box,
            account=known.account,
            generation=known.generation,
            verb=ends.verb,
            kills=ends.kills,
            keeps=ends.keeps,
            roster_digest=known.roster_digest,
            artifacts_digest=(
                artifacts_digest(known.artifacts) if isinstance(known, QueueState) else known.artifacts_digest
            ),
            price_per_hour=box.price_per_hour if box else None,
            created_at=box.created_at if box else None,
            moves=ends.moves,
            policies=in_entry(known.policy),
        )


def in_entry(policy: str | None) -> tuple[str, ...]:
    """The policies of one entry of the state."""
    return () if policy is None else (policy,)


def find_born(platform: Platform, birth: Birth) -> BoxRecord | None:
    """The box of a birth record by its tag: `Platform.find_by_tag` for its account, which the key that asked for it is
    of."""
    if birth.key and isinstance(platform, KnowsKeys):
        platform.recall(birth.account, birth.key)
    return platform.find_by_tag(birth.tag, birth.account)


class BoxAt:
    """A box as its platform knows it, and the evidence that may say how it ended or was stopped.

    An entry (a command, a handler, the answer to an invoke) makes it and passes it on: the code below opens no evidence
    and loads no platform. To make one contacts no machine and reads no file.
    """

    name = ""
    """What the stack file calls it; "" where that is not known."""

    def __init__(
        self,
        adapter: str,
        native_id: str,
        account: str,
        evidence: Evidence | None = None,
        platform: Platform | None = None,
        moves: Moves | None = None,
    ) -> None:
        """`moves`: when the address of its host changes."""
        self.adapter, self.native_id, self.account = adapter, native_id, account
        self._moves = moves
        self.evidence = evidence or Evidence("")
        self._platform = platform

    @classmethod
    def of(cls, birth: Birth, evidence: Evidence | None = None) -> BoxAt:
        """The box of a birth record. Its id is "" if none is on record."""
        return BoxAt(birth.platform, birth.native_id or "", birth.account, evidence)

    @property
    def platform(self) -> Platform:
        """The platform behind `adapter`. Raises as `load_platform`."""
        if self._platform is None:
            self._platform = load_platform(self.adapter, self._moves)
        return self._platform

    def channel(self) -> Channel:
        """A channel to the box. Raises PlatformError."""
        return self.platform.channel(self.native_id, self.account)


class BoxContext(BoxAt):
    """The same, with the facts by which the check decides about its end."""

    def __init__(
        self, facts: BoxFacts, adapter: str, evidence: Evidence | None = None, platform: Platform | None = None
    ) -> None:
        evidence = evidence or Evidence(facts.evidence)
        super().__init__(adapter, facts.native_id, facts.account, evidence, platform, facts.moves)
        self.facts, self.name = facts, facts.name

    @property
    def store(self) -> EvidenceStore:
        """The open evidence. Raises EvidenceError."""
        return self.evidence.store

    def about(self, facts: BoxFacts) -> BoxContext:
        """The same box with other facts. What is open stays open."""
        return BoxContext(facts, self.adapter, self.evidence, self._platform)
