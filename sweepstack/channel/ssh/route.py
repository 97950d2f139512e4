"""The route to a host: the jump hosts, the keys, and the host key that each must show.

What a name means in the person's own ssh configuration is asked of ssh itself (`ssh -G`); nothing is parsed by us.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from pathlib import Path

from sweepstack.channel.host_address import MOST_HOPS, Hop, HostAddress
from sweepstack.channel.pinned_keys import Pin
from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError, NotAuthorized, Unreachable

CONFIG_VARIABLE = "SWEEPSTACK_SSH_CONFIG"
"""An ssh configuration file to read instead of ~/.ssh/config and the system's."""
SECONDS = 10.0
_LEADS = ("hostname", "port", "user", "identityfile", "proxyjump", "proxycommand")
_MEANT = (*_LEADS, "controlpath")


def way_to(address: HostAddress) -> Way:
    """What ssh's configuration here says of the address's name, as it is now; else the address itself.

    Connects nothing. Raises NotAuthorized where there is no key to come in with, ConfigError where the configuration
    does not read, Unreachable where only that of another machine leads there.
    """
    found = look_up(address.name) if address.name else None
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


@dataclass(frozen=True)
class Configured:
    """Where a name leads. `identities`: the key files that are set for it, none where it has the usual ones. `via`: the
    host before it. `command`: the ProxyCommand that leads there instead. `master`: the socket of the connection that
    the person's own ssh shares (ControlPath), whether it is open or not; "" where it shares none."""

    hop: Hop
    identities: tuple[Path, ...] = ()
    via: Configured | None = None
    command: str = ""
    master: str = ""

    @property
    def jumps(self) -> tuple[Hop, ...]:
        """The hosts on the way, the first one first."""
        return () if self.via is None else (*self.via.jumps, self.via.hop)

    @property
    def by_command(self) -> bool:
        """Whether a ProxyCommand is needed anywhere on the way."""
        return bool(self.command) or (self.via is not None and self.via.by_command)


def look_up(name: str) -> Configured | None:
    """What `ssh name` means on this machine; None where the configuration says nothing about it. Runs ssh twice, for
    milliseconds; connects nothing. Raises ConfigError where the configuration does not read."""
    own, usual = _said(name), _said(name, "none")
    if all(own.get(key) == usual.get(key) for key in _LEADS):  # a ControlPath for all hosts leads nowhere
        return None
    return _asked_of_ssh(name)


def completed(address: HostAddress) -> HostAddress:
    """An address of which only a name was given, with what that means here; any other as it is."""
    if not address.bare:
        return address
    found = look_up(address.host)
    if found is None:
        return address.explicit()
    hop = found.hop
    return HostAddress(
        hop.user, hop.host, hop.port, address.root, found.jumps, alias=address.host, by_command=found.by_command
    )


def _asked_of_ssh(name: str, hop: Hop | None = None, depth: int = 0) -> Configured:
    """`hop`: the user and port that were said beside the name, where they were."""
    options = ["-l", hop.user, "-p", str(hop.port)] if hop is not None else []
    said = _said(name, None, *options)
    if depth > MOST_HOPS:
        raise ConfigError(f"the ssh configuration leads to {name} through more than {MOST_HOPS} hosts")
    usual = _said(name, "none").get("identityfile", [])
    found = Hop(said["user"][0], said["hostname"][0], int(said["port"][0]))
    own = [] if said.get("identityfile") == usual else said.get("identityfile", [])
    identities = tuple(_path(text, found, name) for text in own if text != "none")
    via = None
    for word in _words(said, "proxyjump"):
        via = _through(via, word.removeprefix("ssh://"), depth)
    command = "".join(said.get("proxycommand", [])[:1])
    command = "" if command == "none" else re.sub("%([%n])", lambda m: {"n": name}.get(m[1], m[0]), command)
    (master,) = said.get("controlpath", ["none"])[:1]
    return Configured(found, identities, via, command, "" if master == "none" else master)


def _through(before: Configured | None, word: str, depth: int) -> Configured:
    """A host named by ProxyJump, `[user@]name[:port]`, itself a name of the configuration; the first one's own way
    counts, as it does for ssh."""
    user, _, rest = word.rpartition("@")
    name, _, port = rest.rpartition(":") if not rest.endswith("]") else (rest, "", "")
    name = (name or rest).strip("[]")
    own = _said(name)
    hop = Hop(user or own["user"][0], name, int(port if name != rest and port else own["port"][0]))
    found = _asked_of_ssh(name, hop, depth + 1)
    return found if before is None else Configured(found.hop, found.identities, before, master=found.master)


def _said(name: str, config: str | None = None, *options: str) -> dict[str, list[str]]:
    """The settings that matter here, each with its values."""
    chosen = config or os.environ.get(CONFIG_VARIABLE, "")
    command = ["ssh", "-G", *(["-F", chosen] if chosen else []), *options, "--", name]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"what {name} means can't be told: ssh -G {name}: {error}") from error
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise ConfigError(f"the ssh configuration does not read: {why}. Next: ssh -G {name}")
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        if key in _MEANT:
            found.setdefault(key, []).append(value)
    return found


def _words(said: dict[str, list[str]], key: str) -> list[str]:
    value = "".join(said.get(key, [])[:1])
    return [] if value in ("", "none") else [word.strip() for word in value.split(",")]


def _path(text: str, hop: Hop, name: str) -> Path:
    """A key file, with the marks that ssh fills in (`ssh -G` does not)."""
    home = str(Path.home())
    known = {"%": "%", "d": home, "h": hop.host, "k": name, "n": name, "p": str(hop.port), "r": hop.user}
    known |= {"u": getpass.getuser(), "i": str(os.getuid())}
    filled = re.sub("%(.)", lambda mark: known.get(mark[1], mark[0]), text.strip('"'))
    return Path(filled).expanduser()
