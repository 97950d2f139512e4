"""What a box is asked, what its answers say of a profile, and the patch that proposes stamps."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.authoring import box_answers as facts
from sweepstack.extensions.authoring.box_answers import FactAnswer, Mark
from sweepstack.extensions.authoring.stamp_patch import NoStamps, propose, stamped
from sweepstack.onbox.visit import facts as probe_box
from sweepstack.profiles import dates
from sweepstack.profiles.load import FOLDER, load_profile
from sweepstack.profiles.model import Profile
from tests.live.books import loop_books
from tests.live.transcript import RED, Transcript

PLATFORMS = sorted(loop_books())
HEALTHY: dict[str, Any] = {
    "tiers": {
        name: {"there": True, "marked": True, "mount": "/sweepstack", "kind": "ext4"}
        for name in ("scratch", "data", "durable")
    },
    "own_key": True,
    "cuda": "12.8",
    "caches": {"HF_HOME": True},
    "hosts": {"pypi.org": True},
}


@pytest.fixture(params=PLATFORMS)
def profile(request: pytest.FixtureRequest) -> Profile:
    return load_profile(request.param)


def one(answers: list[FactAnswer], fact: str, words: str = "") -> FactAnswer:
    (found,) = [answer for answer in answers if answer.fact == fact and words in answer.says]
    return found


def judged(profile: Profile, **changes: Any) -> list[FactAnswer]:
    return facts.compare_with_profile(profile, {**HEALTHY, **changes}, HEALTHY)


def ask(profile: Profile, box: Path, *, mark: Mark, word: str = "sweepstack-livetest-") -> dict[str, Any]:
    command = facts.question(profile, word, mark=mark, hosts=())
    command = [sys.executable, *command[1:]]
    return facts.parse_answers(subprocess.run(command, cwd=box, check=True, capture_output=True, text=True).stdout)


def test_the_probe_marks_tiers_and_finds_the_marks(profile: Profile, tmp_path: Path) -> None:
    for tier in profile.tiers.values():
        (tmp_path / tier.path).mkdir(parents=True)
    assert not any(found["marked"] for found in ask(profile, tmp_path, mark="look")["tiers"].values())
    seen = ask(profile, tmp_path, mark="write")
    assert all(found["marked"] and found["kind"] for found in seen["tiers"].values())
    assert all(seen["caches"].values())
    assert not any(found["marked"] for found in ask(profile, tmp_path, mark="look", word="another")["tiers"].values())
    shutil.rmtree(tmp_path / profile.tiers["scratch"].path)
    again = ask(profile, tmp_path, mark="look")["tiers"]
    assert {name for name, found in again.items() if found["marked"]} == {"data", "durable"}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_probe_says_whether_a_variable_is_there_and_never_its_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = tmp_path / "environ"
    environ.write_bytes(b"A=b\0OWN_KEY=the-value\0EMPTY=\0")
    opened = open
    monkeypatch.setattr("builtins.open", lambda path, *how: opened(environ if "environ" in str(path) else path, *how))
    assert [probe_box.own_key(name) for name in ("OWN_KEY", "EMPTY", "OWN")] == [True, False, False]


def test_a_box_as_the_profile_says(profile: Profile) -> None:
    answers = judged(profile)
    assert not [answer for answer in answers if answer.verdict == "contradicted"]
    assert one(answers, "host_driver_cuda_max").verdict == "told"
    assert "own_key" not in stamped(answers), "a key that is there has stopped nothing yet"
    assert "tiers" not in stamped(answers), "prices and boxes with a volume were not asked"
    assert "own_key" in stamped([*answers, facts.judge_own_key(profile, True, "")])


@pytest.mark.parametrize(
    ("fact", "changes"),
    [
        ("own_key", {"own_key": False}),
        ("network", {"caches": {"HF_HOME": False}}),
    ],
)
def test_what_a_box_contradicts_gets_no_stamp(profile: Profile, fact: str, changes: dict[str, Any]) -> None:
    answers = [*judged(profile, **changes), facts.judge_own_key(profile, True, "")]
    wrong = [answer for answer in answers if answer.verdict == "contradicted"]
    assert [answer.fact for answer in wrong] == [fact]
    assert fact not in stamped(answers)
    line = wrong[0].line()
    assert "CONTRADICTED" in line
    assert wrong[0].says in line
    assert wrong[0].box in line


def test_no_mirror_and_no_answer(profile: Profile) -> None:
    some = {"pypi.org": True, "huggingface.co": False}
    answer = one(judged(profile, hosts=some), "china_mirror_needed")
    assert answer.verdict == ("told" if profile.china_mirror_needed is None else "contradicted")
    answers = facts.compare_with_profile(profile, {}, None)
    assert {answer.verdict for answer in answers} == {"no answer"}
    assert stamped(answers) == []


def test_a_box_without_internet_contradicts_nothing(profile: Profile) -> None:
    """Whether a mirror would help is seen only where one answers and the vendor does not."""
    none = {"pypi.org": False, "huggingface.co": False}
    shut = one(judged(profile, hosts=none), "china_mirror_needed")
    assert (shut.verdict, shut.box.endswith("it may have no internet")) == ("no answer", True)
    mirrored = load_profile("gpushare")
    both = judged(mirrored, hosts=none, speeds={"pip": [None, None]})
    assert {one.verdict for one in both if one.fact == "china_mirror_needed" or "pip goes" in one.says} == {"no answer"}
    assert one(judged(mirrored, hosts=none, speeds={"pip": [None, 1e6]}), "china_mirror_needed").verdict == "agrees"


def test_a_tier_that_a_stop_wiped(profile: Profile) -> None:
    after = {"tiers": {**HEALTHY["tiers"], "data": {"there": True, "marked": False}}}
    answers = facts.compare_with_profile(profile, HEALTHY, after)
    assert one(answers, "tiers", "data survives a stop").verdict == "contradicted"
    assert one(answers, "tiers", "scratch survives a stop").verdict == "agrees"


def test_an_answer_that_is_none() -> None:
    assert facts.parse_answers('warning: x\n{"a": 1}\n') == {"a": 1}
    with pytest.raises(ValueError, match="no answer"):
        facts.parse_answers("bash: python3: command not found\n")


# the patch


@pytest.fixture
def folder(tmp_path: Path, profile: Profile) -> Path:
    """A copy of the profiles in a tree of its own."""
    shutil.copytree(FOLDER, tmp_path / "profiles")
    return tmp_path / "profiles"


def apply(patch: str, folder: Path) -> None:
    (folder.parent / "stamps.patch").write_text(patch)
    subprocess.run(["git", "apply", "stamps.patch"], cwd=folder.parent, check=True)


def test_the_patch_applies_and_changes_only_stamps(profile: Profile, folder: Path) -> None:
    day = dates.today()
    path, month = folder / f"{profile.platform}.md", f"{day:%Y-%m}"
    before = path.read_text()
    answers = [*judged(profile), facts.judge_own_key(profile, True, "")]
    patch = propose(path, answers, day, proved_live=True)
    assert path.read_text() == before, "it never edits a profile"
    apply(patch, folder)
    load_profile.cache_clear()
    fresh = load_profile(profile.platform, folder)
    assert fresh.own_key is not None
    assert (fresh.proved_live, fresh.own_key.proved) == (month, month)
    new = set(stamped(answers)) - {"own_key"}
    assert {fact: fresh.stamps[fact] for fact in new} == dict.fromkeys(new, month)
    assert all("a live run of" in fresh.sources[fact] for fact in new)
    unasked = set(profile.stamps) - new
    assert {fact: fresh.stamps[fact] for fact in unasked} == {fact: profile.stamps[fact] for fact in unasked}
    ours = {"stamps", "sources", "proved_live", "own_key"}
    assert fresh.model_dump(exclude=ours) == profile.model_dump(exclude=ours)
    assert propose(path, answers, day, proved_live=True) == "", "a second time there is nothing to change"


def test_without_the_whole_loop_there_is_no_proved_live(profile: Profile, folder: Path) -> None:
    patch = propose(folder / f"{profile.platform}.md", judged(profile), dates.today(), proved_live=False)
    assert patch
    assert "proved_live" not in patch.replace(" proved_live", "")
    assert "proved: 2" not in patch


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("proved_live: never\n", ""), "0 lines like"),
        (lambda text: text.replace("stamps:\n", "stamp:\n"), "no lines below stamps"),
        (lambda text: text[4:], "no head"),
        (lambda text: text.replace("kind: ssh-rental", "kind: no-such-kind", 1), "would not load"),
    ],
)
def test_a_profile_that_is_not_as_expected(
    profile: Profile, folder: Path, change: Callable[[str], str], words: str
) -> None:
    path = folder / f"{profile.platform}.md"
    path.write_text(change(path.read_text()))
    with pytest.raises(NoStamps, match=words):
        propose(path, judged(profile), dates.today(), proved_live=True)


def test_a_day_ahead_is_refused(profile: Profile, folder: Path) -> None:
    with pytest.raises(NoStamps, match="would not load"):
        propose(folder / f"{profile.platform}.md", [], date(2999, 1, 1), proved_live=True)


# the transcript


def test_no_secret_is_said_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOTHER_TOKEN", "token-of-another-service")
    screen = io.StringIO()
    transcript = Transcript(tmp_path / "out" / "transcript.txt", {"RENTAL": "key-of-the-account"}, screen)
    secrets = ("key-of-the-account", "token-of-another-service", "own-key-of-the-box")
    for say in (transcript.say, transcript.note, transcript.beat):
        say(f"a {secrets[0]} and {secrets[1]}, Authorization: Bearer {secrets[2]}")
    transcript.say("red", red=True)
    written = transcript.path.read_text()
    for secret in secrets:
        assert secret not in screen.getvalue() + written
    assert written.count("[RENTAL]") == 2
    assert screen.getvalue().count("[RENTAL]") == 2
    assert RED not in screen.getvalue(), "no colors where there is no terminal"
    transcript.close()


class Closed(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_keeps_nothing_from_its_end(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "transcript.txt", {}, Closed())
    transcript.say("left")
    transcript.beat("goes on")
    assert transcript.path.read_text() == "left\n"


def test_red_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    Transcript(tmp_path / "transcript.txt", {}, screen).say("wrong", red=True)
    assert screen.getvalue().startswith(RED)
