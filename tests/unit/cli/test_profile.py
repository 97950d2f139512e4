"""`sweepctl profile`: the platforms in a table, one for people, mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.cli.commands.profile import show as profile_show
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from tests.unit.cli.support import World


def test_list_has_every_platform(world: World) -> None:
    shown = world.run("profile", "show", "--json", stack=None)
    assert shown.code == 0
    rows = {row["platform"]: row for row in shown.json["profiles"]}
    assert sorted(rows) == platforms()
    assert (rows["runpod"]["irreversible"], rows["runpod"]["issued_by"], rows["runpod"]["ssh"]) == (True, "api", False)
    assert (rows["autodl"]["native"], rows["autodl"]["issued_by"], rows["autodl"]["ssh"]) == ("关机", "ssh", True)
    words = world.run("profile", "show", stack=None).out
    assert all(name in words for name in platforms())


def test_list_shows_the_others_where_one_does_not_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> object:
        if name == "runpod":
            raise ConfigError("profiles/runpod.md does not hold")
        return load_profile(name)

    monkeypatch.setattr(profile_show, "load_profile", broken)
    shown = world.run("profile", "show", stack=None)
    assert shown.code == 1
    assert "sweepctl profile check runpod" in shown.out
    assert "vastai" in shown.out
    assert [one["platform"] for one in world.run("profile", "show", "--json", stack=None).json["broken"]] == ["runpod"]


def test_show_is_for_people_and_whole_for_programs(world: World) -> None:
    profile = load_profile("gpushare")
    words = " ".join(world.run("profile", "show", "gpushare", stack=None).out.split())
    for said in ("释放 (can't be undone)", "with mounts", "after 10 d stopped", "GS1", "无卡模式", "/hy-netdisk"):
        assert said in words, said
    document = world.run("profile", "show", "gpushare", "--json", stack=None).json
    assert document["verbs"]["destroy"]["kills"] == list(profile.verbs["destroy"].kills)
    assert {fact["key"] for fact in document["facts"]} == set(profile.stamps)
    lost = world.run("profile", "show", "gpushar", stack=None)
    assert (lost.code, 'did you mean "gpushare"?' in lost.err) == (2, True)


def test_check_names_file_line_key_and_fix(world: World, tmp_path: Path) -> None:
    assert world.run("profile", "check", stack=None).code == 0
    path = tmp_path / "local.md"
    path.write_text((FOLDER / "local.md").read_text("utf-8").replace("kind: workstation", "knid: workstation"))
    (missing, wrong) = world.run("profile", "check", str(path), "--json", stack=None).json["mistakes"]
    assert (wrong["file"], wrong["line"], wrong["key"]) == (str(path), 3, "knid")
    assert (wrong["problem"], wrong["fix"]) == ("unknown key", 'did you mean "kind"?')
    assert missing["key"] == "kind"
    shown = world.run("profile", "check", str(path), stack=None)
    assert shown.code == 1
    assert f"{path}:3  knid" in shown.out
    assert world.run("profile", "check", "nosuch", stack=None).code == 2
