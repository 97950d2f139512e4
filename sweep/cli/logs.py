"""`sweepctl logs`: what a cell printed, from its box or from the sealed copy; and the logs of set-up and runner."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable
from datetime import timedelta

from provider.platforms.registry import load_platform
from sweep import onbox
from sweep.cli.cellfile import CHUNK, CellFile, find_file, holder_of
from sweep.cli.look import look, open_sources
from sweep.cli.output import YES, No, Out, Unsure
from sweep.cli.target import Target
from sweep.errors import SweepstackError
from sweep.scene import Scene, Sight
from sweep.suggest import did_you_mean
from sweep.view.boxes import SETUP_WORDS
from sweep.view.following import out_of_hung

_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[^\[\]]|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
"""Whatever moves the cursor, renames the window or rings: a box's output may colour, and no more."""


class Printer:
    """Writes a log's bytes to stdout. What a chunk cut in two is put together again.

    `left`: whoever read stdout has left (`| head`), which raised BrokenPipeError.
    """

    def __init__(self) -> None:
        self.left = False
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        text = self._text.decode(data)
        try:
            sys.stdout.write(_CONTROL.sub("", text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.left = True
            raise


def logs(target: Target, cell: str, attempt: int | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a cell. `follow`: how long to go on reading; None prints what is there."""
    sources = open_sources(target)
    scene = look(sources)
    known = [entry.name for entry in scene.roster] + list(scene.dropped)
    if cell not in known:
        raise target.no_cell(cell, known)
    if follow is not None and holder_of(scene, cell) is not None:
        from sweep.cli.follow import CellFollow

        return CellFollow(target, sources, scene, cell, attempt, tail, follow).run()
    source = find_file(sources, scene, cell, attempt)
    code = _print(source, f"{cell}, attempt {source.attempt}, from {source.words}", tail, out, {"cell": cell})
    if not out.as_json and any(cell in sight.hung for sight in scene.sights):
        print("\n".join(f"next  {way}" for way in out_of_hung(target.stack, cell)), file=sys.stderr)
    return code


def setup_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of the last set-up step of a box; without a name, of the only box that has one."""
    scene = look(open_sources(target))
    sight = _box(scene, box, lambda sight: sight.setup is not None, "has a set-up step")
    setup = sight.setup
    if setup is None:
        raise Unsure(f"box {sight.box.name} has begun no set-up step (job.setup)")
    if follow is not None:
        from sweep.cli.follow import SetupFollow

        return SetupFollow(target, sight, setup.digest, tail, follow).run()
    state = SETUP_WORDS[setup.state]
    words = f"set-up of box {sight.box.name}, {state}"
    return _print(
        _plain(sight, onbox.setup_log(setup.digest)), words, tail, out, {"box": sight.box.name, "state": state}
    )


def runner_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints what the runner of a box says of itself."""
    scene = look(open_sources(target))
    sight = _box(scene, box, lambda _: True, "is there")
    if follow is not None:
        from sweep.cli.follow import RunnerFollow

        return RunnerFollow(target, sight, tail, follow).run()
    return _print(
        _plain(sight, onbox.RUNNER_LOG), f"runner of box {sight.box.name}", tail, out, {"box": sight.box.name}
    )


def _box(scene: Scene, name: str | None, fits: Callable[[Sight], bool], words: str) -> Sight:
    by_name = {sight.box.name: sight for sight in scene.sights if not sight.box.to_delete}
    if name is not None:
        if name not in by_name:
            raise No(f"there is no box {name} in the state{did_you_mean(name, by_name)}. Boxes: {', '.join(by_name)}")
        return by_name[name]
    found = [sight for sight in by_name.values() if fits(sight)]
    if len(found) != 1:
        named = ", ".join(sight.box.name for sight in found)
        raise Unsure(f"which box? {f'{named} do' if found else f'no box {words}'}: name one")
    return found[0]


def _plain(sight: Sight, path: str) -> CellFile:
    """A file of the box itself, which no copy has."""
    if not sight.reachable:
        why = "gone" if sight.gone else sight.seen.note or "unknown"
        raise Unsure(f"box {sight.box.name} is {why}: that log was on it and nowhere else")
    try:
        channel = load_platform(sight.box.adapter).channel(sight.box.native_id, sight.box.account)
        if channel.size(path) is None:
            raise Unsure(f"box {sight.box.name} has no {path} yet")
    except OSError as error:
        raise SweepstackError(f"box {sight.box.name}: {error}") from error
    read = lambda offset, limit: channel.read(path, offset=offset, limit=limit)  # noqa: E731
    return CellFile(f"box {sight.box.name}", read, lambda: channel.size(path) or 0, 0)


def _print(source: CellFile, words: str, tail: int | None, out: Out, document: dict[str, str]) -> int:
    offset = start_of(source.read, source.size(), tail)
    if out.as_json:
        text = source.whole(source.size(), offset).decode("utf-8", "replace")
        attempt = {"attempt": source.attempt} if source.attempt else {}
        out.document({**document, **attempt, "source": source.words, "text": text})
        return YES
    print(words, file=sys.stderr)
    printer = Printer()
    while data := source.read(offset, CHUNK):
        printer(data)
        offset += len(data)
    return YES


def start_of(read: Callable[[int, int], bytes], end: int, tail: int | None) -> int:
    """Where the last `tail` lines begin; read backwards, so that the log's length does not matter."""
    if tail is None:
        return 0
    start, newlines = end, 0
    while start > 0:
        step = min(CHUNK, start)
        data = read(start - step, step)
        for index in range(len(data) - 1, -1, -1):
            if data[index : index + 1] == b"\n" and start - step + index != end - 1:
                newlines += 1
                if newlines == tail:
                    return start - step + index + 1
        start -= step
    return 0 if tail else end
