"""`python -m sweepstack.platforms.local --also HOST/ID`: assigns this machine's boxes to HOST/ID."""

from __future__ import annotations

import sys

from sweepstack.core import this_host
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.box_folders import LocalStore, default_root


def main(arguments: list[str]) -> int:
    """Records that this machine's registry answers for the account HOST/ID, too, and that HOST is a former name of this
    machine. Returns the exit code: 0 when that is on record, 1 when it was refused, 2 for wrong arguments.

    Refused where HOST is no name of this computer and nothing here has that ID: what is not here would count as gone.
    """
    if len(arguments) != 2 or arguments[0] != "--also" or "/" not in arguments[1]:
        print("usage: python -m sweepstack.platforms.local --also HOST/ID   (the box's `account` in the state)")
        return 2
    store = LocalStore(default_root())
    host, _, identifier = arguments[1].rpartition("/")
    if host not in (store.host, *this_host.names()) and not store.was(identifier):
        print(
            f"{arguments[1]} names another computer, {host}, and nothing in {store.root} has that id: its boxes are "
            f"not here, and would count as gone. Type it on {host}; or, if this computer was called {host}, first: "
            f"sweepctl adopt --renamed-from {host}",
            file=sys.stderr,
        )
        return 1
    try:
        registry = store.answer_for(arguments[1])
        this_host.also_known_as(host)
    except SweepstackError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{registry.account} now answers for {arguments[1]}: run the command that sent you here again")
    print(f"a box that is not in {store.boxes}, and a volume that is not in {store.volumes}, counts as gone")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
