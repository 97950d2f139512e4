"""Ends what runs on the peers of a box, and removes what was copied there.

That is done before the box stops or ends. The box's record of its peers is written before anything is sent to one, and
goes when all of them are proved free. A peer that can't be asked keeps it, and so the box.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sweepstack.onbox.common.box_layout import PEERS
from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.processes import end_box

from .copying import Mirror
from .peers import Peer
from .receive import MARK

END_SECONDS = 90.0


def note(box: Path, names: Sequence[str], argv: Sequence[str]) -> None:
    """Adds peers to the box's record, with the command that frees them. Call it before one is sent anything."""
    known = noted(box)
    wanted = sorted({*known, *names})
    write_json_atomically(box / PEERS, {"peers": wanted, "argv": list(argv)})


def noted(box: Path) -> list[str]:
    """The peers in the box's record. Raises SweepstackError when it does not read: then they are not known."""
    try:
        return [str(name) for name in json.loads((box / PEERS).read_bytes())["peers"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SweepstackError(
            f"{box / PEERS} does not read, so the box's other nodes are not known: {error}"
        ) from error


def main(box: str, native_id: str, python: str, runner: str, durable: str, look_at: str = "") -> int:
    """Frees all peers of a box. Returns 0 when each is proved free, else 1; then stderr names those that are not.
    `look_at`: only looks whether this one answers, and changes nothing there."""
    names = [look_at] if look_at else noted(Path(box))
    mirror = Mirror(Path(box), native_id, Path(durable), python)

    def free(name: str) -> str:
        peer = Peer(name)
        try:
            if look_at:
                peer.ask(["true"])
                return ""
            with mirror.marked() as nonce:
                shared = mirror.bring(peer, nonce, [os.path.relpath(runner, box)]).shared
            words = [box, native_id, "shared" if shared else "own"]
            answer = peer.ask([python, "-I", "-S", f"{runner}/nodes.py", "end", *words], seconds=END_SECONDS)
        except SweepstackError as error:
            return f"{name}: {error}"
        return "" if answer.code == 0 and b"free" in answer.out else f"{name}: {answer.err or answer.code}"

    with ThreadPoolExecutor(max(1, len(names))) as pool:
        wrong = [one for one in pool.map(free, names) if one]
    for one in wrong:
        print(one, file=sys.stderr)
    return 1 if wrong else 0


def end(box: str, native_id: str, kind: str) -> int:
    """Runs on a peer: ends the box's processes there, and removes its folder, if that is one of ours. Prints `free`
    when both are proved."""
    os.chdir("/")
    try:
        end_box(native_id)
    except SweepstackError as error:
        print(error, file=sys.stderr)
        return 1
    if kind == "own":
        with open(os.path.join(box, MARK)) as handle:
            if json.load(handle)["native_id"] != native_id:
                print(f"{box} is another box's", file=sys.stderr)
                return 1
        for name in os.listdir(box):
            if name != MARK:
                _remove(os.path.join(box, name))
        shutil.rmtree(box)
    print("free")
    return 0


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
