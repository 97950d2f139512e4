"""Profiles: the eight sections, stable gotcha ids, facts that agree with each other, errors with file and line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import ConfigError
from sweepstack.platforms import registry
from sweepstack.profiles import load
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from sweepstack.profiles.model import KEYS, OVERRIDE_NAMES, SECTIONS

GOTCHA_IDS = {
    "autodl": ["AD1", "AD2", "AD3", "AD4", "AD5", "AD6", "AD9", "AD-DANGER"],
    "featurize": ["FZ1", "FZ2", "FZ3", "CN2"],
    "generic-ssh": ["GEN1", "GEN2", "GEN3", "GEN4", "GEN5", "GEN6", "GEN7", "GEN8"],
    "gpushare": ["GS1", "GS2", "GS3", "GS4", "GS5", "CN2"],
    "lambda": ["LAM1", "LAM2", "LAM3", "LAM4", "LAM5", "LAM6", "LAM7", "LAM10"],
    "lanrui": ["LR1", "LR2", "LR3", "CN2"],
    "local": ["LOC1", "LOC2", "LOC3", "LOC4", "LOC5", "LOC6"],
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
    """`scripts/new-platform` marks what a person has to write: the profile, its adapter, harness and tests are done
    when no such mark is left."""
    root, adapter = FOLDER.parent, load_profile(name).adapter
    files = [FOLDER / f"{name}.md", *(root / "sweepstack/platforms" / adapter).glob("*.py")]
    files += [*(root / "tests").rglob(f"harness_{adapter}.py"), *(root / "tests").rglob(f"test_{adapter}_*.py")]
    assert [file.relative_to(root).as_posix() for file in files if "TODO of " in file.read_text("utf-8")] == []


def test_a_profile_whose_adapter_is_not_there_says_so_and_no_list_names_platforms() -> None:
    adapters = FOLDER.parent / "sweepstack" / "platforms"
    for name in platforms():
        profile = load_profile(name)
        there = (adapters / profile.adapter / "platform.py").is_file()
        assert there == (profile.unavailable == ""), name
        assert there == (profile.adapter in registry.adapters()), name
        assert there or f"the adapter {profile.adapter}, which is not available yet" in profile.unavailable


def test_with_its_adapter_there_a_profile_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = [name for name in platforms() if load_profile(name).adapter == "ssh"]
    adapters, folder = tmp_path / "adapters", tmp_path / "profiles"
    adapters.mkdir()
    shutil.copytree(FOLDER, folder)
    monkeypatch.setattr(load, "ADAPTERS", adapters)
    assert "candidates that are: none" in load_profile("autodl", folder).unavailable
    (adapters / "ssh").mkdir()
    (adapters / "ssh" / "platform.py").touch()
    load_profile.cache_clear()
    assert load_profile("autodl", folder).unavailable == ""
    assert f"candidates that are: {', '.join(entered)}" in load_profile("local", folder).unavailable


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
            'line 7  spot_grace: "5s"  expected a number of seconds, such as 5 s, or null',
        ),
        ("keeps: [durable]", "keeps: []", "verbs.destroy: each tier stands in kills or in keeps, once"),
        ("kills: [scratch, data]", "kills: [scratch, data, durable]", "each tier stands in kills or in keeps, once"),
        ("destroy: true}", "destroy: null}", "verbs.destroy and tiers.durable.survives.destroy contradict"),
        ("meter_stop_irreversible: true", "meter_stop_irreversible: false", "contradicts verbs.destroy.irreversible"),
        ("meter_stop_verb: destroy\nm", "meter_stop_verb: stop\nm", "contradicts verbs.stop.irreversible"),
        ("unknown: [china_mirror_needed", "unknown: [free_egress", "free_egress is listed as unknown and has a value"),
        ("unknown: [china_mirror_needed", "unknown: [weather", "unknown lists weather"),
        ("  kind: 2026-11\n", "", "stamps lacks kind"),
        ("  kind: 2026-11\n", "  kind: lately\n", "stamps.kind"),
        ('  HF_HOME: ""\n', "", "overrides lacks HF_HOME"),
        ("platform: local\nk", "platform: loco\nk", "is loco, the file says local"),
        ("## 3. Network", "## 3. Networks", "expected the sections 1. Launch, 2. Storage, 3. Network"),
        ("## 3. Network", "## 4. Network", "expected the sections"),
        ("**LOC2**", "**LOC1**", "two gotchas have the same id: LOC1"),
        ("  scratch: {path: scratch", "  scratch: {path: /scratch", 'tiers.scratch.path: "/scratch"'),
        ("  scratch: {path: scratch", "  scratch: {path: ../../etc", "tiers.scratch.path"),
        (
            "  scratch: {path: scratch",
            "  scratch: {path: data",
            "line 18  tiers.data.path: data lies in that of scratch",
        ),
        (
            "  scratch: {path: scratch",
            "  scratch: {path: data/x",
            "line 17  tiers.scratch.path: data/x lies in that of",
        ),
        ("{stop: true, destroy: true}", "{stop: false, destroy: true}", "what survives destroy survives a stop, too"),
        ("  kind: 2026-11\n", "  kind: 2026-13\n", 'stamps.kind: "2026-13"  expected YYYY-MM or YYYY-MM-DD'),
        ("  kind: 2026-11\n", "  kind: 2099-01\n", "not ahead of today"),
        ('HF_HOME: ""', 'HF_HOME: ""\n  DETACH: tmux', "overrides.DETACH repeats no fact: it may be one of DATA_DIR"),
        ("free_egress: true", 'free_egress: "no"', 'free_egress: "no"'),
        ("  DATA_DIR:", "  DATA_DIRR:", 'overrides lacks DATA_DIR; is it "DATA_DIRR"?'),
        ("spot_grace: null", "spot_grace: -5 s", 'line 7  spot_grace: "-5 s"  expected a number of seconds'),
        ("- **LOC2** `Mod", "- `Mod", "LOC1: expected symptom"),
        ("---\nplatform", "platform", "line 1: expected YAML between two lines of ---"),
    ],
)
def test_a_mistake_has_file_and_line(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    assert text.count(old) == 1
    message = refusal(tmp_path, text.replace(old, new))
    assert said in message
    assert "profiles/local.md" in message


def test_a_profile_that_is_not_utf_8_names_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "local.md").write_bytes(text.encode().replace(b"kind: workstation", b"kind: \xff"))
    with pytest.raises(ConfigError, match=r"profiles/local.md, line 3: can't be read: byte 0xff is not UTF-8"):
        load_profile("local", tmp_path)


COMMANDED = "issued_by: ssh\n    command: shutdown"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("autodl", "    command: shutdown\n", "", "verbs.stop: a command is for a verb issued by ssh, which needs one"),
        ("autodl", COMMANDED, "issued_by: api", "stop_from_inside is proved where verbs.stop is issued by ssh, and"),
        ("autodl", "stop_from_inside: proved", "stop_from_inside: unproved", "stop_refused says why no box is stopped"),
        (
            "autodl",
            "irreversible: false\n    k",
            "irreversible: true\n    k",
            "can't be undone, so no command on a box",
        ),
        (
            "autodl",
            "PY: /root/miniconda3/bin/python\n",
            "PY: python\n",
            "overrides.PY is 'python', and the facts say /root",
        ),
        ("autodl", "  HF_ENDPOINT: https://hf-mirror.com\n", "  HF_ENDPOINT: https://x\n", "overrides.HF_ENDPOINT is"),
        ("autodl", "  PROXY_HOOK: source", "  PROXY_HOOK: . ", "overrides.PROXY_HOOK is '. "),
        ("autodl", "  DURABLE_DIR: /root/autodl-fs", "  DURABLE_DIR: /root/autodl-tmp", "overrides.DURABLE_DIR is"),
        ("autodl", "  DATA_DIR: /root/autodl-tmp", "  DATA_DIR: /root", "overrides.DATA_DIR is '/root'"),
        ("autodl", "files: true", "files: false", "ssh.flavours: direct passes no files, and why_not does not say"),
        ("autodl", "moves: create", "moves: often", "line 54  ssh.moves"),
        ("autodl", "place: /root/autodl-fs", "place: autodl-fs", "tiers.durable.place"),
        ("autodl", 'path: "", place: /,', 'path: "",', "tiers.system: without a path it needs a place"),
        ("autodl", "caches: {HF_HOME", "caches: {HF_ENDPOINT: x, HF_HOME", "network: HF_ENDPOINT is set twice"),
        ("autodl", "after: 15 d, kills: [scratch", "after: 15 d, kills: [scrap", "kills scrap, which is no tier"),
        ("autodl", "  ssh: unverified\n", "", "stamps lacks ssh"),
        ("autodl", "price_per_hour: null", "price_per_hour: 1", "has a price_per_hour, so it is quoted"),
        ("autodl", "**AD-DANGER**", "**AD-9**", "AD-9: expected an id such as ID1"),
        ("lambda", "stop_from_inside: refuted\n", "", "the profile has to say stop_from_inside"),
        (
            "lambda",
            "stop_from_inside: refuted",
            "stop_from_inside: proved",
            "is proved where verbs.stop is issued by ssh",
        ),
        ("lambda", "      manual: *manual\n", "", "with_volume.verbs.destroy: manual is for a verb issued by a person"),
        ("lambda", '/lambda/nfs/{volume}"\n      mounted', '/lambda/nfs/{name}"\n      mounted', "tiers.durable.place"),
        ("gpushare", "with_volume: [scratch, data], in", "with_volume: [hy-tmp], in", "kills hy-tmp, which is no tier"),
    ],
)
def test_a_mistake_in_how_a_box_is_entered_and_ended(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert text.count(old) == 1
    message = refusal(tmp_path, text.replace(old, new), name)
    assert said in message
    assert f"profiles/{name}.md" in message


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
