"""`sweepctl ci up` and `ci destroy`: which commands they run, on which word of the review. The engine is a stand-in.

The same with the real engine: test_story.py, up to `up` in `make test`, to the end in `make proof`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.cli.output import NO, UNSURE, YES
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.commands.ci import destroy, post, reviewed, up
from sweepstack.extensions.pipelines.steps import REVIEWED, Result
from sweepstack.onbox.common.errors import No, Unsure
from tests.extensions.pipelines.ci_jobs import DIGEST, HEAD, MERGE, as_job, commit, git
from tests.simulators.forges import Forge, Thing

pytestmark = pytest.mark.parametrize("forge", ["github"], indirect=True)  # nothing here differs between the forges
OTHER = "sha256:" + "cd" * 32


@pytest.fixture
def run(forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    as_job(forge, monkeypatch, tmp_path)
    forge.commits.add(MERGE)
    run = Run()
    monkeypatch.setattr(steps, "sweepctl", run.sweepctl)
    monkeypatch.setattr(steps, "pulumi", run.pulumi)
    return run


class Run:
    """What ran, and how each of it ends."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.review, self.digest, self.ended, self.status = YES, DIGEST, 0, (YES, '{"bills": "nothing"}')
        self.stacks, self.differs = "", steps.CHANGES
        self.cut_in = self.markdown = ""
        """The stack in whose `pulumi up` the job is cut."""

    def sweepctl(self, root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        if words[0] != "review":
            self.ran.append(words[0])
            return steps.Done(*self.status)
        self.ran.append(" ".join(word for word in words if word in ("review", "--destroy", "--expect", DIGEST)))
        (document,) = (word for word in words if word.endswith(".json"))
        Path(document).write_text(json.dumps({"digest": self.digest}))
        Path(document).with_suffix(".md").write_text(self.markdown)
        return steps.Done(self.review)

    def pulumi(self, root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        if words[:2] == ("stack", "ls"):
            return steps.Done(YES, self.stacks)
        if words[0] == "preview":
            return steps.Done(self.differs)
        self.ran.append(f"pulumi {words[0]}")
        if words[0] == "up" and self.cut_in in words:
            raise KeyboardInterrupt
        return steps.Done(self.ended if words[0] in ("up", "destroy") else YES)


def ends(run: Run) -> int:
    return destroy.command("a")


def test_what_the_review_lets_go_is_destroyed_and_nothing_bills(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(run) == YES
    assert run.ran == ["review --destroy", "pulumi destroy", "status"]
    assert "nothing bills any more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("review", "digest", "error", "words"),
    [
        (NO, DIGEST, No, "nothing was ended"),
        (UNSURE, DIGEST, Unsure, "nothing was ended"),
        (255, DIGEST, Unsure, "nothing was ended"),
        (YES, "", Unsure, "nothing was ended"),
    ],
)
def test_nothing_is_ended_without_the_reviews_yes(
    run: Run, review: int, digest: str, error: type[Exception], words: str
) -> None:
    run.review, run.digest = review, digest
    with pytest.raises(error, match=words):
        ends(run)
    assert run.ran == ["review --destroy"]


@pytest.mark.parametrize(
    ("ended", "status", "error", "words"),
    [
        (1, (YES, '{"bills": "nothing"}'), No, "bills on"),
        (0, (YES, '{"bills": "yes"}'), Unsure, "could not be proved"),
        (0, (UNSURE, ""), Unsure, "could not be proved"),
        (0, (YES, "[]"), Unsure, "could not be proved"),
    ],
)
def test_an_end_that_is_not_proved_is_none(
    run: Run, ended: int, status: tuple[int, str], error: type[Exception], words: str
) -> None:
    run.ended, run.status = ended, status
    with pytest.raises(error, match=words):
        ends(run)


def _request(forge: Forge, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    as_job(forge, monkeypatch, folder, change=7)


def _branch(forge: Forge, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("GITHUB_REF_NAME", "other")


def _newer(forge: Forge, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    git(folder, "clone", "-q", "remote.git", "newer")
    (folder / "newer/stacks/Pulumi.a.yaml").write_text("config: {}\n")
    commit(folder / "newer", "another file, without the approval")
    git(folder / "newer", "push", "-q", "origin", "main")


@pytest.mark.parametrize("where", [_request, _branch, _newer])
def test_nothing_is_ended_from_elsewhere(
    run: Run,
    forge: Forge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Callable[[Forge, pytest.MonkeyPatch, Path], None],
) -> None:
    where(forge, monkeypatch, tmp_path)
    with pytest.raises(No, match=r"nothing is destroyed from|other files of"):
        ends(run)
    assert run.ran == []


@pytest.mark.parametrize(
    ("review", "digest", "ended", "status", "code", "words"),
    [
        (YES, DIGEST, 0, YES, YES, "up"),
        (NO, OTHER, 0, YES, NO, "another one now"),
        (UNSURE, "", 0, YES, UNSURE, "could not be told"),
        (YES, DIGEST, 7, YES, NO, "ended with 7"),
        (YES, DIGEST, 0, NO, NO, "not all of it is known"),
        (YES, DIGEST, 0, 255, UNSURE, "not all of it is known"),
    ],
)
def test_only_the_reviewed_change_is_brought_up(
    run: Run, forge: Forge, tmp_path: Path, review: int, digest: str, ended: int, status: int, code: int, words: str
) -> None:
    run.review, run.digest, run.ended, run.status = review, digest, ended, (status, "")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": {"digest": DIGEST, "change": 7, "why": ""}}))
    assert up.command(tmp_path / "r") == code
    assert run.ran[:2] == ["pulumi stack", f"review --expect {DIGEST}"]
    assert ("pulumi up" in run.ran) == (review == YES)
    (one,) = Result.read(tmp_path / "r").stacks
    assert words in one.words
    post.command(tmp_path / "r")
    assert words in forge.texts(7)[0]
    assert (OTHER in forge.texts(7)[0]) == (digest == OTHER), "the digest to start it by hand with"


@pytest.mark.parametrize(
    ("review", "digest", "code", "words"),
    [(YES, DIGEST, YES, "up"), (NO, OTHER, YES, "left to the run of a newer"), (UNSURE, "", UNSURE, "not be told")],
)
def test_a_newer_merge_keeps_back_no_change_that_is_still_the_reviewed_one(
    run: Run,
    forge: Forge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    review: int,
    digest: str,
    code: int,
    words: str,
) -> None:
    _newer(forge, monkeypatch, tmp_path)
    run.review, run.digest = review, digest
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": {"digest": DIGEST, "change": 7, "why": ""}}))
    assert up.command(tmp_path / "r") == code
    assert words in Result.read(tmp_path / "r").stacks[0].words
    assert ("pulumi up" in run.ran) == (review == YES), "no digest is brought up but the reviewed one"


@pytest.mark.parametrize(
    ("said", "ups"), [("up", 0), ("begun, and the job was cut before it ended", 0), ("not brought up: the change", 1)]
)
def test_an_old_job_that_is_started_again_undoes_no_newer_up(
    run: Run, forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, ups: int
) -> None:
    """The newer commit takes the change back, so that the digest of the older one is today's again."""
    before = git(project, "rev-parse", "HEAD")
    (project / "stacks/Pulumi.a.yaml").write_text("config: {x: 1}\n")
    merged = commit(project, "the change")
    git(project, "push", "-q", "origin", "main")
    _newer(forge, monkeypatch, tmp_path)
    newer = git(tmp_path / "newer", "rev-parse", "HEAD")
    as_job(forge, monkeypatch, tmp_path, before=before)
    forge.commits |= {merged, newer}
    forge.merge(7, merged)
    review = Thing(1, state="success", body=f"may go on; {DIGEST}", name="sweepctl review: a", commit=HEAD)
    forge.statuses += [review, Thing(2, state="success", body=said, name="sweepctl up: a", commit=newer)]
    reviewed.command(tmp_path / "r")
    assert up.command(tmp_path / "r") == YES
    assert run.ran.count("pulumi up") == ups


def test_a_job_that_is_cut_says_of_each_stack_how_far_it_came(
    run: Run, forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a runner's limit or Cancel does it: the step ends in the middle, the next step posts what it has left."""
    before = git(project, "rev-parse", "HEAD")
    for stack in "abc":
        (project / f"stacks/Pulumi.{stack}.yaml").write_text("config: {}\n")
    merged = commit(project, "three stacks")
    git(project, "push", "-q", "origin", "main")
    as_job(forge, monkeypatch, tmp_path, before=before)
    forge.commits |= {merged, MERGE}
    forge.merge(7, merged)
    for number, stack in enumerate("abc"):
        text = f"may go on; {DIGEST}"
        forge.statuses.append(Thing(number, state="success", body=text, name=f"sweepctl review: {stack}", commit=HEAD))
    reviewed.command(tmp_path / "r")
    post.command(tmp_path / "r")  # the job ended before `ci up`, for want of a backend say
    assert all("not begun" in text for text in forge.texts(7)), forge.texts(7)
    run.cut_in = "b"
    with pytest.raises(KeyboardInterrupt):
        up.command(tmp_path / "r")
    post.command(tmp_path / "r")
    first, second, third = forge.texts(7)
    assert "`pulumi up` of a: up.**" in first
    assert "of b: begun, and the job was cut" in second
    assert "`sweepctl status --stack b` says what bills" in second
    assert "of c: not begun" in third
    states = {stack: forge.newest(MERGE, f"sweepctl up: {stack}") for stack in "abc"}
    assert [one.state for one in states.values() if one] == ["success", "error", "error"]


@pytest.mark.parametrize(
    ("differs", "code", "words"),
    [(YES, YES, "up already"), (steps.CHANGES, NO, "another one now"), (255, NO, "another one now")],
)
def test_what_is_up_already_is_no_other_change(run: Run, tmp_path: Path, differs: int, code: int, words: str) -> None:
    """The merge of a request that a comment has brought up; a job that is started again."""
    run.review, run.digest, run.differs = NO, OTHER, differs
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": {"digest": DIGEST, "change": 7, "why": ""}}))
    assert up.command(tmp_path / "r") == code
    assert words in Result.read(tmp_path / "r").stacks[0].words
    assert "pulumi up" not in run.ran


def test_the_summary_has_the_review_and_what_up_did(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": {"digest": DIGEST, "change": 7, "why": ""}}))
    run.markdown = "<!-- sweepctl review: a -->\nOne cell more.\n"
    up.command(tmp_path / "r")
    post.command(tmp_path / "r")
    assert summary.read_text().startswith("**`pulumi up` of a: up.**")
    assert summary.read_text().endswith("## What it was held to\n\nOne cell more.\n")


def test_what_is_up_is_told_with_boxes_prices_and_the_next_command(run: Run, forge: Forge, tmp_path: Path) -> None:
    boxes = [
        {"name": "box-0", "platform": "runpod", "phase": "running", "price_per_hour": 1.25},
        {"name": "box-1", "platform": "autodl", "phase": "lost", "price_per_hour": None},
    ]
    seen = {"boxes": boxes, "meter": {"per_hour": 1.25, "so_far": 3.5, "incomplete": True}}
    seen["next"] = ["sweepctl wait --stack a    (until all are through)"]  # type: ignore[assignment]
    run.status = (YES, json.dumps(seen))
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": {"digest": DIGEST, "change": 7, "why": ""}}))
    up.command(tmp_path / "r")
    post.command(tmp_path / "r")
    (text,) = forge.texts(7)
    assert "| `box-0` | runpod | running | $1.25 |\n| `box-1` | autodl | lost | unknown |" in text
    assert "In all at least $1.25 an hour, $3.50 so far." in text
    assert "Next: `sweepctl wait --stack a`" in text


@pytest.mark.parametrize(
    ("stacks", "ups"),
    [
        ('[{"name": "a", "resourceCount": 0}]', 0),
        ("[]", 0),
        ('[{"name": "organization/p/a", "resourceCount": 7}]', 1),
        ('[{"name": "a"}]', 1),  # it does not say, so it may be up
        ("no list", 1),
    ],
)
def test_what_all_stacks_share_rents_nothing_of_a_sweep_that_is_not_up(
    run: Run, tmp_path: Path, stacks: str, ups: int
) -> None:
    run.stacks = stacks
    (tmp_path / "r").mkdir()
    asked = {"digest": DIGEST if ups else "", "change": 7, "why": "", "shared": True}
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": asked}))
    assert up.command(tmp_path / "r") == YES
    assert run.ran.count("pulumi up") == ups
    assert len(Result.read(tmp_path / "r").stacks) == ups
