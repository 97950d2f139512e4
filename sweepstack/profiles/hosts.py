"""Boxes on hosts of the user's own: what the config has to say of them, and what can't be.

Where the tiers of a box lie on such a host, and what the durable one can't hold, is worked out here, too. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from sweepstack.channel.host_address import HostAddress
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.bucket_address import SCHEME
from sweepstack.core.paths import docs_page
from sweepstack.profiles.layout import Layout, Tier
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import Durable

VERB: Final = "destroy"
HOME_TIER = "data"
"""The tier that the queue and its journal lie on (`sweepstack.onbox.common.box_layout.HOME`)."""
BESIDES = 4
"""Files of a sealed cell that are no artifacts: its log, its manifest, and the two checkpoints that are kept."""


def host_problems(config: StackConfig, profile: Profile) -> list[str]:
    """Why the boxes can't be on the hosts that the config names; empty when they can."""
    problems = _returns(config, profile)
    hosts = {name: box.host for name, box in config.boxes.items() if box.want != "gone"}
    named = {name: HostAddress.parse(host).login for name, host in hosts.items() if host}
    if profile.ssh is None:
        override = config.overrides.get(profile.platform)
        if override is not None and override.python is not None:
            problems.append(
                f"overrides.{profile.platform}.python is for hosts that are entered by SSH; take it out, and let "
                "job.image or job.setup bring the Python"
            )
        return problems + [
            f"boxes.{name}.host is a host of your own, and {profile.platform} makes its boxes itself: leave it out"
            for name in named
        ]
    problems += [
        f"boxes.{name}.host is missing: its boxes are hosts that you have already, such as host: "
        f"{profile.ssh.user or 'root'}@192.0.2.7:22 (its console shows {profile.ssh.flavours[0].address})"
        for name in hosts
        if name not in named
    ]
    problems += _together(named)
    return problems


def _returns(config: StackConfig, profile: Profile) -> list[str]:
    """Boxes that a person runs come back to a folder; others have none."""
    wanted = {name: box.returns for name, box in config.boxes.items() if box.want != "gone"}
    if profile.by_hand is None:
        return [
            f"boxes.{name}.returns is for a box that you run by hand, and {profile.platform} is reached without: leave "
            "it out"
            for name, folder in wanted.items()
            if folder
        ]
    notebook = profile.by_hand.cell
    return [
        f"boxes.{name}.returns is a bucket, and the notebook of {profile.platform} carries results to a folder. Write "
        f"candidates: [manual] for a session that writes to a bucket ({docs_page('by-hand.md')})"
        for name, folder in wanted.items()
        if notebook and folder and folder.startswith(SCHEME)
    ] + [
        f"boxes.{name}.returns is missing: the folder of this computer that its results come back to, such as "
        f"returns: ~/sweeps ({docs_page('by-hand.md')})"
        for name, folder in wanted.items()
        if not folder
    ]


def python_of(config: StackConfig, platform: str, own: str) -> str:
    """The interpreter of its hosts: the one that the person names, else the profile's `own`."""
    override = config.overrides.get(platform)
    return override.python if override is not None and override.python is not None else own


def kept_of(config: StackConfig, profile: Profile) -> tuple[str, ...]:
    """The packages of the image that no set-up replaces: those that the person names, else the profile's."""
    override = config.overrides.get(profile.platform)
    if override is not None and override.keep is not None:
        return override.keep
    return profile.environment.keep if profile.environment is not None else ()


def _together(named: dict[str, str]) -> list[str]:
    """Two boxes on one host would each count all of its cards."""
    boxes: dict[str, list[str]] = {}
    for name, login in named.items():
        boxes.setdefault(login, []).append(name)
    return [
        f"{' and '.join(names)} are on the same host ({login}): one box a host; job.slots says how many cells it runs "
        "at once"
        for login, names in boxes.items()
        if len(names) > 1
    ]


def layout_of(config: StackConfig, profile: Profile) -> Layout:
    """How the boxes are laid out there, with the mounts that the config asks for."""
    return profile.layout(volume=bool(config.volume_mounts))


def place_of(config: StackConfig, profile: Profile, layout: Layout, name: str, volume: str) -> str:
    """Where a tier lies on the host: as the person says, else as the profile does; "": below our own root."""
    tier = layout.tiers[name]
    if profile.ssh is None or not tier.path:
        return ""
    return _told(config, profile).get(name) or (tier.place or "").replace("{volume}", volume)


def claims(config: StackConfig, profile: Profile, layout: Layout, durable: Durable | None) -> dict[str, dict[str, Any]]:
    """The places that a host must have, for the host to look at: the surviving tier, and the one that boxes lie on."""
    found: dict[str, dict[str, Any]] = {}
    told, home = _told(config, profile), layout.tiers.get("data")
    place = place_of(config, profile, layout, "data", durable.volume if durable is not None else "") if home else ""
    if home is not None and place.startswith("/"):  # below a login's home, it is made
        found["data"] = _claim(home, "data", place, told)
    if durable is not None and durable.place:
        tier = layout.tiers[durable.tier]
        found[durable.mount] = {
            **_claim(tier, durable.tier, durable.place, told),
            "files": files_of(config),
            "bytes": least_bytes(config),
            **({"region_locked": True} if tier.region_locked else {}),
        }
    return found


def files_of(config: StackConfig) -> int:
    """How many files the sweep leaves behind on the surviving tier, at least: a job may write more of its own."""
    return len(config.roster.cells) * (len(config.artifacts) + BESIDES + (1 if config.metrics is not None else 0))


def least_bytes(config: StackConfig, *, of_a_box: bool = False) -> int:
    """What the artifacts of all cells have at least, or of those that one box gets; 1 byte of each without a `min`."""
    cells, boxes = len(config.roster.cells), sum(box.want != "gone" for box in config.boxes.values())
    each = sum(artifact.min_bytes for artifact in config.artifact_specs())
    return each * (-(-cells // max(boxes, 1)) if of_a_box else cells)


def tier_problems(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """What the profile alone says against it: too many files for the tier that survives."""
    found = layout.durable_tier(VERB)
    told = sorted(set(_told(config, profile)))
    if profile.ssh is None:
        where = f"overrides.{profile.platform}.places"
        return [f"{where} ({', '.join(told)}) is for hosts that are entered by SSH; take it out"] if told else []
    if found is None:
        return []
    name, tier = found
    problems, files = [], files_of(config)
    if tier.inode_cap is not None and files > tier.inode_cap:
        problems.append(
            f"its {name} tier holds {tier.inode_cap:,} files, and {len(config.roster.cells):,} cells leave {files:,} "
            "behind at least: list fewer artifacts and let the job pack small files, or split the sweep"
        )
    return problems


def region_notes(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """That boxes of two regions don't see each other's files, where there are several."""
    found = layout.durable_tier(VERB)
    wanted = [name for name, box in config.boxes.items() if box.want != "gone"]
    if profile.ssh is None or found is None or not found[1].region_locked or len(wanted) < 2:
        return []
    return [
        f"{profile.platform}: its {found[0]} tier belongs to one region: a cell that moves to a host of another region "
        "starts again there. Each box looks at which one it sees when it is made"
    ]


def _claim(tier: Tier, name: str, place: str, told: dict[str, str]) -> dict[str, Any]:
    """`mounted` is what the profile knows of its own place, and not of one that a person names."""
    return {"tier": name, "path": place, **({"mounted": True} if tier.mounted and name not in told else {})}


def _told(config: StackConfig, profile: Profile) -> dict[str, str]:
    override = config.overrides.get(profile.platform)
    return {str(tier): place for tier, place in override.places.items()} if override is not None else {}
