"""What a network volume of RunPod is made as, and costs: by its simulator's own books."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.platforms.runpod.platform import RunpodPlatform
from tests.conformance.harness_runpod import Harness


@pytest.fixture
def runpod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    harness = Harness(tmp_path, monkeypatch, machines=False)
    yield harness
    harness.close()


@pytest.mark.parametrize(
    ("region", "size", "kind"),
    [("US-TX-3", 100, "STANDARD"), ("EU-RO-1", 4096, "STANDARD"), ("EU-SE-1", 100, "HIGH_PERFORMANCE")],
)
def test_a_volume_is_quoted_and_shown_at_what_it_bills(runpod: Harness, region: str, size: int, kind: str) -> None:
    """Found on 6f8d950f: the data center's default was taken, and each type and size counted 0.07 a GB."""
    runpod.sim.stock.centers["EU-SE-1"].volumes = ("HIGH_PERFORMANCE",)
    platform = RunpodPlatform()
    quote = platform.quote_volume(size, region)
    made = platform.ensure_volume("tag-v", "durable", size_gb=size, region=region)
    (volume,) = runpod.sim.volumes.all.values()
    (bills,) = runpod.sim.ledger.live("volume")
    assert volume.type == kind
    assert quote == pytest.approx(bills.rate * 730)
    assert made.price_per_month == pytest.approx(bills.rate * 730)
    assert platform.ensure_volume("tag-v", "durable").price_per_month == made.price_per_month
    assert ("(HIGH_PERFORMANCE)" in made.location) is (kind != "STANDARD")
    if kind == "STANDARD":
        grown = platform.ensure_volume("tag-v", "durable", size_gb=min(2 * size, 4096))
        assert grown.price_per_month == pytest.approx(bills.rate * 730)
