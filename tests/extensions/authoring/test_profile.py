"""`sweepctl profile explain` and `probe`: what a plan leans on, and a box that is asked for its platform's facts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sweepstack.extensions.authoring import box_answers, probe
from sweepstack.extensions.authoring.explain import DECIDES, UNDATED
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from tests.unit.cli.support import World


def test_explain_says_what_each_fact_decided_and_how_old_it_is(world: World) -> None:
    world.full()
    shown = world.run("profile", "explain", "--json").json
    facts = {fact["key"]: fact for fact in shown["facts"]}
    assert shown["platform"] == "local"
    assert "sealed cells go to durable" in facts["tiers"]["decides"]
    assert facts["verbs"]["month"] == load_profile("local").stamps["verbs"]
    assert facts["spot_grace"]["decides"] is None
    words = " ".join(world.run("profile", "explain").out.split())
    assert "chosen, the first candidate that fits" in words
    assert "decided nothing here: " in words


def test_explain_where_no_candidate_fits(world: World) -> None:
    world.full()
    path = world.file.path
    path.write_text(path.read_text().replace("candidates: [local]", "candidates: [runpod]"))
    refused = world.run("profile", "explain")
    assert refused.code == 1
    assert "so the sweep needs a budget" in " ".join(refused.err.split())


def test_explain_knows_what_each_fact_with_a_stamp_decides() -> None:
    stamped = {key for name in platforms() for key in load_profile(name).stamps}
    assert stamped <= set(DECIDES)
    assert set(UNDATED) <= set(DECIDES)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other machine is asked."""
    monkeypatch.setattr(box_answers, "HOSTS", ())


def test_probe_asks_a_box_and_proposes_a_patch_that_applies(world: World, quiet: None, tmp_path: Path) -> None:
    world.full()
    root = next(box.root for box in world.boxes if box.name == "box-0")
    before = (FOLDER / "local.md").read_bytes()
    patch = tmp_path / "stamps.patch"
    shown = world.run("profile", "explain", "--box", "box-0", "--json", "--patch", str(patch))
    document = shown.json
    told = {(one["fact"], one["profile"]): one for one in document["answers"]}
    assert document["platform"] == "local"
    assert told["tiers", "scratch is scratch"]["verdict"] == "agrees"
    assert any("GB are free" in one["box"] for one in document["answers"])
    assert any("GB of RAM" in one["box"] and "setsid is there" in one["box"] for one in document["answers"])
    assert (FOLDER / "local.md").read_bytes() == before, "it edits no profile"
    assert not list(root.rglob(f"{box_answers.MARK}*")), "it leaves nothing behind"
    if document["patch"]:
        tree = tmp_path / "tree" / "profiles"
        tree.mkdir(parents=True)
        (tree / "local.md").write_bytes(before)
        subprocess.run(["git", "apply", str(patch)], cwd=tree.parent, check=True)
        assert (tree / "local.md").read_bytes() != before
    words = world.run("profile", "explain", "--box", "box-0").out
    assert "not asked: what survives a stop" in " ".join(words.split())


def test_probe_contradicts(world: World, quiet: None) -> None:
    world.full()
    root = next(box.root for box in world.boxes if box.name == "box-0")
    (root / "scratch").rename(root / "elsewhere")
    shown = world.run("profile", "explain", "--box", "box-0", "--json")
    assert shown.code == 1
    assert shown.json["contradicted"] == 1
    assert "CONTRADICTED" in world.run("profile", "explain", "--box", "box-0").out


def test_a_box_that_only_a_person_reaches_is_not_asked_here(
    world: World, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.full()
    by_hand = load_profile("local").model_copy(update={"by_hand": load_profile("manual").by_hand})
    monkeypatch.setattr(probe, "load_profile", lambda _: by_hand)
    refused = world.run("profile", "explain", "--box", "box-0")
    assert (refused.code, "that only a person reaches" in " ".join(refused.err.split())) == (1, True)


def test_what_a_stop_left_is_looked_for_only_after_one(world: World, quiet: None) -> None:
    world.full()
    root = next(box.root for box in world.boxes if box.name == "box-0")
    early = world.run("profile", "explain", "--box", "box-0", "--stop", "after")
    assert (early.code, "it was never left there" in " ".join(early.err.split())) == (1, True)
    begun = world.run("profile", "explain", "--box", "box-0", "--stop", "before")
    assert "--stop after" in begun.out
    marks = {place: root / place / f"{box_answers.MARK}-box-0" for place in ("scratch", "data", "mnt/durable")}
    assert all(mark.is_file() for mark in marks.values())
    world.run("profile", "explain", "--box", "box-0")
    assert all(mark.is_file() for mark in marks.values()), "a visit between the two takes none away"
    assert not [path for mark in marks.values() for path in mark.parent.glob("*.try")]
    never = world.run("profile", "explain", "--box", "box-0", "--stop", "after")
    assert (never.code, "was not stopped since" in " ".join(never.err.split())) == (1, True)
    for mark in marks.values():  # as of another start; the stop wiped scratch
        mark.write_text(mark.read_text().partition("\n")[0] + "\nan earlier start")
    marks["scratch"].unlink()
    seen = world.run("profile", "explain", "--box", "box-0", "--stop", "after", "--json").json["answers"]
    told = {one["profile"]: one for one in seen}
    assert told["scratch does not survive a stop"]["box"].startswith("its mark is gone after a stop")
    assert told["data survives a stop"]["verdict"] == "agrees"
    assert not any(mark.exists() for mark in marks.values())
    assert world.run("profile", "explain", "--box", "box-0", "--before-stop", "--after-stop").code == 2


def test_mirrors_are_held_against_the_vendor_by_the_same_route() -> None:
    profile = load_profile("gpushare")
    asked = json.loads(box_answers.question(profile, "w", mark="try")[-1])["speeds"]
    assert asked["pip"] == ["https://pypi.org/simple/numpy/", "https://pypi.tuna.tsinghua.edu.cn/simple/numpy/"]

    def verdict(vendor: float | None, mirror: float | None) -> tuple[str, str]:
        answers = box_answers.compare_with_profile(profile, {"speeds": {"pip": [vendor, mirror]}}, None)
        (one,) = [answer for answer in answers if answer.says.startswith("pip goes to")]
        return one.verdict, one.box

    assert verdict(1e5, 5e6) == ("agrees", "the vendor 0.10 MB/s, the mirror 5.00 MB/s")
    assert verdict(None, 5e6)[0] == "agrees"
    assert verdict(5e6, 1e5)[0] == "told"
    assert verdict(5e6, None)[0] == "contradicted"
    assert verdict(None, None)[0] == "no answer"
