"""Sends what Aim's client wrote into a cell's outputs to another repository of Aim.

That is a server's, or a folder here. Aim's own package does it, beside sweepctl, in a process of its own
(`aim_program`): nothing else reads its files. It works on a copy. A cell is one run there, whatever its tries, with a
name that is made of its id; sending again changes nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweepstack.core.job import AimInput
from sweepstack.extensions.trackers import aim_program
from sweepstack.extensions.trackers.kind import FOLDER, Kind, Sweep
from sweepstack.extensions.trackers.sent import FIRST_SECONDS, NotSent
from sweepstack.extensions.trackers.tries import Try
from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.common.run_process import run
from sweepstack.onbox.common.tracked import run_id
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpClient, NotRetryable
from sweepstack.platforms.common.redact import redact

SERVER = "aim://"
AT_ONCE = 8
"""Tries of one process."""
WORDS = 300
"""Characters of what it said, at most."""


def send(asked: AimInput, tries: Sequence[Try], sweep: Sweep, seconds: float) -> Iterator[tuple[Try, str]]:
    """As `kind.Send`."""
    if find_spec("aim") is None:
        install = f"{shlex.quote(sys.executable)} -m pip install aim"
        raise NotSent(f"its package is not installed beside sweepctl. Next: {install}")
    until = time.monotonic() + seconds
    if asked.uri.startswith(SERVER):
        _answers(asked.uri)
    for begin in range(0, len(tries), AT_ONCE):
        yield from _some(asked, tries[begin : begin + AT_ONCE], sweep, until - time.monotonic())


def _some(asked: AimInput, tries: Sequence[Try], sweep: Sweep, seconds: float) -> Iterator[tuple[Try, str]]:
    if seconds < 1:
        raise NotSent("its time was up")
    with tempfile.TemporaryDirectory(prefix="sweepstack-aim-") as folder:
        through = Path(folder, "through")
        through.touch()
        uri = asked.uri if asked.uri.startswith(SERVER) else os.path.expanduser(asked.uri)
        every = [_told(asked, one, sweep, Path(folder, str(number))) for number, one in enumerate(tries)]
        words = {"uri": uri, "experiment": asked.experiment, "through": str(through), "tries": every}
        why = ""
        try:
            argv = [sys.executable, "-m", aim_program.__name__]
            env = {name: value for name, value in os.environ.items() if not name.startswith("__AIM_")}
            text = json.dumps(words).encode()
            done = run("the copy to Aim", argv, cwd=folder, env=env, timeout=round(seconds), stdin=text)
            said = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
            why = (redact(said[-1])[:WORDS] if said else f"exit code {done.returncode}") if done.returncode else ""
        except SweepstackError as error:
            why = str(error)
        for number in map(int, through.read_text().split()):
            yield tries[number], ""
        if why:
            raise NotSent(why)


def _told(asked: AimInput, one: Try, sweep: Sweep, folder: Path) -> dict[str, Any]:
    """What the program is told of a try, whose files are copied to `folder`."""
    one.copy_to(folder / ".aim")
    values = sweep.values(one.cell)
    facts = {"run": run_id(sweep.identity, one.cell), "cell": one.cell, "sweep": sweep.identity}
    tags = [own_file(tag, one.cell, values) for tag in asked.tags]
    return {"repo": str(folder), "facts": facts, "tags": tags, "name": own_file(asked.name, one.cell, values)}


def _answers(uri: str) -> None:
    """That a server answers at all: its client would try for longer. Raises NotSent."""
    try:
        site = f"http://{uri.removeprefix(SERVER).rstrip('/')}"
        HttpClient("Aim", site, "", key_hint="").read("/status/", deadline=Deadline(FIRST_SECONDS))
    except (NotRetryable, NotAuthorized):
        return  # it answers, or leads to https://: its client knows what to do
    except SweepstackError as error:
        raise NotSent(str(error)) from None


def _words(asked: AimInput, sweep: Sweep) -> str:
    shown = asked.uri if asked.uri.startswith(SERVER) else shlex.join(["aim", "up", "--repo", asked.uri])
    return f"{shown}, experiment {asked.experiment}"


KIND = Kind(
    name="aim",
    folder=f"{FOLDER}/aim",
    offline={"__AIM_REPO_NAME__": f"{{out}}/{FOLDER}/aim"},  # of an absolute path, Aim takes it as it is
    variables=lambda asked, identity: {},
    place=lambda asked: f"{asked.uri}, experiment {asked.experiment}, sweepstack.run {{run}}",
    words=_words,
    send=send,
)
