"""Checks of a stack config whose cells run over several nodes: what fits, and where they can run."""

from __future__ import annotations

from typing import Any

from sweepstack.channel.host_address import HostAddress
from sweepstack.config.secrets import RawMistakes
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.paths import docs_page
from sweepstack.extensions.nodes.onbox.command import refusal
from sweepstack.profiles.model import Profile


def mistakes(values: dict[str, Any]) -> RawMistakes:
    """What does not fit `job.nodes`; where that is 1, peers that no cell would use."""
    job, boxes = _mapping(values.get("job")), _mapping(values.get("boxes"))
    count = int(str(job.get("nodes", 1))) if str(job.get("nodes", 1)).isdigit() else 1
    for name, box in boxes.items():
        yield from _peers(name, _mapping(box), count)
    if count < 2:
        if job.get("restores") is True:
            yield ("job", "restores"), "is for cells on several nodes (job.nodes); take it out", None
        return
    run = job.get("run")
    if isinstance(run, str) and (why := refusal(run)):
        yield ("job", "run"), f"job.nodes is {count}, and the command {why}", None
    slots = str(job.get("slots", 1))
    if slots.isdigit() and int(slots) > 1:
        yield ("job", "slots"), "a cell on several nodes has all of each: leave slots out", None
    if job.get("timeout") is None and job.get("on_hang", "tell") == "tell":
        fix = "a rank that hangs would hold all nodes: say job.timeout, such as 12h, or job.on_hang: retry"
        yield ("job", "nodes"), fix, None
    for path, mount in _mapping(values.get("mounts")).items():
        if "://" in str(_mapping(mount).get("source", "")):
            fix = "a bucket is brought to the first node alone: put the data where each node has it, and leave this out"
            yield ("mounts", path), fix, None


def _peers(name: str, box: dict[str, Any], count: int) -> RawMistakes:
    peers = box.get("peers") or []
    listed = [peers] if isinstance(peers, str) else peers if isinstance(peers, list) else []
    loc = ("boxes", name, "peers")
    if count < 2 and listed:
        yield loc, "are for cells on several nodes: say job.nodes, or take them out", None
    elif count > 1 and box.get("want") != "gone" and listed and len(listed) != count - 1:  # none: a cluster has them
        other = "machine" if count == 2 else "machines"
        fix = f"job.nodes is {count}: peers has to name {count - 1} {other} besides the host, and names {len(listed)}"
        yield loc, fix, None
    for index, peer in enumerate(listed):
        if peer in listed[:index]:
            yield (*loc, index), "is listed twice", None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def problems(config: StackConfig, profile: Profile) -> list[str]:
    """Why cells can't run on several nodes there; empty when they can, or when each has one."""
    if config.job.nodes < 2:
        return []
    wanted = {name: box for name, box in config.boxes.items() if box.want != "gone"}
    if profile.scheduled:
        return [
            f"boxes.{name}.peers are for hosts that enter each other by ssh; a cluster gives each worker its nodes: "
            "leave peers out"
            for name, box in wanted.items()
            if box.peers
        ]
    if profile.ssh is None:
        how = "its boxes are run by hand" if profile.by_hand is not None else "its boxes have no network to each other"
        return [
            f"job.nodes is {config.job.nodes}, and {how}: cells on several nodes need hosts of your own that enter "
            f"each other by ssh (candidates: [generic-ssh], {docs_page('nodes.md')})"
        ]
    taken: dict[str, str] = {}
    found = [
        f"boxes.{name}.peers is missing: job.nodes is {config.job.nodes}, so it has to name {config.job.nodes - 1} "
        "other machines, as the host enters them by ssh"
        for name, box in wanted.items()
        if not box.peers
    ]
    for name, box in wanted.items():
        for machine in (HostAddress.parse(address).login for address in (box.host, *box.peers) if address):
            if machine in taken:
                found.append(
                    f"boxes.{name} and boxes.{taken[machine]} both have {machine}: a machine is a node of one box"
                    if taken[machine] != name
                    else f"boxes.{name} names {machine} as its host and as a peer: peers are the other machines"
                )
            taken[machine] = name
    return found
