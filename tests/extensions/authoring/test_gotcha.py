"""`sweepctl profile new --gotcha`: what is below the bar is refused, what is known is named, and nothing is edited."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sweepstack.core.paths import PACKAGE
from sweepstack.extensions.authoring.gotcha_list import known_gotchas
from sweepstack.profiles.load import load_profile
from tests.unit.cli.support import STACK, Result, World

ROOT = PACKAGE.parent
GOOD = {
    "symptom": "nvidia-smi lists a card and torch sees none of it",
    "cause": "the template sets CUDA_VISIBLE_DEVICES to an empty word, which torch takes for no card",
    "fix": "unset CUDA_VISIBLE_DEVICES in job.setup",
    "reproduction": "$ CUDA_VISIBLE_DEVICES= python -c 'import torch; print(torch.cuda.is_available())'",
    "platform": "paperspace",
}


def propose(world: World, *more: str, types: str | None = None, **changed: str | None) -> Result:
    given = {name: text for name, text in (GOOD | changed).items() if text is not None}
    platform = given.pop("platform")
    options = [word for name, text in given.items() for word in ("--with", f"{name}={text}")]
    return world.run("profile", "new", platform, "--gotcha", *options, *more, stack=None, types=types, fresh=False)


def applied(patch: Path, folder: Path) -> Path:
    """A copy of what a patch may change, with the patch."""
    for name in ("profiles", "docs"):
        shutil.copytree(ROOT / name, folder / name)
    done = subprocess.run(["git", "apply", str(patch)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("platform", "new", "in_profile"),
    [("paperspace", "PS13", True), ("runpod", "RP16", False), ("universal", "U45", False)],
)
def test_a_good_one_becomes_a_patch_and_nothing_else(
    world: World, tmp_path: Path, platform: str, new: str, in_profile: bool
) -> None:
    """The next free id, wherever it was given before. A full profile's goes to the page of failures."""
    before = {path: path.read_bytes() for name in ("profiles", "docs") for path in (ROOT / name).glob("*.md")}
    done = propose(world, "--json", platform=platform)
    assert (done.code, done.json["id"], done.json["masked"]) == (0, new, False), done
    assert {path: path.read_bytes() for path in before} == before
    there = applied(world.root / "gotcha.patch", tmp_path / "there")
    page = " ".join((there / "docs" / "failure-modes.md").read_text().split())
    assert f"| {new} | {GOOD['symptom']} | told |" in page
    if in_profile:
        assert load_profile(platform, there / "profiles").gotchas[-1].id == new
    words = (there / "profiles" / f"{platform}.md").read_text() if in_profile else page
    assert " ".join(f"{GOOD['cause']} → {GOOD['fix']}".split()) in " ".join(words.split())


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ("cause", "unknown, it went away after a retry of the cell", "is no root cause"),
        ("cause", "nvidia-smi lists a card and torch sees none of them", "it says the symptom again"),
        ("fix", "just restart the box", "to try again is no fix"),
        ("reproduction", "it happens every time here", "write the command that shows it"),
        ("fix", "unset it in /home/ada/train/setup.sh", "/home/ada is a home folder"),
        ("fix", "unset CUDA_VISIBLE_DEVICES on box-0", "box-0 is a box's name"),
        ("symptom", f"the cells of {STACK} see no card at all", f"{STACK} is a stack of this project"),
        ("symptom", "no card at all on 10.1.2.3 at night", "10.1.2.3 is an address"),
        ("fix", "set A → B in the setup", "it parts symptom, cause and fix"),
        ("symptom", "no card", "say more than 2 words"),
    ],
)
def test_what_is_below_the_bar_is_refused(world: World, field: str, text: str, why: str) -> None:
    done = propose(world, **{field: text})
    assert done.code == 1
    assert f"{field}: " in done.err
    assert why in " ".join(done.err.split())
    assert not (world.root / "gotcha.patch").exists()


def test_what_is_known_is_named_by_its_id(world: World) -> None:
    (ad5,) = (one for one in known_gotchas() if one.id == "AD5")
    symptom, cause, fix = (part.strip() for part in ad5.text.split("(")[0].split("→"))
    again = {"symptom": f"So {symptom}", "cause": cause, "fix": fix, "platform": "autodl"}
    done = propose(world, **again)
    assert done.code == 1
    assert "AD5 (autodl) says much the same" in " ".join(done.err.split())
    other = propose(world, "--with", "unlike=AD5", **again)
    assert "AD5" not in other.err


def test_a_known_one_of_few_words_is_named(world: World) -> None:
    done = propose(world, symptom="The TensorBoard tile stays empty", platform="autodl")
    assert done.code == 1
    assert "AD7 (autodl) says much the same" in " ".join(done.err.split())


def test_a_known_one_in_other_words_is_named_by_its_things(world: World) -> None:
    again = {
        "symptom": "Inter-node bandwidth is a tenth of what it should be, allreduce dominates each step",
        "cause": "NCCL binds to docker0, which carries nothing between the nodes",
        "fix": "set NCCL_SOCKET_IFNAME to the fast interface on all ranks",
        "reproduction": "$ NCCL_DEBUG=INFO torchrun train.py",
    }
    done = propose(world, platform="universal", **again)
    assert done.code == 1
    assert "MN2 (universal) says much the same" in " ".join(done.err.split())


def test_no_secret_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "violet-umbrella-77")
    token = "hf_" + "aB3" * 12
    key, commit = "b94d27b9934d3e08a52e52d7da7dabfac484efe3", "5f3a0123456789abcdef0123456789abcdef0123"
    fix = f"unset CUDA_VISIBLE_DEVICES, key violet-umbrella-77, token {token}, as {commit} does"
    done = propose(
        world, "--json", fix=fix, symptom=f"wandb hangs with WANDB_API_KEY={key}, and torch sees no card in it"
    )
    assert (done.code, done.json["masked"]) == (0, True), done
    written = (world.root / "gotcha.patch").read_text()
    for said in (written, done.out):
        assert "violet-umbrella-77" not in said
        assert token not in said
        assert key not in said
        assert commit in said


def test_the_end_of_a_log_shows_it_without_names(world: World) -> None:
    log = world.root / "cell.log"
    log.write_text("begin\n" * 30 + f"{STACK}: no card\nread /home/ada/x\n")
    done = propose(world, "--with", f"log={log}", reproduction=None)
    assert done.code == 0, done
    written = (world.root / "gotcha.patch").read_text()
    assert "# …: no card\n# read …/x\n" in written
    assert written.count("# begin") == 18


def test_it_takes_the_place_of_another_where_a_profile_is_full(world: World, tmp_path: Path) -> None:
    done = propose(world, "--with", "replaces=RP2", platform="runpod")
    assert done.code == 0, done
    there = applied(world.root / "gotcha.patch", tmp_path / "there")
    ids = [gotcha.id for gotcha in load_profile("runpod", there / "profiles").gotchas]
    assert "RP16" in ids
    assert "RP2" not in ids
    assert "has no gotcha RP99" in propose(world, "--with", "replaces=RP99", platform="runpod").err


def test_what_is_not_given_is_asked_for(world: World) -> None:
    assert "What has to change" in propose(world, types="unset CUDA_VISIBLE_DEVICES in job.setup", fix=None).err
    assert (world.root / "gotcha.patch").exists()
    piped = propose(world, fix=None)
    assert (piped.code, "--with fix=TEXT is missing" in piped.err) == (1, True)
    assert 'did you mean "autodl"' in propose(world, platform="autodel").err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("symptm=x", 'did you mean "symptom"'),
        ("symptom", "is not KEY=TEXT"),
        ("fix=another", "--with fix is given twice"),
    ],
)
def test_a_key_is_one_of_those_there_are_and_given_once(world: World, word: str, said: str) -> None:
    refused = propose(world, "--with", word)
    assert refused.code == 2
    assert said in " ".join(refused.err.split())
    assert not (world.root / "gotcha.patch").exists()


def test_list_shows_them_by_platform(world: World) -> None:
    shown = world.run("profile", "explain", "--gotchas", "autodl", "--json", stack=None, fresh=False).json["gotchas"]
    assert {"AD1", "AD-DANGER", "AD7"} <= {one["id"] for one in shown}
    assert {one["platform"] for one in shown} == {"autodl"}
    everything = world.run("profile", "explain", "--gotchas", "--json", stack=None, fresh=False).json["gotchas"]
    assert {"U1", "MN1", "RP1"} <= {one["id"] for one in everything}
