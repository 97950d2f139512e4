"""The requests that the end of one RunPod box takes, on the simulator: with a hundred boxes, each one more is a hundred
more that wait for the account's quota.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from sweepstack.platforms.common import single_flight
from sweepstack.platforms.runpod import api
from sweepstack.platforms.runpod.platform import RunpodPlatform
from tests.simulators.runpod import DELETE, GET, KEY, LIST, Boot, RunPodSim
from tests.unit.platforms.api_world import quick, serving

ACCOUNT = "user_ann"
REQUEST = BoxRequest(tag="sweepstack-a1b2c3-box-0-g1", name="box-0", public_key="ssh-ed25519 AAAA x")
LONG = 1e6
"""Seconds: 10,000 of ours, so that no answer becomes too old because this machine is slow."""


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RunPodSim]:
    quick(monkeypatch, tmp_path, api.KEY_VARIABLE, KEY)
    monkeypatch.setattr(api, "ACCOUNT_SECONDS", LONG)
    monkeypatch.setattr(api, "PROVED_SECONDS", LONG)
    with serving(RunPodSim(boot=Boot(reads=0)), monkeypatch, api.BASE_VARIABLE) as sim:
        yield sim
    api.SESSIONS.forget()


def test_the_older_list_that_proves_an_end_says_whose_key_it_is_too(
    sim: RunPodSim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask for the account on its own waited in line behind all other boxes, until the proof itself was too old."""
    platform = RunpodPlatform()
    box = platform.create(REQUEST, wait=Wait(60)).native_id
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + LONG, sleep=time.sleep)
    for module in (api, single_flight):  # what is known of the account is too old from here on
        monkeypatch.setattr(module, "time", later)
    sim.calls.clear()
    platform.destroy(box, ACCOUNT)
    for _ in range(2):
        assert platform.get(box, ACCOUNT).phase is Phase.GONE
    assert Counter(f"{call.method} {call.route}" for call in sim.calls) == {
        DELETE: 1,
        GET: 1,
        LIST: 1,
        "POST /graphql": 1,
    }
