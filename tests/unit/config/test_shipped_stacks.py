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


def loaded(name: str) -> StackConfig | None:
    """None where an extension that it names was taken out of this checkout, and that is said."""
    try:
        return StackConfig.load(ROOT, name)
    except ConfigError as error:
        if "which is not installed here" not in str(error):
            raise
        return None


@pytest.mark.parametrize("name", NAMES)
def test_it_is_whole(name: str) -> None:
    config = loaded(name)
    if config is None:
        return
    profiles = {candidate: load_profile(candidate) for candidate in config.candidates}
    if all(profile.unavailable for profile in profiles.values()):  # its extension was taken out of this checkout
        with pytest.raises(ConfigError, match="which is not installed here"):
            resolve(config, profiles)
        return
    assert resolve(config, profiles).platform in config.candidates


def test_each_kind_of_platform_has_one() -> None:
    """Its own machine, a market, an API, a rental and a host entered by SSH, a cluster."""
    named = {candidate for config in filter(None, map(loaded, NAMES)) for candidate in config.candidates}
    assert {"local", "vastai", "runpod", "lambda-api", "autodl", "generic-ssh", "slurm"} <= named
