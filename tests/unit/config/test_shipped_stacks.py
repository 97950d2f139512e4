"""The stack files that the project ships, one for each kind of platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.resolve import resolve

ROOT = Path(__file__).resolve().parents[3]
NAMES = sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in (ROOT / "stacks").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_whole(name: str) -> None:
    config = StackConfig.load(ROOT, name)
    profiles = {candidate: load_profile(candidate) for candidate in config.candidates}
    if all(profile.unavailable for profile in profiles.values()):  # its extension was taken out of this checkout
        with pytest.raises(ConfigError, match="which is not installed here"):
            resolve(config, profiles)
        return
    assert resolve(config, profiles).platform in config.candidates


def test_each_kind_of_platform_has_one() -> None:
    """Its own machine, a market, an API, a rental and a host entered by SSH, a cluster."""
    named = {candidate for name in NAMES for candidate in StackConfig.load(ROOT, name).candidates}
    assert {"local", "vastai", "runpod", "lambda-api", "autodl", "generic-ssh", "slurm"} <= named
