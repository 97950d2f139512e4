"""Boxes on hosts of the user's own: what the config has to say of them, and what can't be."""

from __future__ import annotations

from sweepstack.channel.host_address import HostAddress
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.bucket_address import SCHEME
from sweepstack.core.paths import docs_page
from sweepstack.profiles.model import Profile


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
