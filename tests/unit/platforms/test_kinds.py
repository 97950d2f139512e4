"""What a platform can't do is refused in its own words, by whoever needs it: the adapter has no verb that raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import Unreachable, Unsupported, WrongAccount
from sweepstack.onbox.host.capabilities import HasBalance, HasMarket, RentsSpot
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import Platform, VolumeRecord
from sweepstack.platforms.registry import load_platform, need, volume_channel


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (HasMarket, "local has no market: its boxes are all alike, at the price that the config names"),
        (HasBalance, "local has no account with money in it"),
        (RentsSpot, "local has no spot boxes, so there is no bid to change"),
    ],
)
def test_without_words_of_its_own(tmp_path: Path, kind: type[Platform], words: str) -> None:
    with pytest.raises(Unsupported) as caught:
        need(LocalPlatform(tmp_path), kind)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        (
            "runpod",
            "a network volume of RunPod can't be read without a pod that mounts it: rent a box in its data center with "
            "me.v1 mounted, or read it through RunPod's S3 interface",
        ),
        (
            "vastai",
            "the volume me.v1 lies on machine:7 of vast.ai and can only be read from a box there. Next: rent one on "
            "that machine with the volume mounted, and pull from it",
        ),
    ],
)
def test_a_volume_that_is_read_by_a_box_alone(monkeypatch: pytest.MonkeyPatch, adapter: str, words: str) -> None:
    platform = load_platform(adapter)
    found: list[VolumeRecord | None] = [VolumeRecord("me.v1", "tag", "v1", "there", region="machine:7"), None]
    monkeypatch.setattr(type(platform), "get_volume", lambda *_: found.pop(0))
    with pytest.raises(Unsupported) as caught:
        volume_channel(platform, "me.v1", "mnt/durable")
    assert str(caught.value) == words
    with pytest.raises(Unreachable, match=r"the volume me\.v1 is not there any more"):
        volume_channel(platform, "me.v1")


def test_whose_volume_it_is_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = load_platform("runpod")

    def of_another(*_: object) -> None:
        raise WrongAccount("it belongs to me, and the key is of you")

    monkeypatch.setattr(type(platform), "get_volume", of_another)
    with pytest.raises(WrongAccount):
        volume_channel(platform, "me.v1")
