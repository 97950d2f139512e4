"""The route to a host: the jump hosts, the keys, and the host key that each must show."""

from __future__ import annotations

from dataclasses import replace

from sweepstack.channel.host_address import Hop, HostAddress
from sweepstack.channel.host_keys import Pin
from sweepstack.channel.ssh import config as ssh_config
from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.channel.ssh.config import CONFIG_VARIABLE, Configured
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import NotAuthorized, Unreachable


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
    return _way(found.hop, known_as, via, found, name)


def _way(hop: Hop, known_as: str, via: Way | None, found: Configured | None = None, name: str = "") -> Way:
    endpoint = SshEndpoint(hop.host, hop.port, hop.user, known_as=known_as)
    pin = Pin(known_as, endpoint.start)
    if found is None:
        return Way(endpoint, ssh_keys.choose(), pin, via=via)
    way = Way(endpoint, ssh_keys.WITHOUT, pin, via=via, proxy=found.command, master=found.master, name=name)
    source = f"the ssh configuration of {name}"
    try:
        key = ssh_keys.of_files(found.identities, source) if found.identities else ssh_keys.choose()
    except NotAuthorized as error:
        if way.joins_master:  # over that, no key is asked for
            return way
        if way.master:
            raise NotAuthorized(f"{error}. Or open the connection that you share: ssh -fN {name}") from error
        raise
    return replace(way, key=key)
