"""Profiles: the eight sections, stable gotcha ids, facts that agree with each other, errors with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profiles.load import FOLDER, load_profile, platforms
from profiles.model import KEYS, OVERRIDE_NAMES, SECTIONS
from sweep.errors import ConfigError

GOTCHA_IDS = {
    "local": ["LOC1", "LOC2", "LOC3", "LOC4", "LOC5", "LOC6"],
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
        assert cells[2:4] == [word[facts.survives.get("stop")], word[facts.survives.get("destroy")]]


def test_an_adapter_is_there_for_every_profile_and_no_list_names_platforms() -> None:
    adapters = FOLDER.parent / "provider" / "platforms"
    assert [name for name in platforms() if not (adapters / f"{load_profile(name).adapter}.py").is_file()] == []


@pytest.fixture
def text() -> str:
    return (FOLDER / "local.md").read_text()


def refusal(folder: Path, text: str, name: str = "local") -> str:
    (folder / f"{name}.md").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_profile(name, folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: workstation", "kind: laptop", "line 3  kind"),
        ("kind: workstation", "knid: workstation", 'line 3  knid  unknown key; did you mean "kind"?'),
        (
            "spot_grace: null",
            "spot_grace: 5s",
            "line 8  spot_grace  expected a number of seconds, such as 5 s, or null",
        ),
        ("keeps: [durable]", "keeps: []", "verbs.destroy: each tier stands in kills or in keeps, once"),
        ("kills: [scratch, data]", "kills: [scratch, data, durable]", "each tier stands in kills or in keeps, once"),
        ("destroy: true}", "destroy: null}", "verbs.destroy and tiers.durable.survives.destroy contradict"),
        ("meter_stop_irreversible: true", "meter_stop_irreversible: false", "contradicts verbs.destroy.irreversible"),
        ("meter_stop_verb: destroy\nm", "meter_stop_verb: stop\nm", "contradicts verbs.stop.irreversible"),
        ("unknown: [inode_cap", "unknown: [shared_fs", "shared_fs is listed as unknown and has a value"),
        ("unknown: [inode_cap", "unknown: [weather", "unknown lists weather"),
        ("  kind: 2026-11\n", "", "stamps lacks kind"),
        ("  kind: 2026-11\n", "  kind: lately\n", "stamps.kind"),
        ('  HF_HOME: ""\n', "", "overrides lacks HF_HOME"),
        ("platform: local\nk", "platform: loco\nk", "is loco, the file says local"),
        ("## 3. Network", "## 3. Networks", "expected the sections 1. Launch, 2. Storage, 3. Network"),
        ("## 3. Network", "## 4. Network", "expected the sections"),
        ("**LOC2**", "**LOC1**", "two gotchas have the same id"),
        ("- **LOC2** `Mod", "- `Mod", "LOC1: expected symptom"),
        ("---\nplatform", "platform", "line 1: expected YAML between two lines of ---"),
    ],
)
def test_a_mistake_has_file_and_line(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    assert text.count(old) == 1
    message = refusal(tmp_path, text.replace(old, new))
    assert said in message
    assert "profiles/local.md" in message


def test_a_profile_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"no profile of 'locl'; did you mean \"local\"\?; there are: local"):
        load_profile("locl")


def test_quantities_have_units(tmp_path: Path, text: str) -> None:
    changed = text.replace("spot_grace: null", "spot_grace: 5 s").replace(
        "danger_clocks: []", "danger_clocks: [{what: gone, after: 15 d}]"
    )
    (tmp_path / "local.md").write_text(changed)
    profile = load_profile("local", tmp_path)
    assert profile.spot_grace == 5.0
    assert profile.danger_clocks[0].after == 15.0
