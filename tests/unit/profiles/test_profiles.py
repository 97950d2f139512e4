"""Profiles: the eight sections, stable gotcha ids, facts that agree with each other, errors with file and line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core import extensions as found_adapters
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.platforms import registry
from sweepstack.profiles.clusters import node_problems
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from sweepstack.profiles.model import KEYS, OVERRIDE_NAMES, SECTIONS

GOTCHA_IDS = {
    "autodl": ["AD1", "AD2", "AD3", "AD4", "AD5", "AD6", "AD9", "AD-DANGER"],
    "featurize": ["FZ1", "FZ2", "FZ3", "CN2"],
    "generic-ssh": ["GEN1", "GEN2", "GEN3", "GEN4", "GEN5", "GEN6", "GEN7", "GEN8"],
    "gpushare": ["GS1", "GS2", "GS3", "GS4", "GS5", "CN2"],
    "lambda": ["LAM1", "LAM2", "LAM3", "LAM4", "LAM5", "LAM6", "LAM7", "LAM10"],
    "lanrui": ["LR1", "LR2", "LR3", "CN2"],
    "local": ["LOC1", "LOC2", "LOC3", "LOC4", "LOC5", "LOC6", "LOC7"],
    "matpool": ["MP1", "MP2", "MP3", "CN1", "CN2"],
    "paperspace": ["PS1", "PS2", "PS4", "PS5", "PS6", "PS9", "PS11"],
    "runpod": ["RP1", "RP2", "RP3", "RP4", "RP6", "RP7", "RP8", "RP10"],
    "vastai": ["VAST1", "VAST2", "VAST3", "VAST4", "VAST5", "VAST6", "VAST7", "VAST8"],
}
"""Ids are cited in issues and notes: append, never renumber."""


@pytest.mark.parametrize("name", platforms())
def test_a_profile_has_the_eight_sections_in_order_and_four_to_eight_gotchas(name: str) -> None:
    profile = load_profile(name)
    assert tuple(section.title for section in profile.sections) == SECTIONS
    ids = [gotcha.id for gotcha in profile.gotchas]
    assert 4 <= len(ids) <= 8
    cited = GOTCHA_IDS.get(name, [])
    assert ids[: len(cited)] == cited
    assert all(gotcha.text.count("→") == 2 for gotcha in profile.gotchas)


@pytest.mark.parametrize("name", platforms())
def test_every_section_and_every_key_is_dated(name: str) -> None:
    profile = load_profile(name)
    assert set(KEYS) <= set(profile.stamps)
    assert set(OVERRIDE_NAMES) <= set(profile.overrides)
    for section in profile.sections:
        assert re.search(r"\((\d{4}-\d{2}|unverified)\)", section.text), section.title


@pytest.mark.parametrize("name", platforms())
def test_the_prose_s_survival_matrix_is_the_front_matter_s(name: str) -> None:
    profile = load_profile(name)
    prose = profile.sections[1].text
    word = {True: "yes", False: "no", None: "unknown"}
    for tier, facts in profile.tiers.items():
        row = next(line for line in prose.splitlines() if line.startswith(f"| {tier} |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        said = [
            word[facts.survives.get(verb)] if verb in profile.verbs else "-" for verb in ("stop", "destroy")
        ]  # "-": there is no such verb to survive
        assert cells[2:4] == said


@pytest.mark.parametrize("name", platforms())
def test_nothing_that_the_scaffold_asks_for_is_left_open(name: str) -> None:
    """`sweepctl profile new` marks what a person has to write: the profile, its adapter, harness and tests are done
    when no such mark is left."""
    root, adapter = FOLDER.parent, load_profile(name).adapter
    folder = found_adapters.folder_of(adapter)
    files = [FOLDER / f"{name}.md", *(root / "sweepstack").glob(f"*/{folder}/*.py")]
    files += [*(root / "tests").rglob(f"harness_{adapter}.py"), *(root / "tests").rglob(f"test_{adapter}_*.py")]
    assert [file.relative_to(root).as_posix() for file in files if "TODO of " in file.read_text("utf-8")] == []


def test_a_profile_whose_adapter_is_not_there_says_so_and_no_list_names_platforms() -> None:
    package = FOLDER.parent / "sweepstack"
    for name in platforms():
        profile = load_profile(name)
        folder = found_adapters.folder_of(profile.adapter)
        there = any((package / place / folder / "platform.py").is_file() for place in ("platforms", "extensions"))
        assert there == (profile.unavailable == ""), name
        assert there == (profile.adapter in found_adapters.adapters()), name
        assert there or f"the extension `{folder}`, which is not installed here" in profile.unavailable


def test_with_its_adapter_there_a_profile_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = [name for name in platforms() if load_profile(name).adapter == "ssh"]
    adapters, folder = tmp_path / "adapters", tmp_path / "profiles"
    adapters.mkdir()
    shutil.copytree(FOLDER, folder)
    monkeypatch.setattr(found_adapters, "ROOTS", {"some.package": adapters})
    monkeypatch.setattr(registry, "_LOADED", {})
    assert "candidates whose adapter is: none" in load_profile("autodl", folder).unavailable
    assert "the extension `by_hand`, which is not installed here" in load_profile("colab", folder).unavailable
    with pytest.raises(ConfigError, match="'manual:~/back' needs the extension `by_hand`, which"):
        registry.load_platform("manual:~/back")
    several, boxes = {"nodes": 2, "restores": False}, {"a": SimpleNamespace(peers=())}
    config: Any = SimpleNamespace(job=SimpleNamespace(**several), boxes=boxes)
    assert "belong to the extension `nodes`, which is not" in node_problems(config, load_profile("local", folder))[0]
    (adapters / "ssh").mkdir()
    (adapters / "ssh" / "platform.py").touch()
    load_profile.cache_clear()
    assert load_profile("autodl", folder).unavailable == ""
    assert f"candidates whose adapter is: {', '.join(entered)}" in load_profile("local", folder).unavailable


@pytest.fixture
def text() -> str:
    return (FOLDER / "local.md").read_text()


def refusal(folder: Path, text: str, name: str = "local") -> str:
    (folder / f"{name}.md").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_profile(name, folder)
    return str(caught.value)


def test_a_mistake_shows_no_secret(tmp_path: Path, text: str) -> None:
    key = "ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2"
    changed = text.replace('HF_HOME: ""', f"HF_HOME: {key}").replace("DATA_DIR: data", f"DATA_DIR: {key}")
    changed = changed.replace("spot_grace: null", f"spot_grace: {key}")
    assert changed.count(key) == 3
    assert "spot_grace" in refusal(tmp_path, changed)
    again = refusal(tmp_path, changed.replace(f"spot_grace: {key}", "spot_grace: null"))
    assert "overrides.DATA_DIR" in again
    assert "ghp_" not in refusal(tmp_path, changed) + again


def test_a_profile_that_is_not_utf_8_names_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "local.md").write_bytes(text.encode().replace(b"kind: workstation", b"kind: \xff"))
    with pytest.raises(ConfigError, match=r"local.md does not hold:\n\n  line 3  can't be read: byte 0xff"):
        load_profile("local", tmp_path)


def test_a_profile_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile("locl")
    known = ", ".join(platforms())
    assert str(caught.value) == f"there is no profile of 'locl'; did you mean \"local\"?; there are: {known}"


def test_a_profile_that_is_a_folder_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "local.md").mkdir()
    with pytest.raises(ConfigError, match=r"profiles/local\.md can't be read: it is no file"):
        load_profile("local", tmp_path)
    with pytest.raises(ConfigError, match=r"there is no profile of 'loca'; there are: $"):
        load_profile("loca", tmp_path)


def test_quantities_have_units(tmp_path: Path, text: str) -> None:
    changed = text.replace("spot_grace: null", "spot_grace: 5 s").replace(
        "danger_clocks: []", "danger_clocks: [{what: gone, after: 15 d}]"
    )
    changed = changed.replace("  verbs: 2026-11\n", "  verbs: 2026-11\n  danger_clocks: 2026-11\n")
    (tmp_path / "local.md").write_text(changed)
    profile = load_profile("local", tmp_path)
    assert profile.spot_grace == 5.0
    assert profile.danger_clocks[0].after == 15.0
