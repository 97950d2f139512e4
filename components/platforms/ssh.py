"""What is done on a host of one's own before its queue starts: one command over SSH for all of it.

A command resource has no Read and can't refuse, so it carries nothing that could be lost: the box, its queue and its
gate are our provider's (docs/adr/013). It has no `triggers` and no `delete`, so taking it away only forgets it. What it
runs is idempotent, holds no secret, and names the box: another box, or other steps, is another text, which the engine
shows and runs. The key is in no input: the plugin is handed an agent that holds it (provider/command/choosing.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi

from profiles.plan import BoxPlan, Plan
from sweep.channel.base import SshEndpoint
from sweep.channel.host_address import HostAddress
from sweep.channel.host_keys import Pin, keys_of
from sweep.site.preflight import preflight
from sweep.site.steps import Step, facts, script

if TYPE_CHECKING:
    from pulumi_command.remote import Command

    from components.resources import Box

DIALS, DIAL_SECONDS = 10, 15
"""The box has answered a moment ago. With the waits in between, at most three minutes."""
COMMAND = "sh -s sweepstack-setup"
NOBODY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""A host key that no host has: what is expected of one whose key is not pinned here."""


def set_up(plan: Plan, box_plan: BoxPlan, box: Box, opts: pulumi.ResourceOptions) -> Command | None:
    """The command that sets the host of a box up; None where there is no host, or nothing is to run there now.

    A box that is to be stopped has none: wanted again, it is set up again, since what a restart of the host took away
    is not seen from here. `opts`: of the parent.
    """
    if not box_plan.host or box_plan.want != "running":
        return None
    from pulumi_command.remote import Command, ConnectionArgs  # only stacks with hosts need the package and its plugin

    address = HostAddress.parse(box_plan.host)
    endpoint, steps = address.endpoint, steps_for(plan)
    return Command(
        box_plan.name,
        connection=ConnectionArgs(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            host_key=box.native_id.apply(lambda _: pinned(endpoint)),
            dial_error_limit=DIALS,
            per_dial_timeout=DIAL_SECONDS,
        ),
        create=COMMAND,
        stdin=box.native_id.apply(lambda native_id: script(steps, box=native_id, root=address.root)),
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[box])),
    )


def steps_for(plan: Plan) -> tuple[Step, ...]:
    """What is done on each host of a plan, in order."""
    return (preflight(plan.site.python if plan.site is not None else "python3"),)


def pinned(endpoint: SshEndpoint) -> str:
    """The host key that our provider pinned when it was there first, on this machine."""
    keys = keys_of(Pin(endpoint.known_as, endpoint.start).path)
    return keys[0] if keys else NOBODY


def facts_of(command: Command) -> pulumi.Output[dict[str, str]]:
    """What the host said of itself when it was set up."""
    return command.stdout.apply(facts)
