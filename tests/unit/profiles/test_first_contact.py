"""What is told of a platform is told once; of a credential only its name or path is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweepstack.platforms.common import redact
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.words import remember_credential, remembered, told_once

VALUE = "violet-umbrella-77"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "sweepstack"


def test_it_is_told_once_for_each_platform() -> None:
    profile = load_profile("autodl")
    first, *rest = told_once(profile)
    assert first.endswith("sweepctl profile show autodl")
    said = "\n".join(rest)
    assert profile.conveniences[0] in said
    assert "released by AutoDL" in said
    assert "trap AD3: Two instances don't see each other's files" in said
    assert told_once(profile) == ()
    assert told_once(load_profile("runpod")) != ()


def test_where_no_bill_is_sent_there_is_nothing_to_tell() -> None:
    assert told_once(load_profile("local")) == ()


def test_ci_is_told_nothing_and_uses_up_nothing(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    monkeypatch.setenv("CI", "true")
    assert (told_once(load_profile("autodl")), data.exists()) == ((), False)
    monkeypatch.delenv("CI")
    assert told_once(load_profile("autodl")) != ()


def test_of_several_at_once_one_tells_it() -> None:
    profile = load_profile("autodl")
    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda _: told_once(profile), range(8)))
    assert sum(bool(lines) for lines in told) == 1


def test_where_nothing_can_be_remembered_it_is_told_again(data: Path) -> None:
    data.write_text("a file where the folder would be")
    assert told_once(load_profile("autodl")) == told_once(load_profile("autodl")) != ()
    remember_credential("autodl", "AUTODL_KEY")
    assert remembered("autodl") == {}


def test_only_the_name_or_the_path_of_a_credential_is_kept(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", VALUE)
    redact.learn({"RUNPOD_API_KEY": VALUE}, of="runpod", file="~/.runpod/config.toml")
    remember_credential("runpod", redact.place_of("runpod"))
    monkeypatch.delenv("RUNPOD_API_KEY")
    redact.learn({"RUNPOD_API_KEY": VALUE}, of="runpod", file="~/.runpod/config.toml")
    for _ in range(2):
        remember_credential("runpod", redact.place_of("runpod"))
    assert remembered("runpod")["credentials"] == ["RUNPOD_API_KEY", "~/.runpod/config.toml"]
    assert not any(VALUE in path.read_text() for path in data.rglob("*") if path.is_file())
    assert redact.place_of("local") == ""
    (data / "platforms" / "runpod.json").write_text("[torn")
    assert remembered("runpod") == {}
