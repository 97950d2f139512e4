"""The search for what no state has: hosts that are off by the records are asked at once, and once."""

from __future__ import annotations

import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.channel import ssh_config
from sweep.cli.strangers import Search, search
from sweep.evidence.store import EvidenceStore
from sweep.handover import Handover, keep_handover
from sweep.model import Birth
from sweep.onbox import box_tag
from sweep.state import StackState

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
TARGET: Any = SimpleNamespace(stack="sweep-t")
DEADLINE = 120.0


class Silent:
    """Addresses that take a connection and say nothing, until every one of them was asked; then they hang up.

    `calls`: how often each was asked. `together`: whether all callers still waited when the last one came.
    """

    def __init__(self, count: int) -> None:
        self.doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.adapters = [f"ssh:root@127.0.0.1:{door.getsockname()[1]}" for door in self.doors]
        self.calls = [0] * count
        self.together = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        waiting: dict[int, socket.socket] = {}
        while not self._stop.is_set():
            for door in select.select(self.doors, (), (), 0.05)[0]:
                number, (caller, _) = self.doors.index(door), door.accept()
                self.calls[number] += 1
                waiting[number] = caller
            if len(waiting) == len(self.doors):
                self.together = self.together or not any(_hung_up(caller) for caller in waiting.values())
                for caller in waiting.values():
                    caller.close()
                waiting.clear()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)
        for door in self.doors:
            door.close()


def _hung_up(caller: socket.socket) -> bool:
    while select.select((caller,), (), (), 0)[0]:
        if not caller.recv(4096):
            return True
    return False


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvidenceStore:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(key))
    uri = f"file://{socket.gethostname()}{tmp_path}/evidence"
    return EvidenceStore.found(uri, "a1b2c3", "project", "sweep-t")


@pytest.fixture
def hosts() -> Iterator[Silent]:
    with ExitStack() as stack:
        silent = Silent(3)
        stack.callback(silent.close)
        yield silent


def off(store: EvidenceStore, number: int, adapter: str) -> Birth:
    """A box whose bill a command ended, and that is closed in the books."""
    box, native_id = f"box-{number}", f"host-{number}"
    birth = Birth(
        box=box,
        generation=1,
        tag=box_tag(store.marker.identity, box, 1),
        platform=adapter,
        account="host-account",
        native_id=native_id,
        price_per_hour=0.5,
        begun_at=NOW,
        created_at=NOW,
        ended_at=NOW,
        ended_how="shutdown",
    )
    store.write_birth(birth)
    known = Handover(
        box=box,
        native_id=native_id,
        verb="destroy",
        by="ssh",
        native="shutdown",
        way="cleared",
        begun_at=NOW,
        ended_at=NOW,
        accepted_at=NOW,
        silent_at=NOW,
    )
    keep_handover(store, known)
    return birth


def test_hosts_that_are_off_are_asked_side_by_side_and_not_again(
    store: EvidenceStore, hosts: Silent, tmp_path: Path
) -> None:
    births = [off(store, number, adapter) for number, adapter in enumerate(hosts.adapters)]
    evidence = f"file://{socket.gethostname()}{tmp_path}/evidence"
    assert search(StackState(stack="sweep-t"), store, births, TARGET, evidence) == Search(), "and nobody is missed"
    assert hosts.together, "one host's silence was waited for before the next one was asked"
    assert hosts.calls == [1, 1, 1], "who is silent has no list to ask for"
