"""A worker of several pods frees its cells once each pod is proved to have ended, and a person can say it of each.

Each example plays pods that are lost, ended, gone or told of, in any order, by the real judgement of the cluster's
words, the real command and the real journal; a small store stands in for the API server, and processes are calls.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.commands.confirm import worker as confirm_worker
from sweepstack.cli.output import Out
from sweepstack.extensions.kubernetes import workers
from sweepstack.extensions.kubernetes.onbox import api_server, pilot, worker_state
from sweepstack.extensions.kubernetes.onbox.ends import OUT_OF_SERVICE
from sweepstack.extensions.kubernetes.pod_template import several_label
from sweepstack.onbox.common.errors import No, NotAuthorized
from sweepstack.onbox.runner import worker as runner
from sweepstack.onbox.runner.workers import Proofs, SharedJournal, who
from tests.extensions.kubernetes.made import BOX, LATE, RUNS, ended, node, pod
from tests.extensions.kubernetes.test_workers import Store

RUNNING = ("runs",)
PROVED = ("told", "recorded", "taint")
OPEN = ("silent", "nodeless", "stuck", "vanished")
"""What is not known to have ended; of `vanished` the cluster shows no object, and there is no record."""
NAMED = re.compile(r'sweepctl confirm worker box-0 (\S+) --saw "…"')


class World:
    """Workers whose pods are each in one of these states. Each worker holds a cell. `asks`: its pods may read pods."""

    def __init__(self, home: Path, kinds: list[list[str]], asks: bool) -> None:
        self.home, self.kinds, self.asks, self.store = home, kinds, asks, Store()
        self.store.objects["pvc"][BOX]["metadata"]["annotations"]["sweepstack.dev/name"] = "box-0"
        self.uids = [[f"{number}{index}" * 4 for index in range(len(one))] for number, one in enumerate(kinds)]
        self.said: set[str] = set()
        spec = {"schema": 1, "identity": "x", "generation": 1, "durable": "/", "python": "python3", "artifacts": []}
        shared = {"worker_state": ["state", BOX, str(home)]}
        home.mkdir()
        (home / "spec.json").write_text(json.dumps({**spec, "box": "box-0", "native_id": BOX, "shared": shared}))
        for number in range(len(kinds)):
            self._begin(number)
        self.spec = lambda: json.loads((home / "spec.json").read_bytes())

    def _begin(self, number: int) -> None:
        first, *others = self.uids[number]
        for index, kind in enumerate(self.kinds[number]):
            self._pod(number, index, kind)
        names = [f"pod-{number}-{index}" for index in range(len(others) + 1)]
        elsewhere = {**who(f"{first}.0"), "boot": "another", "machine": ""}
        held = {name: {"id": uid} for name, uid in zip(names[1:], others, strict=True)}
        self.keep({
            f"{pilot.HELD}/{first}.json": json.dumps({"holder": first, "nodes": held}).encode(),
            f"workers/{first}.0/worker.json": json.dumps(
                {**elsewhere, "job": first, "try": "0", "nodes": names, "program": "runner.py"}
            ).encode(),
        })  # fmt: skip
        journal = SharedJournal(self.home, f"{first}.0", elsewhere, lambda _: False)
        journal.append("runner-started", pid=1)
        journal.append("cell-started", cell=f"c{number}", attempt=1, config_digest="x", version=1)
        journal.close()

    def _pod(self, number: int, index: int, kind: str) -> None:
        place = f"node-{number}-{index}"
        state = ended(75) if kind in ("told", "recorded") else RUNS
        made = pod(state, at=place, index=index, conditions={"Ready": str(kind in ("runs", "told", "stuck"))})
        if kind == "stuck":
            made["metadata"]["deletionTimestamp"] = LATE
        made["metadata"].update(name=f"pod-{number}-{index}", uid=self.uids[number][index], labels=several_label(2))
        taints = [OUT_OF_SERVICE] if kind == "taint" else []
        ready = "Unknown" if kind in ("silent", "taint") else "True"
        if kind != "nodeless":
            self.store.add("node", node(name=place, ready=ready, taints=taints))
        if kind == "recorded":
            self.keep({f"{worker_state.RECORDS}/{made['metadata']['uid']}.json": worker_state.record_of(made, "x")})
        elif kind != "vanished":
            self.store.add("pod", made)

    def keep(self, files: dict[str, bytes]) -> None:
        for path, data in files.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_bytes(data)

    # what stands for processes and connections

    def get(self, path: str) -> dict[str, Any] | None:
        """The API server, as a pod asks it."""
        if not self.asks:
            raise NotAuthorized("this pod may not")
        if "/nodes/" in path:
            return self.store.get("node", path.rpartition("/")[2])
        return {"items": self.store.list("pod")}

    def state(self, argv: list[str], **_: Any) -> Any:
        """The program that a worker asks about another one."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert worker_state.main(argv) == 0
        return SimpleNamespace(stdout=out.getvalue().encode())

    def run(self, argv: list[str], **_: Any) -> Any:
        """A command on the box: `confirm` has the one, to write in the journal."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = runner.main(argv[1:])
        return SimpleNamespace(returncode=code, stderr=said.getvalue().encode())

    @contextlib.contextmanager
    def played(self) -> Iterator[World]:
        parts = lambda: b"".join(path.read_bytes() for path in (self.home / pilot.HELD).iterdir())  # noqa: E731

        def worker_ended(worker: str, saw: str) -> str:
            return workers.person_saw(self.store, BOX, "a", worker, saw, self.keep, parts)  # type: ignore[arg-type]

        channel = SimpleNamespace(
            python="python3", absolute=lambda _: str(self.home), run=self.run, worker_ended=worker_ended,
            read=lambda path: (self.home / "workers" / path.partition("/workers/")[2]).read_bytes(),
        )  # fmt: skip
        context = SimpleNamespace(platform=SimpleNamespace(channel=lambda *_: channel))
        entry = SimpleNamespace(name="box-0", native_id="", account="", context=lambda: context)
        with (
            mock.patch.object(confirm_worker, "find_box", return_value=entry),
            mock.patch.object(confirm_worker, "way_to", return_value=channel),
            mock.patch.object(api_server, "get", self.get),
            mock.patch.object(subprocess, "run", self.state),
            mock.patch.object(os, "fsync"),
        ):
            yield self

    # what people do

    def confirm(self, worker: str) -> bool:
        """Whether it was taken."""
        target: Any = SimpleNamespace(stack="dev")
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                code = confirm_worker.confirm(
                    target, Statement("box-0", "off", "ann", which=worker), Out(as_json=False)
                )
            except No:
                return False
        assert code == 0
        self.said.add(worker)
        return True

    def status(self) -> set[str]:
        """The workers that it names with a command, as the cluster shows them."""
        told = workers.told(self.store, BOX, "a", self.keep)  # type: ignore[arg-type]
        return set(NAMED.findall(" ".join([told["words"], *(task["words"] for task in told["tasks"])])))

    def named_by_pods(self) -> set[str]:
        """Those that the state program names: to a pod that may not ask each may have ended."""
        said = [value for uids in self.uids for value in worker_state.told(BOX, self.home, uids[0]).values()]
        return set(NAMED.findall(" ".join(said)))

    def pods(self) -> list[tuple[str, str]]:
        """(uid, kind) of each."""
        return [
            pair for uids, kinds in zip(self.uids, self.kinds, strict=True) for pair in zip(uids, kinds, strict=True)
        ]

    def free(self) -> list[bool]:
        """Of each worker: whether another one would take its cells now."""
        journal = SharedJournal(self.home, "", who(""), lambda _: False)
        with journal.turn():
            known = set(journal.ended)
        journal.close()
        firsts = [f"{uids[0]}.0" for uids in self.uids]
        return [name in known or bool(Proofs(self.home, who("w"), self.spec).proof(name)) for name in firsts]

    def may_be_free(self) -> list[bool]:
        """The truth of it."""
        return [
            all(kind in PROVED or f"{uid}.0" in self.said for kind, uid in zip(kinds, uids, strict=True))
            for kinds, uids in zip(self.kinds, self.uids, strict=True)
        ]


KINDS = st.lists(st.lists(st.sampled_from([*RUNNING, *PROVED, *OPEN]), min_size=2, max_size=3), min_size=1, max_size=2)
ORDER = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=4)


def played(folder: Path, kinds: list[list[str]], asks: bool, order: list[tuple[int, int]]) -> None:
    with World(folder, kinds, asks).played() as world:
        for number, index in order:
            if number < len(kinds) and index < len(kinds[number]):
                taken = world.confirm(f"{world.uids[number][index]}.0")
                assert not (taken and kinds[number][index] in RUNNING), "it is seen to run"
                assert not any(free and not may for free, may in zip(world.free(), world.may_be_free(), strict=True))
        runs = {f"{uid}.0" for uid, kind in world.pods() if kind in RUNNING}
        for _ in range(sum(map(len, kinds)) + 1):
            named = world.status()
            assert not named & runs
            for worker in sorted((named | world.named_by_pods()) - world.said):
                assert world.confirm(worker) == (worker not in runs), f"{worker} is named, and not taken"
                assert not any(free and not may for free, may in zip(world.free(), world.may_be_free(), strict=True))
        world.status()  # which an `up` does, too: it puts on record what the cluster shows
        assert world.free() == [not set(kinds) & set(RUNNING) for kinds in world.kinds]


def test_a_persons_word_does_not_stand_for_what_a_node_told(tmp_path: Path) -> None:
    with World(tmp_path / "box", [["silent", "told"]], asks=True).played() as world:
        other = world.uids[0][1]
        record = world.home / worker_state.RECORDS / f"{other}.json"
        assert not world.confirm(f"{other}.0")
        assert not record.exists()
        world.status()
        assert "says that it has ended" in json.loads(record.read_text())["why"]


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    made = iter(range(1 << 30))
    return lambda: tmp_path / str(next(made))


@given(kinds=KINDS, asks=st.booleans(), order=ORDER)
def test_cells_are_free_once_each_pod_is_proved_and_each_named_command_is_taken(
    folders: Callable[[], Path], kinds: list[list[str]], asks: bool, order: list[tuple[int, int]]
) -> None:
    played(folders(), kinds, asks, order)


@pytest.mark.proof
@settings(max_examples=600)
@given(kinds=KINDS, asks=st.booleans(), order=ORDER)
def test_the_same_with_many_more(
    folders: Callable[[], Path], kinds: list[list[str]], asks: bool, order: list[tuple[int, int]]
) -> None:
    played(folders(), kinds, asks, order)
