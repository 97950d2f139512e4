"""Cells over several nodes: where they can run, and on which machines."""

from __future__ import annotations

from sweepstack.channel.host_address import HostAddress
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.paths import docs_page
from sweepstack.profiles.model import Profile


def slots_of(config: StackConfig, gpus: int) -> int:
    """How many cells run at once on a box with so many GPUs. A cell on several nodes has all of each."""
    return 1 if config.job.nodes > 1 else config.job.slots or gpus or 1


def node_problems(config: StackConfig, profile: Profile) -> list[str]:
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
    problems = [
        f"boxes.{name}.peers is missing: job.nodes is {config.job.nodes}, so it has to name {config.job.nodes - 1} "
        "other machines, as the host enters them by ssh"
        for name, box in wanted.items()
        if not box.peers
    ]
    for name, box in wanted.items():
        for machine in (HostAddress.parse(address).login for address in (box.host, *box.peers) if address):
            if machine in taken:
                problems.append(
                    f"boxes.{name} and boxes.{taken[machine]} both have {machine}: a machine is a node of one box"
                    if taken[machine] != name
                    else f"boxes.{name} names {machine} as its host and as a peer: peers are the other machines"
                )
            taken[machine] = name
    return problems
