"""The search for what no state has: hosts that are off by the records are asked at once, and once."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.channel.ssh import route as ssh_config
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import box_tag
from sweepstack.operations.strays.beside_sweep import Search, search
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.handover_records import Handover, keep_handover
from tests.unit.loopback import Silent

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
FILE: Any = None
"""It is never asked: the records say what was rented."""


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
    with closing(Silent(3)) as silent:
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
    assert search(StackState(stack="sweep-t"), store, births, FILE, evidence) == Search(), "and no box is missed"
    assert hosts.together, "one host's silence was waited for before the next one was asked"
    assert hosts.calls == [1, 1, 1], "who is silent has no list to ask for"
