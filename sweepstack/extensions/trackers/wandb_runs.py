"""Sends offline runs of Weights & Biases, by its own program `wandb sync`.

It works on a copy: it leaves a mark beside what it has sent, and nothing is written into the evidence. Runs of one cell
have one id, so they are sent one after the other, the last one last.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from sweepstack.core.job import WandbInput
from sweepstack.extensions.trackers.kind import FOLDER, Kind, Sweep
from sweepstack.extensions.trackers.sent import FIRST_SECONDS, NotSent
from sweepstack.extensions.trackers.tries import Try
from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError
from sweepstack.onbox.common.placeholders import PLACEHOLDER
from sweepstack.onbox.common.run_process import run
from sweepstack.onbox.common.tracked import run_id
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpClient, NotRetryable
from sweepstack.platforms.common.redact import redact

KEY = "WANDB_API_KEY"
OF_THE_PROGRAM = (KEY, "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR")
"""The only variables of Weights & Biases that it gets: others are of a run."""
AT_ONCE = 8
"""Runs of one call."""
WORDS = 300
"""Characters of what it said, at most."""
CUT = ("Failed to read", "ends with an incomplete record")
"""What it says of a run whose client was killed: it has sent what there is, and leaves no mark."""


def send(tracker: WandbInput, tries: Sequence[Try], sweep: Sweep, seconds: float) -> Iterator[tuple[Try, str]]:
    """As `kind.Send`. Blocks for some more seconds where its program has to be ended."""
    if find_spec("wandb") is None:
        install = f"{shlex.quote(sys.executable)} -m pip install wandb"
        raise NotSent(f"its package is not installed beside sweepctl. Next: {install}")
    until = time.monotonic() + seconds
    _answers()
    for batch in _batches(tries):
        with tempfile.TemporaryDirectory(prefix="sweepstack-wandb-") as folder:
            runs: dict[int, list[Path]] = {}
            for number, one in enumerate(batch):
                one.copy_to(Path(folder) / str(number))
                places = sorted((Path(folder) / str(number)).glob("offline-run-*"))
                runs[number] = [place for place in places if any(place.glob("run-*.wandb"))]
            paths = [str(path.relative_to(folder)) for found in runs.values() for path in found]
            said = _sync(tracker, paths, folder, until - time.monotonic()) if paths else []
            left = [number for number, found in runs.items() if not all(_is_sent(path, said) for path in found)]
            for number, one in enumerate(batch):
                if number not in left:
                    yield one, address(tracker, f"runs/{run_id(sweep.identity, one.cell)}") if runs[number] else ""
            if left:
                raise NotSent(_why(said))


def _is_sent(run: Path, said: Sequence[str]) -> bool:
    """Marked as sent; or sent as far as it was written, before its try was killed."""
    name = f'{run.parent.name}/{run.name}"'
    cut = any(name in line and any(words in line for words in CUT) for line in said)
    return cut or any(run.glob("*.synced"))


def _answers() -> None:
    """That a server answers at all: `wandb sync` would try again for all of its time. Sends no key. Raises NotSent."""
    site = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    try:
        HttpClient("Weights & Biases", site, "", key_hint=KEY).query(
            "/graphql", {"query": "{ __typename }"}, deadline=Deadline(FIRST_SECONDS)
        )
    except (NotRetryable, NotAuthorized):
        return  # it answers: what it refuses, `wandb sync` says better
    except SweepstackError as error:
        raise NotSent(f"{site}: {error}") from None


def _batches(tries: Sequence[Try]) -> Iterator[list[Try]]:
    """In each no cell twice: first tries first."""
    left = list(tries)
    while left:
        batch: dict[str, Try] = {}
        for one in left:
            if len(batch) < AT_ONCE and one.cell not in batch:
                batch[one.cell] = one
        left = [one for one in left if batch.get(one.cell) is not one]
        yield list(batch.values())


def _sync(tracker: WandbInput, paths: Sequence[str], folder: str, seconds: float) -> list[str]:
    """What the program said, line by line. Raises NotSent, Unreachable, OSError."""
    if seconds < 1:
        raise NotSent("its time was up")
    whose = ["--entity", tracker.entity] if tracker.entity else []
    argv = [sys.executable, "-m", "wandb", "sync", "--yes", "--project", tracker.project, *whose, *paths]
    env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    env |= {name: os.environ[name] for name in OF_THE_PROGRAM if name in os.environ} | {
        "WANDB_ERROR_REPORTING": "false"
    }
    done = run("wandb sync", argv, cwd=folder, env=env, timeout=round(seconds))
    text = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _why(said: Sequence[str]) -> str:
    """The last words about an error, without the key."""
    told = [line for line in said if "rror" in line and not any(words in line for words in CUT)] or said
    words = redact(told[-1]) if told else "wandb sync says nothing of why"
    secret = os.environ.get(KEY, "")
    return (words.replace(secret, f"[{KEY}]") if secret else words)[:WORDS]


def _variables(asked: WandbInput, identity: str) -> dict[str, str | None]:
    return {
        "WANDB_PROJECT": asked.project,
        "WANDB_ENTITY": asked.entity,
        "WANDB_RUN_GROUP": asked.group or identity,
        "WANDB_NAME": asked.name,
        "WANDB_TAGS": ",".join(asked.tags),
        "WANDB_RESUME": "allow",
    }


def _place(asked: WandbInput) -> str:
    return address(asked, "runs/{run}") or f"project {asked.project}, run {{run}}"


def _words(asked: WandbInput, sweep: Sweep) -> str:
    group = asked.group or sweep.identity
    each = PLACEHOLDER.search(group) is not None
    shown = address(asked, "" if each else f"groups/{quote(group, safe='')}")
    return shown or f"project {asked.project}" + ("" if each else f", group {group}")


def address(wandb: WandbInput, page: str) -> str:
    """A page of the project of Weights & Biases; "" where only the key knows whose project it is."""
    if not wandb.entity:
        return ""
    site = os.environ.get("WANDB_BASE_URL", "https://wandb.ai").rstrip("/").replace("//api.wandb.ai", "//wandb.ai")
    return f"{site}/{quote(wandb.entity)}/{quote(wandb.project)}/{page}"


KIND = Kind(
    name="wandb",
    folder=f"{FOLDER}/wandb",
    offline={
        "WANDB_MODE": "offline",
        "WANDB_DIR": f"{{out}}/{FOLDER}",
        "WANDB_ERROR_REPORTING": "false",
    },
    variables=_variables,
    place=_place,
    words=_words,
    send=send,
)
