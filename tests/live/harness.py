"""A real platform as the conformance suite sees it: what can be done to one from outside, and what can't."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.channel.ssh.keys import public_key
from sweepstack.onbox.common.errors import StillCreating
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Platform, VolumeRecord, Wait
from tests.conformance.harness import created_at_once, harness_class
from tests.live.run import LiveRun

BY_HAND_SECONDS = 180.0
NOWHERE = "http://127.0.0.1:9"
CANNOT = frozenset(
    {"inject", "slow_boot", "lose_answers", "fail_late", "make_unreadable", "make_foreign"}
    | {"cut_destroy", "cut_stop", "turn", "rate", "odd_cards"}
)
"""Methods of a harness that would need a platform that fails on demand, or a second account: tests that call them are
not collected here. The simulators play them."""


def metered(platform: Platform, run: LiveRun) -> Platform:
    """The adapter, of the same kind, with every create asked of the purse first, and lists of this run alone: the
    account may hold what is none of our business."""

    class Metered(type(platform)):  # type: ignore[misc]
        def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
            """Raises OverBudget instead of renting past the ceiling."""
            run.purse.take(request.tag, min(request.max_price or run.books.most_per_hour, run.books.most_per_hour))
            try:
                record: BoxRecord = super().create(request, wait=wait)
            except StillCreating as error:
                run.purse.reprice(request.tag, float(error.outputs.get("price_per_hour") or 0.0))
                raise
            run.purse.reprice(request.tag, record.price_per_hour or 0.0)
            return record

        def list_tagged(self, prefix: str) -> list[BoxRecord]:
            return list(super().list_tagged(prefix or run.prefix))

        def list_volumes(self, prefix: str) -> list[VolumeRecord]:
            return list(super().list_volumes(prefix or run.prefix))

    made = Metered.__new__(Metered)
    vars(made).update(vars(platform))
    return made


class LiveHarness:
    """See `tests.conformance.harness.Harness`. `rentals` asks the platform past the adapter."""

    host = False
    wire = False
    price = None
    plays: frozenset[tuple[str, str]] = frozenset()
    impossible: frozenset[str] = frozenset()

    def __init__(self, run: LiveRun, patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self._run, self._patch = run, patch
        self.adapter = run.platform_name
        simulated = harness_class(self.adapter)
        self.killed_by_stop: tuple[str, ...] = simulated.killed_by_stop
        self.kept_by_stop: tuple[str, ...] = simulated.kept_by_stop
        self.secrets = (os.environ[run.books.key],)
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))

    def connect(self) -> Platform:
        return metered(self._run.platform(), self._run)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        assert tag.startswith(self._run.prefix), f"{tag} is not of this run: nothing would end it"
        known = {"tag": tag, "name": "live", "public_key": public_key(), "max_price": self._run.books.most_per_hour}
        return BoxRequest(**{**known, **changes})

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        assert tag.startswith(self._run.prefix), f"{tag} is not of this run: nothing would end it"
        return platform.ensure_volume(tag, "durable", size_gb=10, region=self._run.region())

    def rentals(self) -> set[str]:
        return {entry.id for entry in self._run.held("box")}

    def doubled(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in self._run.held("box"):
            found.setdefault(entry.tag, []).append(entry.id)
        return {tag: ids for tag, ids in found.items() if len(ids) > 1}

    def cut_off(self) -> None:
        self._patch.setenv(self._run.books.url, NOWHERE)

    def remove_by_hand(self, native_id: str) -> None:
        self._run.books.end(self._run.books, native_id)
        self._until(lambda: native_id not in self.rentals(), f"{native_id} to be gone from the platform's list")
        self._until(
            lambda: all(
                record.native_id != native_id or record.phase is Phase.GONE
                for record in self.connect().list_tagged(self._run.prefix)
            ),
            f"{native_id} to be gone from what the adapter remembers",
        )

    def repair(self) -> None:
        if self._run.url is None:
            self._patch.delenv(self._run.books.url, raising=False)
        else:
            self._patch.setenv(self._run.books.url, self._run.url)

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        self._run.purse.take(request.tag, self._run.books.most_per_hour)
        return created_at_once(self.adapter, request, count, machines=True, seconds=900)

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + BY_HAND_SECONDS
        while not ready():
            assert time.monotonic() < end, f"waited {BY_HAND_SECONDS:g} s for {what}"
            time.sleep(self._run.poll)
