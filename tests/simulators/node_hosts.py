"""Two hosts of the user's own that are nodes of one box: each has a network, processes and mounts of its own.

A wire is between them (`wire`). Each sees of the other one's disk what it has no place of its own for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.simulators.host import Host
from tests.simulators.wire import FAR, NEAR, Wire

OWN_PROCESSES = ("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child")
_WITH_PLACES = """
while [ "$1" != -- ]; do
  mount --bind "$1" "$2" || exit 1
  shift 2
done
shift
exec "$@"
"""
SSH_CONFIG = Path("/etc/ssh/ssh_config")


def on_node(wire: Wire, number: int, places: Mapping[Path, Path]) -> list[str]:
    """What stands before a command that is to run on a node: 0 is the wire's near end. `places`: what it sees → where.
    Ends with what started it."""
    binds = [word for seen in places.items() for word in map(str, seen)]
    network = f"nsenter --net=/proc/{os.getpid()}/fd/{wire.networks[number]}".split()
    return [*("setpriv", "--pdeathsig", "KILL"), *network, *OWN_PROCESSES, "sh", "-c", _WITH_PLACES, "sh", *binds, "--"]


class NodeHost(Host):
    """A node with an sshd. `places`: as for `on_node`."""

    quick = ""

    def __init__(self, folder: Path, wire: Wire, number: int, places: Mapping[Path, Path]) -> None:
        self.at = (NEAR, FAR)[number]
        self.before = tuple(on_node(wire, number, places))
        super().__init__(folder)


def ssh_config(file: Path, peers: Sequence[Host]) -> Path:
    """Writes what a login on a node has in ~/.ssh: the peers' host keys, and keys that they let in."""
    known = file.with_suffix(".known")
    known.write_text("".join(f"[{peer.at}]:{peer.port} {(peer.folder / 'host_key.pub').read_text()}" for peer in peers))
    keys = "".join(f"IdentityFile {peer.key}\n" for peer in peers)
    file.write_text(f"IdentitiesOnly yes\n{keys}UserKnownHostsFile {known}\nStrictHostKeyChecking yes\n")
    return file
