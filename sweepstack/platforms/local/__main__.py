"""`python -m sweepstack.platforms.local --also HOST/ID`: a person's word that this machine's boxes are HOST/ID's."""

from __future__ import annotations

import sys

from sweepstack.core import this_host
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.box_folders import LocalStore, default_root


def main(arguments: list[str]) -> int:
    """Exit 0: on record. A HOST that is not this machine's name is one that it had: its evidence is here, too."""
    if len(arguments) != 2 or arguments[0] != "--also" or "/" not in arguments[1]:
        print("usage: python -m sweepstack.platforms.local --also HOST/ID   (the box's `account` in the state)")
        return 2
    try:
        store = LocalStore(default_root())
        registry = store.answer_for(arguments[1])
        this_host.also_known_as(arguments[1].rpartition("/")[0])
    except SweepstackError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{registry.account} now answers for {arguments[1]}: run the command that sent you here again")
    print(f"a box that is not in {store.boxes}, and a volume that is not in {store.volumes}, counts as gone")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
