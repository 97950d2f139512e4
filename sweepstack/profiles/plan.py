"""What a stack config comes to on one platform: plain values for the components and a delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.channel.host_address import HostAddress
from sweepstack.config.model import Metrics
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.budget import Budget
from sweepstack.core.job import JobInput, Smoke
from sweepstack.core.lease_terms import HELD, NONE, UNHELD
from sweepstack.core.records import Again, Approval, ArtifactSpec, Cell
from sweepstack.core.roster import Roster
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import ConfigError


@dataclass(frozen=True)
class Durable:
    """The tier that outlives the boxes: the volume's name, and where a box sees it.

    `kept`: it belongs to a stack of volumes and is only looked up here. `path`: where the job expects it, "" for
    nowhere in particular. `keep_until`: a day, as ISO 8601; `price_per_gb_month`: USD, None unknown. `place`: where it
    lies on a host that has it already; then no volume is made or looked up. `least`: bytes that a volume which is kept
    has to hold.
    """

    volume: str
    mount: str
    tier: str
    kept: bool = False
    path: str = ""
    keep_until: str = ""
    price_per_gb_month: float | None = None
    place: str = ""
    least: int = 0

    @property
    def kept_volume(self) -> bool:
        """Whether it is a volume that a stack of volumes keeps."""
        return self.kept and not self.place


@dataclass(frozen=True)
class Site:
    """How a box that is entered by SSH is set up. `places`: tier → where it lies on the host, the volume's name filled
    in; tiers that lie below our own root are not in it.

    `~/` in them is the login's home. `claims`: the places that a box can't do without
    (`sweepstack.core.resources.PlaceFacts`).
    """

    python: str
    places: Mapping[str, str]
    claims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def places_input(self) -> dict[str, Any] | None:
        """Where the tiers of a box lie on its host, as an input: path on the box, or a tier's name → folder."""
        return {key: facts["path"] for key, facts in sorted(self.claims.items())} or None

    def claims_input(self) -> dict[str, Any] | None:
        """What each of these must be, as an input of its own: it changes with every cell, and a box does not."""
        claims = {
            key: {name: value for name, value in facts.items() if name != "path"} for key, facts in self.claims.items()
        }
        return dict(sorted(claims.items())) or None


@dataclass(frozen=True)
class BoxPlan:
    """One box that is wanted, and its share of the cells, in roster order. `want`: running or stopped.

    `resources`: what it must have; `slots`: cells at once on it; `gpus`: of it; each its own, or the job's. `placed`:
    the offer that was chosen for it (`sweepstack.config.rent.PlacedOffer`), where one was. `host`: of the user's own,
    "" where boxes are rented. `grace_seconds`: between SIGTERM and SIGKILL of a cell there; None: the runner's own.
    """

    name: str
    cells: tuple[Cell, ...]
    want: str
    resources: Mapping[str, Any]
    slots: int
    gpus: int
    placed: Mapping[str, Any] | None = None
    host: str = ""
    grace_seconds: float | None = None
    returns: str = ""
    """The folder that it comes back to, where a person runs it; else ""."""
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    """What its workers ask of a cluster (`sweepstack.core.job.SchedulerInput`); empty: it is no cluster's."""
    nodes: Mapping[str, Any] = field(default_factory=dict)
    """Where the other nodes of its cells are (`sweepstack.core.job.NodesInput`); empty: a cell has one."""

    @property
    def at_once(self) -> int:
        """Cells at once on all its workers."""
        return self.slots * int(self.scheduler.get("workers", 1))


@dataclass(frozen=True)
class Plan:
    """All that the components need. `reasons`: why this platform and not others; `notes`: what is not used here.

    `durable` is None where nothing on a box outlives it.
    """

    platform: str
    adapter: str
    boxes: tuple[BoxPlan, ...]
    gone: tuple[str, ...]
    roster: Roster
    job: JobInput
    """What is the same on each box. `code` is not known yet (`NO_CODE`)."""
    artifacts: tuple[ArtifactSpec, ...]
    metrics: Metrics | None
    teardown: TeardownFacts
    durable: Durable | None
    price_per_hour: float | None
    max_price: float | None
    bid: float | None
    budget: Budget | None
    when_done: str
    smoke: Smoke | None
    pull_to: str
    approval: Approval | None
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    site: Site | None = None
    lease_text: str = ""
    """`lease` as the person wrote it; "" where no bill is sent."""
    lease_from_start: bool = False
    """Whether it holds before anything was launched: `OwnKey.from_start`."""
    list_lag: float = 900.0
    """Seconds: `sweepstack.profiles.model.Profile.list_lag`."""
    ignore_balance: str = ""
    """Why boxes are rented although the account's balance does not carry them; "" where they are not."""
    checked: tuple[str, ...] = ()
    """What to know of old facts of the profile, an image that is not pinned, and room that is needed: for people."""
    retries: Mapping[str, Again] = field(default_factory=dict)
    """cell → its retry by `cells.retry` that is not on record yet"""
    refused_new: ConfigError | None = None
    """`StackConfig.refused_new`."""
    search: str = ""
    """`SearchConfig.text`; "" where nothing is drawn."""
    cluster: str = ""
    """The address of the cluster whose pods are the workers; else ""."""

    @property
    def lease_words(self) -> tuple[str, ...]:
        """What the preview says of the lease."""
        if (lease := self.job.lease) is not None:
            begins = HELD if self.lease_from_start else UNHELD
            return (lease.words, begins.format(lease.text))
        if self.lease_text == NONE:
            return ("lease none: boxes bill until a person or `sweepctl tend` ends that, also when no one looks",)
        return ()

    def adapter_of(self, box: BoxPlan) -> str:
        """What speaks to this box's platform: with its host's address, where it is on a host of the user's own, or with
        that of its cluster."""
        if box.returns:
            return f"{self.adapter}:{box.returns}"
        if not box.host:
            return f"{self.adapter}:{self.cluster}" if self.cluster else self.adapter
        host = HostAddress.parse(box.host)
        if not host.root and self.root:
            host = replace(host, root=self.root)
        return f"{self.adapter}:{host}"

    @property
    def root(self) -> str:
        """Where boxes lie on a host whose address names no folder: on its data tier, where that has a place that is the
        same for every login; else "", the default of its user."""
        place = self.site.places.get("data", "") if self.site is not None else ""
        return f"{place.rstrip('/')}/sweepstack" if place.startswith("/") else ""
