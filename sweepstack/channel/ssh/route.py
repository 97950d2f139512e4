"""The route to a host: the jump hosts, the keys, and the host key that each must show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweepstack.channel.host_address import Hop, HostAddress
from sweepstack.channel.host_keys import Pin
from sweepstack.channel.ssh import config as ssh_config
from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.channel.ssh.config import CONFIG_VARIABLE, Configured
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import Unreachable


def way_to(address: HostAddress) -> Way:
    """What ssh's configuration here says of the address's name, as it is now; else the address itself.

    Connects nothing. Raises NotAuthorized where there is no key to come in with, ConfigError where the configuration
    does not read, Unreachable where only that of another machine leads there.
    """
    found = ssh_config.look_up(address.name) if address.name else None
    if found is not None:
        return _configured(found, address.name, address.login)
    if address.by_command:
        raise Unreachable(
            f"{address.alias} can't be reached from here: it is a name of the ssh configuration where the box was "
            f"made, and led to {address.hop} through a ProxyCommand. Write it into ~/.ssh/config here (Host "
            f"{address.alias}, HostName {address.host}, Port {address.port}, User {address.user}, ProxyCommand …), or "
            f"into the file that {CONFIG_VARIABLE} names, and run the command again"
        )
    way = None
    for hop in address.jumps:
        way = _way(hop, str(hop), way)
    return _way(address.hop, address.login, way)


def _configured(found: Configured, name: str, known_as: str) -> Way:
    via = _configured(found.via, str(found.via.hop), str(found.via.hop)) if found.via is not None else None
    return _way(found.hop, known_as, via, found.identities, name, found.command)


def _way(hop: Hop, known_as: str, via: Way | None, keys: Sequence[Path] = (), name: str = "", command: str = "") -> Way:
    key = ssh_keys.of_files(keys, f"the ssh configuration of {name}") if keys else ssh_keys.choose()
    endpoint = SshEndpoint(hop.host, hop.port, hop.user, known_as=known_as)
    return Way(endpoint, key, Pin(known_as, endpoint.start), via=via, proxy=command)
