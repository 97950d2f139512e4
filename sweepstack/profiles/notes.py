"""Tells what a platform's slow facts mean for one sweep, such as its traffic and its drivers."""

from __future__ import annotations

import re

from sweepstack.billing.egress import GB, egress_words
from sweepstack.channel.host_address import HostAddress
from sweepstack.config.override import Route
from sweepstack.config.stack_config import StackConfig
from sweepstack.profiles.hosts import layout_of
from sweepstack.profiles.layout import Layout
from sweepstack.profiles.model import Profile
from sweepstack.profiles.network import switched
from sweepstack.profiles.spot import asked_resources

FROM_ABROAD: tuple[Route, ...] = ("huggingface", "pip")
"""The routes that most jobs need, and that are slow or shut where a mirror is needed."""
_IMAGE_CUDA = re.compile(r"(?:cuda[-_:]?|cu)(\d{2})\.?(\d)(?!\d)")
"""In `nvidia/cuda:12.4.1-…`, `pytorch/pytorch:2.6.0-cuda12.4-…`, `…-cu124`."""


def cuda_problems(config: StackConfig, profile: Profile) -> list[str]:
    """Why no host there can run the CUDA that is asked for, or that the image is built for."""
    most = profile.host_driver_cuda_max
    if most is None:
        return []
    return [
        f"{why} CUDA {wanted}, and the drivers of its hosts do {most} at most: ask for less, or use an image for {most}"
        for why, wanted in _wanted(config, profile).items()
        if _version(wanted) > _version(most)
    ]


def _wanted(config: StackConfig, profile: Profile) -> dict[str, str]:
    """What needs a CUDA, and which. An image needs none where no GPU is asked for."""
    asked = {
        f"{where}.gpu.cuda asks for": resources.gpu.cuda.rstrip("+")
        for where, resources in asked_resources(config)
        if resources.gpu is not None and resources.gpu.cuda
    }
    built = image_cuda(config, profile)
    return asked | ({f"job.image ({config.job.image}) is built for": built} if built else {})


def image_cuda(config: StackConfig, profile: Profile) -> str:
    """The CUDA that the image's name says it is built for, where it is used with a GPU; else ""."""
    gpu = any(resources.gpu is not None for _, resources in asked_resources(config))
    match = _IMAGE_CUDA.search(config.job.image or "") if profile.uses_image and gpu else None
    return f"{match[1]}.{match[2]}" if match is not None else ""


def fact_notes(config: StackConfig, profile: Profile, *, own_host: bool) -> list[str]:
    """What the preview says. `own_host`: its boxes are hosts that send no bill."""
    layout = layout_of(config, profile)
    notes = [*_drivers(config, profile), *_mirrors(config, profile), *_addresses(config, profile, layout)]
    return notes if own_host or not profile.meter.rents else [*notes, *_billing(config, profile, layout)]


def _drivers(config: StackConfig, profile: Profile) -> list[str]:
    """An image that is newer than a host's driver starts and sees no GPU: only the constraint keeps such hosts out."""
    built = image_cuda(config, profile)
    if not built or "host_driver_cuda_max" not in profile.unknown:
        return []
    return [
        f"job.image is built for CUDA {built}, and which driver a host of {profile.platform} has is not known before: "
        f'write {where}.gpu.cuda: "{built}+", so that none with an older one is rented'
        for where, resources in asked_resources(config)
        if resources.gpu is not None
        and (resources.gpu.cuda is None or _version(resources.gpu.cuda.rstrip("+")) < _version(built))
    ]


def _mirrors(config: StackConfig, profile: Profile) -> list[str]:
    """Routes without a mirror where one is needed."""
    if not profile.china_mirror_needed:
        return []
    override = config.overrides.get(profile.platform)
    said = override.network.mirrors if override is not None and override.network is not None else {}
    known = {**(profile.network.mirrors if profile.network is not None else {}), **said}
    missing = [route for route in FROM_ABROAD if not known.get(route)]
    if not missing or switched(config, profile).always:
        return []
    return [
        f"{profile.platform}: its hosts reach {' and '.join(missing)} abroad slowly or not at all, and no mirror is "
        f"set: write one as overrides.{profile.platform}.network.mirrors"
    ]


def _addresses(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """Hosts whose written address is another one after a start, and logins that are not the platform's."""
    if profile.ssh is None:
        return []
    hosts = {name: HostAddress.parse(box.host) for name, box in config.boxes.items() if box.host and box.want != "gone"}
    written = {name: host for name, host in hosts.items() if not host.name}
    notes = [
        f"boxes.{name}.host logs in as {host.user}, and hosts of {profile.platform} have {profile.ssh.user}"
        for name, host in written.items()
        if profile.ssh.user is not None and host.user != profile.ssh.user
    ]
    if written and "stop" in layout.verbs and profile.ssh.moves in ("start", None):
        notes.append(
            f"{profile.platform}: the address of a host may be another after each start. A name of ~/.ssh/config is "
            f"looked up again by each command; else write the new address into boxes.{min(written)}.host, and "
            "`pulumi up` proves that it is the same host"
        )
    return notes


def _billing(config: StackConfig, profile: Profile, layout: Layout) -> list[str]:
    """What the price per hour does not say."""
    name, notes = profile.platform, []
    override = config.overrides.get(name)
    price = override.egress_per_gb if override is not None else None
    if price or (price is None and profile.free_egress is False):
        cells = len(config.roster.cells)
        least = sum(artifact.min_bytes for artifact in config.artifact_specs()) * cells
        at = "at its host's price (`sweepctl place`, $/GB)" if price is None else f"at ${price:g}/GB"
        if least < GB / 1000:
            brings = "has a known cost once some are sealed (`sweepctl status`), or by the artifacts' `min`"
        else:
            cost = f", {egress_words(least, price)}" if price is not None else ""
            brings = f"brings {least / GB:.3g} GB at least{cost}"
        notes.append(
            f"{name} bills each byte in and out of a box, {at}: a pull of all {cells:,} cells {brings}, besides what "
            "the job itself moves"
        )
    elif price is None and profile.free_egress is None and "free_egress" in profile.unknown:
        notes.append(f"whether {name} bills the bytes of a pull is not known: look at its prices of traffic")
    if profile.meter.billed_by == "hour":
        notes.append(f"{name} bills whole hours: a box that ends within one costs all of it")
    stop = layout.verbs.get("stop")
    if stop is not None and not stop.stops_meter and config.when_done == "stop":
        rest = "; ".join(stop.bills_after) or "a part of its price"
        notes.append(f"{name}: {stop.native} (when_done: stop) does not end the bill: {rest}")
    return notes


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
