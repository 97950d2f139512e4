"""Sends what a cell's MLflow client wrote into its outputs to a server, by its REST API.

A cell is one run there, whatever its tries: it is found by a tag. Sending again changes nothing. Of further runs that a
job begins beside its first, each is a run, too. Models and other artifacts are not sent: they are in the evidence.
"""

from __future__ import annotations

import base64
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweepstack.core.job import MlflowInput
from sweepstack.extensions.trackers.kind import FOLDER, Kind, Sweep
from sweepstack.extensions.trackers.sent import FIRST_SECONDS, NotSent
from sweepstack.extensions.trackers.tries import Try
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.common.tracked import run_id
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient

TAG = "sweepstack.run"
PARENT = "mlflow.parentRunId"
OF_THE_CLIENT = ("mlflow.runName", PARENT)
"""Tags that are not sent as they are."""
MOST = 1000
"""Metrics of one request, as the server takes them."""
MOST_WORDS = 100
"""Parameters of one request, and tags."""
KEYS = "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
_FIELD = re.compile(r"^(status|start_time|end_time): *([0-9]+)\s*$", re.MULTILINE)
API = "/api/2.0/mlflow"
ENDED = {3: "FINISHED", 4: "FAILED", 5: "KILLED"}


@dataclass(frozen=True)
class Logged:
    """One run of a store of files."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    """`status`, `start_time`, `end_time` (ms), as far as the client wrote them"""


def send(tracker: MlflowInput, tries: Sequence[Try], sweep: Sweep, seconds: float) -> Iterator[tuple[Try, str]]:
    """As `kind.Send`."""
    server = _Server(tracker, sweep.identity, Deadline(seconds))
    for one in tries:
        yield one, server.send(one, sweep.values(one.cell))


class _Server:
    """A server, with the key of this process's environment, which goes into a header alone."""

    def __init__(self, tracker: MlflowInput, identity: str, deadline: Deadline) -> None:
        """Sends nothing. Raises RequestRefused where the key would go over the network in the clear."""
        self._tracker, self._identity, self._deadline = tracker, identity, deadline
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN", ""), os.environ.get("MLFLOW_TRACKING_USERNAME", "")
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        redact.learn({"MLFLOW_TRACKING_PASSWORD": password} if password else {})
        pair = base64.b64encode(f"{user}:{password}".encode()).decode() if user and not token else ""
        self._has_key = bool(token or pair)
        scheme = "Bearer " if token else "Basic "
        self._client = HttpClient("MLflow", tracker.uri, token or pair, key_hint=KEYS, scheme=scheme)
        self._experiment = ""

    def send(self, one: Try, values: Mapping[str, Any]) -> str:
        """Sends one try. Returns the address of the cell's run. Raises NotSent, EvidenceError, OSError."""
        name, first = run_id(self._identity, one.cell), ""
        known: dict[str, str] = {}
        for number, (local, logged) in enumerate(sorted(_runs(one).items(), key=_began)):
            own = {TAG: f"{name}-{number}" if number else name, "sweepstack.cell": one.cell}
            own |= {"sweepstack.sweep": self._identity}
            parent = known.get(logged.tags.get(PARENT, ""))
            own |= {PARENT: parent} if parent is not None else {}
            tags = {key: text for key, text in logged.tags.items() if key not in OF_THE_CLIENT}
            tags |= {**self._tags(values), **own}
            run, there = self._run(tags, own_file(self._tracker.name, one.cell, values), logged)
            known[local] = run
            first = first or run
            self._log(run, "metrics", logged.metrics, MOST)
            kept = {key: value for key, value in logged.params.items() if key not in there}
            self._log(run, "params", _pairs(kept), MOST_WORDS)
            self._log(run, "tags", _pairs(tags), MOST_WORDS)
            self._post("runs/update", {"run_id": run, **_end(logged, one.sealed)})
        return f"{self._tracker.uri}/#/experiments/{self._experiment}/runs/{first}" if first else ""

    def _tags(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {key: own_file(text, str(values["cell"]), values) for key, text in self._tracker.tags.items()}

    def _run(self, tags: Mapping[str, str], name: str, logged: Logged) -> tuple[str, set[str]]:
        """The run with this tag, made where there is none; and its parameters: a server changes none."""
        self._experiment = self._experiment or self._experiment_id()
        wanted = f"tags.`{TAG}` = '{tags[TAG]}'"
        asked = {"experiment_ids": [self._experiment], "filter": wanted, "max_results": 1}
        found = self._post("runs/search", asked).get("runs") or []
        if found:
            data = found[0].get("data") or {}
            return str(found[0]["info"]["run_id"]), {str(one.get("key")) for one in data.get("params") or []}
        first = {key: tags[key] for key in (TAG, "sweepstack.cell", "sweepstack.sweep", PARENT) if key in tags}
        began = {"start_time": logged.times.get("start_time") or int(time.time() * 1000)}
        new = {"experiment_id": self._experiment, "run_name": name, **began, "tags": _pairs(first)}
        return str(self._post("runs/create", new, writes=True)["run"]["info"]["run_id"]), set()

    def _experiment_id(self) -> str:
        name = self._tracker.experiment
        first = Deadline(min(FIRST_SECONDS, self._deadline.left()))
        asked = {"experiment_name": name}
        answer = self._told(lambda: self._client.read(f"{API}/experiments/get-by-name", asked, deadline=first))
        if answer.status == 404:
            return str(self._post("experiments/create", {"name": name}, writes=True)["experiment_id"])
        return str(self._body(answer, "its experiments")["experiment"]["experiment_id"])

    def _log(self, run: str, kind: str, rows: Sequence[Mapping[str, Any]], most: int) -> None:
        for begin in range(0, len(rows), most):
            self._post("runs/log-batch", {"run_id": run, kind: rows[begin : begin + most]})

    def _post(self, path: str, body: Mapping[str, Any], *, writes: bool = False) -> dict[str, Any]:
        """`writes`: sent once at most; all else may come twice, and changes nothing then."""
        if self._deadline.left() <= 0:
            raise NotSent("its time was up")
        where = f"{API}/{path}"
        if writes:
            return self._body(
                self._told(lambda: self._client.write("POST", where, body, deadline=self._deadline)), path
            )
        return self._body(self._told(lambda: self._client.query(where, body, deadline=self._deadline)), path)

    def _body(self, answer: HttpAnswer, asked: str) -> dict[str, Any]:
        if not answer.ok or not isinstance(answer.data, dict):
            raise NotSent(f"{self._client.refusal(answer, asked)}{self._key_words()}")
        return answer.data

    def _told(self, ask: Callable[[], HttpAnswer]) -> HttpAnswer:
        try:
            return ask()
        except SweepstackError as error:
            raise NotSent(f"{error}{self._key_words()}") from None

    def _key_words(self) -> str:
        return "" if self._has_key else f" (sent without a key: {KEYS} are not set here)"


def _pairs(words: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in words.items()]


def _began(item: tuple[str, Logged]) -> tuple[int, str]:
    local, logged = item
    return logged.times.get("start_time", 0), local


def _runs(one: Try) -> dict[str, Logged]:
    """The runs in a store of files, `EXPERIMENT/RUN/KIND/NAME`, by their ids there."""
    found: dict[str, Logged] = {}
    for path, read in sorted(one.files.items()):
        local, _, name = path.partition("/")[2].partition("/")
        kind, _, key = name.partition("/")
        if name != "meta.yaml" and kind not in ("metrics", "params", "tags"):
            continue
        run = found.setdefault(local, Logged())
        text = b"".join(read()).decode("utf-8", "replace")
        if name == "meta.yaml":
            run.times.update({field: int(value) for field, value in _FIELD.findall(text)})
        elif kind == "metrics":
            run.metrics.extend(_rows(key, text))
        else:
            (run.params if kind == "params" else run.tags)[key] = text
    return found


def _rows(name: str, text: str) -> Iterator[dict[str, Any]]:
    """Lines of `timestamp value [step]`; one that was cut off is left out."""
    for line in text.split("\n")[:-1]:
        parts = line.split(" ")
        try:
            at, value, step = int(parts[0]), float(parts[1]), int(parts[2]) if len(parts) > 2 else 0
        except (ValueError, IndexError):
            continue
        said = value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        yield {"key": name, "value": said, "timestamp": at, "step": step}


def _end(logged: Logged, sealed: bool) -> dict[str, Any]:
    status = ENDED.get(logged.times.get("status", 0), "FINISHED") if sealed else "FAILED"
    return {"status": status, "end_time": logged.times.get("end_time") or int(time.time() * 1000)}


def _shown(asked: MlflowInput) -> str:
    return f"{asked.uri}, experiment {asked.experiment}"


KIND = Kind(
    name="mlflow",
    folder=f"{FOLDER}/mlruns",
    offline={
        "MLFLOW_TRACKING_URI": f"{{out}}/{FOLDER}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    },
    variables=lambda asked, identity: {"MLFLOW_EXPERIMENT_NAME": asked.experiment},
    place=lambda asked: f"{_shown(asked)}, sweepstack.run {{run}}",
    words=lambda asked, sweep: _shown(asked),
    send=send,
)
