"""What is done on a host of one's own before its queue starts: one command over SSH for all of it.

A command resource has no Read and can't refuse, so it carries nothing that could be lost: the box, its queue and its
gate are our provider's (docs/adr/014). It has no `triggers` and no `delete`, so taking it away only forgets it. What it
runs is idempotent, holds no secret, and names the box: another box, or other steps, is another text, which the engine
shows and runs. The key is in no input: the plugin is handed an agent that holds it (provider/command/select.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pulumi

from components import screen
from components.host_setup import NETWORK, PREFLIGHT, TIERS, Step, facts, network, preflight, script, tiers
from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.pinned_keys import Pin, fingerprint, keys_of
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.plan import BoxPlan, Plan

if TYPE_CHECKING:
    from pulumi_command.remote import Command

    from components.resources import Box

DIALS, DIAL_SECONDS = 10, 15
"""The box has answered a moment ago. With the waits in between, at most three minutes."""
COMMAND = "sh -s sweepstack-setup"
LOOKS = frozenset({PREFLIGHT, TIERS, NETWORK})
"""Steps that only look: what they would say is looked at again, where it counts, by the box and by its runner."""
NO_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""A host key that no host has: what is expected of one whose key is not pinned here."""


def set_up(plan: Plan, box_plan: BoxPlan, box: Box, opts: pulumi.ResourceOptions) -> Command | None:
    """The command that sets the host of a box up; None where there is no host, nothing is to run there now, or the
    plugin can't go there to look around (then a line says so). Raises ConfigError where it can't go and has to.

    A box that is to be stopped has none: wanted again, it is set up again, since what a restart of the host took away
    is not seen from here. `opts`: of the parent.
    """
    if not box_plan.host or box_plan.want != "running":
        return None
    address, steps = HostAddress.parse(plan.adapter_of(box_plan).partition(":")[2]), steps_for(plan)
    why = out_of_reach(address)
    if why and any(step.name not in LOOKS for step in steps):
        raise ConfigError(
            f"boxes.{box_plan.name}.host: {box_plan.host} can't be set up ({', '.join(step.name for step in steps)}): "
            f"{why}. Write its address in full, user@host:port or user@door:port,user@host:port; SWEEPSTACK_SSH_KEY "
            "names the key"
        )
    if why:
        screen.say(f"{box_plan.name}: not set up by a command: {why}. Its box is looked at all the same")
        return None
    # Only stacks with hosts need the package and its plugin.
    from pulumi_command.remote import Command, ConnectionArgs, ProxyConnectionArgs

    def key_of(endpoint: SshEndpoint) -> pulumi.Output[str]:
        on_record = box.host_keys if endpoint == address.endpoint else None
        return pulumi.Output.all(box.native_id, on_record).apply(lambda known: pinned(endpoint, known[1]))

    proxies = [
        ProxyConnectionArgs(
            host=hop.host,
            port=hop.port,
            user=hop.user,
            host_key=key_of(at),
            dial_error_limit=DIALS,
            per_dial_timeout=DIAL_SECONDS,
        )
        for hop in address.jumps
        for at in [SshEndpoint(hop.host, hop.port, hop.user, known_as=str(hop))]
    ]
    there = address.endpoint
    return Command(
        box_plan.name,
        connection=ConnectionArgs(
            host=there.host,
            port=there.port,
            user=there.user,
            host_key=key_of(there),
            proxy=proxies[0] if proxies else None,
            dial_error_limit=DIALS,
            per_dial_timeout=DIAL_SECONDS,
        ),
        create=COMMAND,
        stdin=box.native_id.apply(lambda native_id: script(steps, box=native_id, root=address.root or plan.root)),
        add_previous_output_in_env=False,
        opts=opts,  # it comes after the box, whose id is in its text
    )


def steps_for(plan: Plan) -> tuple[Step, ...]:
    """What is done on each host of a plan, in order."""
    site = plan.site
    if site is None:
        return (preflight(),)
    shown = [key for key in site.claims if key.startswith("mnt/")]
    looks = [tiers(shown)] if shown else []
    told = plan.job.network
    said = told.model_dump(mode="json", exclude_unset=True, exclude={"written"}) if told is not None else {}
    return (preflight(site.python), *looks, *([network(said, site.python)] if said else []))


def out_of_reach(address: HostAddress) -> str:
    """Why the plugin can't go where our own connections do; empty when it can."""
    if address.name:
        return f"{address.name} may be a name of your ssh configuration, which the command plugin does not read"
    if len(address.jumps) > 1:
        return "the command plugin goes through one other host at most"
    return ""


def pinned(endpoint: SshEndpoint, on_record: Sequence[str] | None = None) -> str:
    """The host key that our provider pinned on this machine when it was there first. `on_record`: the fingerprints
    that the box's state has; another one is not trusted."""
    keys = keys_of(Pin(endpoint.known_as, endpoint.start).path)
    return next((key for key in keys if not on_record or fingerprint(key) in on_record), NO_KEY)


def facts_of(command: Command) -> pulumi.Output[dict[str, str]]:
    """What the host said of itself when it was set up."""
    return command.stdout.apply(facts)
