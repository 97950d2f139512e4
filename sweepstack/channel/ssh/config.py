"""What a name means in the person's own ssh configuration, as `ssh -G` prints it.

ssh itself is asked; nothing is parsed by us.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sweepstack.channel.host_address import MOST_HOPS, Hop, HostAddress
from sweepstack.onbox.common.errors import ConfigError

CONFIG_VARIABLE = "SWEEPSTACK_SSH_CONFIG"
"""An ssh configuration file to read instead of ~/.ssh/config and the system's."""
SECONDS = 10.0
_LEADS = ("hostname", "port", "user", "identityfile", "proxyjump", "proxycommand")
_MEANT = (*_LEADS, "controlpath")


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
    return _configured(name)


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


def _configured(name: str, hop: Hop | None = None, depth: int = 0) -> Configured:
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
    found = _configured(name, hop, depth + 1)
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
