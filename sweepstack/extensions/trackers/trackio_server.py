"""Sends what Trackio's client wrote into a cell's outputs to a server of Trackio, by its API.

Its package is not needed. A cell is one run there, whatever its tries: with an id of its own, which Trackio's client
would draw anew for each. Each row has an id of the client, so sending again changes nothing. Only numbers are sent:
what else a job logs is in the evidence.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from sweepstack.core.job import TrackioInput
from sweepstack.extensions.trackers.kind import FOLDER, Kind, Sweep
from sweepstack.extensions.trackers.sent import FIRST_SECONDS, NotSent
from sweepstack.extensions.trackers.tries import Try
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.common.tracked import run_id
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpClient

KEY, SPACE_KEY = "TRACKIO_WRITE_TOKEN", "HF_TOKEN"
SPACE = ".hf.space"
"""How the host of a Space of Hugging Face ends: it takes another key."""
MOST = 1000
"""Rows of one request, as its own client sends them."""
VERSION = 1
"""Of the API that is known here."""
ROWS = "SELECT run_id, step, metrics, log_id FROM metrics ORDER BY id"
CONFIGS = "SELECT run_id, config FROM configs"


def send(asked: TrackioInput, tries: Sequence[Try], sweep: Sweep, seconds: float) -> Iterator[tuple[Try, str]]:
    """As `kind.Send`."""
    server = _Server(asked, sweep, Deadline(seconds))
    for one in tries:
        yield one, server.send(one)


class _Server:
    """A server, with the key of this process's environment."""

    def __init__(self, asked: TrackioInput, sweep: Sweep, deadline: Deadline) -> None:
        """Asks whether it is there. Raises NotSent; RequestRefused where the key would go over the network in the
        clear."""
        self._asked, self._sweep, self._deadline = asked, sweep, deadline
        self._on_space = (urlsplit(asked.uri).hostname or "").endswith(SPACE)
        self._hint = SPACE_KEY if self._on_space else KEY
        self._key = os.environ.get(self._hint, "")
        headers = {"X-Trackio-Write-Token": self._key} if self._key and not self._on_space else {}
        self._client = HttpClient("Trackio", asked.uri, self._key, key_hint=self._hint, headers=headers)
        first = Deadline(min(FIRST_SECONDS, deadline.left()))
        try:
            answer = self._client.read("/version", deadline=first)
        except SweepstackError as error:
            raise NotSent(f"{error}{self._key_words()}") from None
        version = answer.data.get("api_version") if answer.ok and isinstance(answer.data, dict) else None
        if version != VERSION:
            raise NotSent(f"{asked.uri} is no Trackio server with version {VERSION} of its API{self._key_words()}")

    def send(self, one: Try) -> str:
        """Sends one try. Returns the address of the project. Raises NotSent, EvidenceError, OSError."""
        values = self._sweep.values(one.cell)
        name, run = own_file(self._asked.name, one.cell, values), run_id(self._sweep.identity, one.cell)
        facts = {"sweepstack.cell": one.cell, "sweepstack.sweep": self._sweep.identity}
        facts["_Group"] = own_file(self._asked.group or self._sweep.identity, one.cell, values)
        for number, (config, rows) in enumerate(_runs(one)):
            end = f"-{number}" if number else ""
            known = {"project": self._asked.project, "run": name + end, "run_id": run + end}
            first: dict[str, Any] = {"config": {**config, **facts}}
            logs = [{**known, **row, **(first if not at % MOST else {})} for at, row in enumerate(rows)]
            for begin in range(0, len(logs), MOST):
                self._log(logs[begin : begin + MOST])
        return f"{self._asked.uri}/?{urlencode({'project': self._asked.project})}"

    def _log(self, logs: Sequence[dict[str, Any]]) -> None:
        if self._deadline.left() <= 0:
            raise NotSent("its time was up")
        body = {"args": [], "kwargs": {"logs": logs, "hf_token": self._key if self._on_space else None}}
        try:
            answer = self._client.query("/api/bulk_log", body, deadline=self._deadline)
        except SweepstackError as error:
            raise NotSent(f"{error}{self._key_words()}") from None
        said = answer.data if isinstance(answer.data, dict) else {"error": "an answer of another kind"}
        if not answer.ok or said.get("error") is not None:
            why = self._client.clean(str(said.get("error") or answer.text or answer.status))
            raise NotSent(f"Trackio refuses what was sent: {why}; check {self._hint}{self._key_words()}")

    def _key_words(self) -> str:
        return "" if self._key else f" (sent without a key: {self._hint} is not set here)"


def _runs(one: Try) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The config and the rows of each run, in the order in which they began. Raises NotSent for a file that does not
    read."""
    with tempfile.TemporaryDirectory(prefix="sweepstack-trackio-") as folder:
        one.copy_to(Path(folder))
        for path in sorted(Path(folder).glob("*.db")):
            try:
                with contextlib.closing(sqlite3.connect(path)) as base:  # what a kill left half written is undone
                    configs = {run: json.loads(text) for run, text in base.execute(CONFIGS)}
                    runs: dict[str, list[dict[str, Any]]] = {}
                    for run, step, text, log in base.execute(ROWS):
                        row = {"step": step, "log_id": log, "metrics": _numbers(json.loads(text))}
                        runs.setdefault(run, []).append(row)
            except (sqlite3.Error, ValueError) as error:
                raise NotSent(f"{path.name} of {one.cell} does not read: {error}") from None
            yield from ((configs.get(run, {}), rows) for run, rows in runs.items())


def _numbers(logged: dict[str, Any]) -> dict[str, Any]:
    """Of a row what is a number, or stands for one: the client writes NaN as a text."""
    return {key: value for key, value in logged.items() if isinstance(value, (int, float, str))}


def _shown(asked: TrackioInput) -> str:
    return f"{asked.uri}, project {asked.project}"


KIND = Kind(
    name="trackio",
    folder=f"{FOLDER}/trackio",
    offline={
        "TRACKIO_DIR": f"{{out}}/{FOLDER}/trackio",
        "TRACKIO_STORAGE_MODE": "sqlite",
        "TRACKIO_SQLITE_JOURNAL_MODE": "DELETE",  # one file has it all, at each moment between two writes
    },
    variables=lambda asked, identity: {},
    place=lambda asked: f"{_shown(asked)}, run {{run}}",
    words=lambda asked, sweep: _shown(asked),
    send=send,
)
