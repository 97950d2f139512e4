"""`sweepctl ci`: what it writes, and what its steps post; against strict simulators of both forges."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from sweepstack.cli.output import NO, UNSURE, YES
from sweepstack.core import paths
from sweepstack.extensions.pipelines import forge as forges
from sweepstack.extensions.pipelines import from_templates, steps
from sweepstack.extensions.pipelines.changes import last_commit, superseded, touched
from sweepstack.extensions.pipelines.commands.ci import BY_HAND, TAKES, command, nightly, post, reviewed, up, verify
from sweepstack.extensions.pipelines.commands.ci.github import command as write_github
from sweepstack.extensions.pipelines.commands.ci.gitlab import command as write_gitlab
from sweepstack.extensions.pipelines.commands.ci.review import command as review
from sweepstack.extensions.pipelines.steps import REVIEWED, StackResult
from sweepstack.onbox.common.errors import No, NotAuthorized, OutcomeUnknown, SweepstackError, Unsure
from tests.engine.harness import ROOT
from tests.extensions.pipelines.ci_jobs import DIGEST, HEAD, MERGE, as_job, commit, git, left
from tests.extensions.pipelines.workflows import holds
from tests.simulators.forges import Forge, Thing

# what is written


def test_the_written_files_are_safe(project: Path) -> None:
    assert write_github(secret=["SOME_API_KEY"], setup="make env", branch="trunk") == YES
    files = sorted((project / ".github/workflows").iterdir())
    assert [file.stem.removeprefix("sweeps-") for file in files] == ["by-hand", "comment", "nightly", "review", "up"]
    for file in files:
        text = file.read_text()
        assert "@" not in re.sub(r"actions/(checkout|upload-artifact)@[0-9a-f]{40} # v[\d.]+", "", text), (
            "a placeholder, or an action"
        )
        workflow = yaml.safe_load(text)
        on = workflow[True]  # YAML reads `on` as a boolean
        assert "pull_request_target" not in on
        assert "workflow_run" not in on
        assert workflow["permissions"] == {}
        for name, job in workflow["jobs"].items():
            assert job["timeout-minutes"]
            wrote = {right for right, level in job["permissions"].items() if level == "write"}
            more = {"actions"} if name == "asked" else set()
            assert wrote <= {"pull-requests", "statuses", "issues", "id-token"} | more, f"{file.name}: {name}"
            assert not more or "secrets." not in str(job), "what starts runs again has no keys"
            for step in job["steps"]:
                _step(step, in_fork=name == "fork")
    review_file = yaml.safe_load((project / ".github/workflows/sweeps-review.yml").read_text())
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    assert review_file["jobs"]["review"]["if"] == f"github.event_name == 'merge_group' || {own}"
    assert review_file["jobs"]["fork"]["if"] == f"github.event_name == 'pull_request' && {own.replace('==', '!=')}"
    assert set(review_file[True]) == {"pull_request", "merge_group"}
    assert review_file["jobs"]["fork"]["permissions"] == {}
    comment_file = yaml.safe_load((project / ".github/workflows/sweeps-comment.yml").read_text())
    assert comment_file[True] == {"issue_comment": {"types": ["created"]}}
    asked, brought = (comment_file["jobs"][name] for name in ("asked", "up"))
    assert "environment" not in asked
    assert "secrets." not in str(asked)
    up_file = yaml.safe_load((project / ".github/workflows/sweeps-up.yml").read_text())
    assert brought["concurrency"] == up_file["concurrency"], "beside no other up"
    assert brought["environment"] == "sweeps"
    runs = [step.get("run", "").partition(" ci ")[2].partition(" ")[0] for step in brought["steps"]]
    assert [run for run in runs if run] == ["asked", "up", "post"], (
        "GitHub is asked once more before the keys are there"
    )


@pytest.mark.parametrize(
    ("event", "head", "jobs"),
    [
        ("pull_request", "team/sweeps", ["review"]),
        ("pull_request", "evil/sweeps", ["fork"]),
        ("pull_request", "", ["fork"]),  # the fork was deleted
        ("merge_group", "", ["review"]),
    ],
)
def test_who_is_reviewed(project: Path, event: str, head: str, jobs: list[str]) -> None:
    write_github(setup="make env")
    workflow = yaml.safe_load((project / ".github/workflows/sweeps-review.yml").read_text())
    values = {"github.event_name": event, "github.repository": "team/sweeps"}
    values["github.event.pull_request.head.repo.full_name"] = head
    assert [name for name, job in workflow["jobs"].items() if holds(job["if"], values)] == jobs


def _step(step: dict[str, Any], *, in_fork: bool) -> None:
    values = [str(value) for value in step.get("env", {}).values()]
    assert "${{" not in step.get("run", ""), "an expression in a script is code that a stranger writes"
    has_token = any("github.token" in value for value in values)
    has_secrets = any("secrets." in value for value in values)
    assert not (has_token and has_secrets), "a step with keys has no token"
    assert not (in_fork and (has_token or has_secrets))
    if "uses" in step:
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"] == {"fetch-depth": 0, "persist-credentials": False}
        else:
            assert step["with"]["path"] == "${{ runner.temp }}/sweeps/*.html", "nothing else is kept"
            assert "env" not in step


def test_written_again_they_stay_and_an_edit_is_not_lost(project: Path) -> None:
    write_github(setup="make env")
    file = project / ".github/workflows/sweeps-up.yml"
    before = file.stat().st_mtime_ns
    write_github(setup="make env")
    assert file.stat().st_mtime_ns == before
    file.write_text("mine\n")
    with pytest.raises(No, match="differs"):
        write_github(setup="make env")
    assert file.read_text() == "mine\n"
    write_github(setup="make env", force=True)
    assert "mine" not in file.read_text()


def test_a_set_up_with_quotes_is_one_command(project: Path) -> None:
    setup = r'make "$HOME/x" --sep \n'
    write_github(setup=setup, branch="main")
    write_gitlab(setup=setup, branch="main")
    jobs = yaml.safe_load((project / ".github/workflows/sweeps-up.yml").read_text())["jobs"]
    assert jobs["up"]["steps"][1]["run"] == setup
    assert yaml.safe_load((project / ".gitlab/sweeps.yml").read_text())[".sweeps"]["before_script"] == [setup]


def test_a_project_of_the_package_brings_its_engine(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line runs in a shell, with a release of ours in place of GitHub's."""
    monkeypatch.setattr(from_templates, "installed", lambda: True)
    (project / "requirements.txt").write_text("sweepstack\n")
    line = from_templates.set_up(project, None)
    tools, release = project / "tools", project / "release"
    for folder in (tools, release / "pulumi", project / ".venv/bin"):
        folder.mkdir(parents=True)
    (release / "pulumi/pulumi").write_text("#!/bin/sh\necho engine\n")
    (release / "pulumi/pulumi").chmod(0o755)
    version = (ROOT / ".pulumi-version").read_text().strip()
    machine = {"x86_64": "x64", "aarch64": "arm64"}[os.uname().machine]
    name = f"pulumi-v{version}-linux-{machine}.tar.gz"
    subprocess.run(["tar", "-czf", name, "pulumi"], cwd=release, check=True)
    (tools / "curl").write_text(
        f'#!/bin/sh\ntest "$2" = -o && exec cp {release}/"${{4##*/}}" "$3"\nexec cat {release}/"${{2##*/}}"\n'
    )
    (tools / "curl").chmod(0o755)
    for digest, code in (("0" * 64, 1), (hashlib.sha256((release / name).read_bytes()).hexdigest(), 0)):
        (release / f"pulumi-{version}-checksums.txt").write_text(f"{digest}  {name}\n{'1' * 64}  other\n")
        env = {"PATH": f"{tools}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-e", "-c", line[line.index("v=") :]], cwd=project, env=env, check=False)
        assert (done.returncode, (project / ".venv/bin/pulumi").exists()) == (code, code == 0)


def test_an_installed_project_is_given_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no docs beside it, so what is written names a page by its address."""
    monkeypatch.setattr(paths, "installed", lambda: True)
    for template in sorted(from_templates.TEMPLATES.glob("*.yml")):
        text = from_templates.filled(template.name, setup="true", branch="main", secrets=(), expression="")
        assert f"{paths.DOCS_URL}/pipelines.md" in text.splitlines()[0]
        assert not re.search(r"docs/[a-z-]+\.md", text.replace(paths.DOCS_URL, "")), template.name


def test_the_branch_is_known_before_the_first_commit(project: Path) -> None:
    git(project, "checkout", "-q", "--orphan", "trunk")
    write_github(setup="make env")
    on = yaml.safe_load((project / ".github/workflows/sweeps-up.yml").read_text())[True]
    assert on["push"]["branches"] == ["trunk"]
    commit(project, "now there is one")
    git(project, "checkout", "-q", "--detach")
    with pytest.raises(No, match="no branch that a pipeline can name"):
        write_github(setup="make env", force=True)


def test_verify_by_hand_has_the_key_for_boxes(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    monkeypatch.setenv(steps.PRIVATE_KEY, "the key")
    as_job(forge, monkeypatch, tmp_path)
    seen: list[str] = []

    def ran(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        seen.append(" ".join(words))
        assert Path(env["SWEEPSTACK_SSH_KEY"]).read_text() == "the key\n"
        return steps.Done(NO)

    monkeypatch.setattr(steps, "sweepctl", ran)
    assert verify.command("a") == NO
    assert seen == ["pull --verify --stack a"]


def test_gitlab_keeps_what_is_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".gitlab-ci.yml").write_text("mine: {script: [true]}\n")
    write_gitlab(setup="make env", branch="main")
    assert (project / ".gitlab-ci.yml").read_text() == "mine: {script: [true]}\n"
    assert "include" in capsys.readouterr().out
    jobs = yaml.safe_load((project / ".gitlab/sweeps.yml").read_text())
    own = "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID"
    assert own in jobs["sweeps-review"]["rules"][0]["if"]
    assert jobs["sweeps-destroy"]["rules"][0]["when"] == "manual"


@pytest.mark.parametrize("name", ["lower", "GITHUB_TOKEN", "A-B", "", "X: y"])
def test_a_name_that_is_no_secret_is_refused(project: Path, name: str) -> None:
    with pytest.raises(No, match="secret"):
        write_github(secret=[name], setup="make env")
    assert not (project / ".github").exists()


# which stacks a change touches


def test_a_stack_is_touched_by_its_file_and_its_code(project: Path) -> None:
    base = git(project, "rev-parse", "HEAD")
    (project / "README.md").write_text("x")
    commit(project, "no stack")
    assert touched(project, base) == []
    (project / "job/train.py").write_text("2\n")
    code = commit(project, "code of a")
    assert [(one.stack, one.removed) for one in touched(project, base)] == [("a", False)]
    (project / "stacks/Pulumi.b.yaml").unlink()
    (project / "stacks/Pulumi.c.yaml").write_text("config: {}\n")
    commit(project, "b goes, c comes")
    found = touched(project, base)
    assert [(one.stack, one.removed) for one in found] == [("a", False), ("b", True), ("c", False)]
    assert last_commit(project, base, found[0].paths) == code


def test_a_newer_commit_of_the_branch_supersedes(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", "remote.git", "other")
    assert not superseded(project, "main", "a")
    (other / "stacks/Pulumi.b.yaml").write_text("config: {}\n")
    commit(other, "another stack")
    git(other, "push", "-q", "origin", "main")
    assert not superseded(project, "main", "a")
    (other / "job/train.py").write_text("3\n")
    commit(other, "this stack")
    git(other, "push", "-q", "origin", "main")
    assert superseded(project, "main", "a")
    git(project, "remote", "set-url", "origin", str(tmp_path / "refuses"))
    assert superseded(project, "main", "a"), "what was fetched before counts where the remote refuses"
    git(project, "update-ref", "-d", "refs/remotes/origin/main")
    with pytest.raises(SweepstackError):
        superseded(project, "main", "a")


# what is posted


def test_one_comment_is_updated_and_the_status_has_the_digest(forge: Forge, tmp_path: Path) -> None:
    good = StackResult("a", YES, "may go on", "## fine\n", DIGEST)
    assert post.command(left(tmp_path / "r", good)) == YES
    post.command(left(tmp_path / "r", StackResult("a", NO, "may not go on", "## no\n", DIGEST)))
    (text,) = forge.texts(7)
    at = json.loads((tmp_path / "r/result.json").read_text())["at"]
    assert text.startswith(f"<!-- sweepctl review: a -->\n## no\n\nOf commit {HEAD[:12]}, {at}, by [this job](https://")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", at)
    assert forge.comments[0].edits == 1
    assert [one.state for one in forge.statuses] == ["success", {"github": "failure", "gitlab": "failed"}[forge.kind]]
    assert forge.statuses[0].body == f"may go on; {DIGEST}"
    post.command(left(tmp_path / "r"))
    assert "does not touch the stack a any more" in forge.texts(7)[0]
    asked = len(forge.asked)
    post.command(left(tmp_path / "r"))
    wrote = [line for line in forge.asked[asked:] if not line.startswith("GET ") and "/graphql" not in line]
    assert wrote == [], "written once"


def test_a_lost_answer_makes_no_second_comment(forge: Forge, tmp_path: Path) -> None:
    forge.lose = 1
    post.command(left(tmp_path / "r", StackResult("a", YES, "may go on", "x\n", DIGEST)))
    assert len(forge.texts(7)) == 1
    forge.lose = 2  # the edit's and the status's: both were carried out, and are looked for
    post.command(left(tmp_path / "r", StackResult("a", YES, "may go on", "y\n", DIGEST)))
    assert (forge.texts(7)[0].splitlines()[1], len(forge.statuses)) == ("y", 2)
    forge.fail("(PATCH|PUT) ", 502, times=3)  # none was carried out, and that is no reason to say that all is well
    with pytest.raises(OutcomeUnknown):
        post.command(left(tmp_path / "r", StackResult("a", YES, "may go on", "z\n", DIGEST)))


def test_a_long_review_fits_and_many_comments_are_read(forge: Forge, tmp_path: Path) -> None:
    for number in range(130):
        forge.comments.append(Thing(forge.next_id(), body=f"talk {number}", of=7))
    for text in ("x" * 70_000, "y" * 70_000):
        post.command(left(tmp_path / "r", StackResult("a", UNSURE, "could not be told", text)))
    assert len([text for text in forge.texts(7) if text.startswith("<!-- sweepctl")]) == 1


def test_without_the_right_or_the_token_it_says_so_and_shows_none(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "GITHUB_TOKEN" if forge.kind == "github" else "GITLAB_TOKEN"
    folder = left(tmp_path / "r", StackResult("a", YES, "may go on", "x\n", DIGEST))
    monkeypatch.setenv(name, "ghs_another_token_1234")
    with pytest.raises(NotAuthorized) as refused:
        post.command(folder)
    assert "another_token" not in str(refused.value)
    monkeypatch.setenv(name, "")
    with pytest.raises(Unsure, match=name):
        post.command(folder)
    with pytest.raises(Unsure, match="no result"):
        post.command(tmp_path / "nowhere")


def test_the_one_issue_is_opened_updated_and_closed(forge: Forge, tmp_path: Path) -> None:
    for code, body in ((NO, "one"), (NO, "two"), (YES, "fine")):
        post.command(left(tmp_path / "n", kind="nightly", code=code, title="Sweeps", body=body))
    (issue,) = forge.issues
    assert (issue.body.splitlines()[1], issue.state, issue.edits) == ("fine", "closed", 2)
    post.command(left(tmp_path / "n", kind="nightly", code=YES, title="Sweeps", body="fine"))
    assert len(forge.issues) == 1
    post.command(left(tmp_path / "n", kind="nightly", code=NO, title="Sweeps", body="again"))
    assert [one.state for one in forge.issues] == ["closed", "open"]


# what is brought up


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (None, "no review that may go on (none)"),
        (("failure", f"may not go on; {DIGEST}"), "no review that may go on"),
        (("success", "may go on"), "no review that may go on"),
        (("success", f"may go on; {DIGEST}"), ""),
    ],
)
def test_only_what_was_reviewed_has_a_digest(
    forge: Forge,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: tuple[str, str] | None,
    why: str,
) -> None:
    before = git(project, "rev-parse", "HEAD")
    (project / "stacks/Pulumi.a.yaml").write_text("config: {}\n")
    merged = commit(project, "merged")
    as_job(forge, monkeypatch, tmp_path, before=before)
    forge.commits.add(merged)
    if status:
        state = {"failure": "failed"}.get(status[0], status[0]) if forge.kind == "gitlab" else status[0]
        forge.statuses.append(Thing(1, state=state, body=status[1], name="sweepctl review: a", commit=HEAD))
    assert reviewed.command(tmp_path / "r") == NO, "it came without a request"
    forge.merge(7, merged)
    code = reviewed.command(tmp_path / "r")
    found = json.loads((tmp_path / "r" / REVIEWED).read_text())["a"]
    assert (code, found["digest"]) == ((NO, "") if why else (YES, DIGEST))
    assert why in found["why"]


@pytest.mark.parametrize("digest", ["", "sha256:abc", DIGEST + "0"])
def test_by_hand_takes_the_whole_digest(forge: Forge, project: Path, tmp_path: Path, digest: str) -> None:
    with pytest.raises(No, match="whole digest"):
        reviewed.command(tmp_path / "r", only="a", digest=digest)


def test_what_was_not_reviewed_is_not_brought_up(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    as_job(forge, monkeypatch, tmp_path)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / REVIEWED).write_text(json.dumps({"a": {"digest": "", "change": 7, "why": "no review"}}))
    assert up.command(tmp_path / "r") == NO
    forge.commits.add(MERGE)
    post.command(tmp_path / "r")
    assert "not brought up: it was not reviewed" in forge.texts(7)[0]
    as_job(forge, monkeypatch, tmp_path, change=7)
    with pytest.raises(No, match="only from main"):
        up.command(tmp_path / "r")


def test_a_fork_and_a_job_without_backend_are_refused(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    git(project, "checkout", "-q", "-b", "change")
    (project / "stacks/Pulumi.a.yaml").write_text("config: {}\n")
    commit(project, "change")
    with pytest.raises(No, match="PULUMI_BACKEND_URL is not set"):
        review(tmp_path / "r")
    as_job(forge, monkeypatch, tmp_path, change=7, project="999" if forge.kind == "gitlab" else "evil/sweeps")
    with pytest.raises(No, match="from a fork"):
        review(tmp_path / "r")


def test_no_command_of_a_job_sees_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*forges.TOKENS, steps.PRIVATE_KEY):
        monkeypatch.setenv(name, "secret-of-the-forge")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    with steps.environment() as env:
        assert "secret-of-the-forge" not in env.values()
        assert "AWS_ENDPOINT_URL" not in env
        assert env["PULUMI_CONFIG_PASSPHRASE"] == ""
        key = Path(env["SWEEPSTACK_SSH_KEY"])
        assert (key.read_text(), key.stat().st_mode & 0o777) == ("secret-of-the-forge\n", 0o600)
    assert not key.exists()


def test_outside_of_a_job_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITLAB_CI", raising=False)
    with pytest.raises(Unsure, match="no job"):
        post.command(tmp_path)


@pytest.mark.parametrize(("what", "forge"), [*((what, "") for what in BY_HAND), ("asked", "GITLAB_CI")])
def test_a_step_that_a_person_types_says_what_it_is_for_and_what_to_type_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, forge: str
) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_EVENT_PATH", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)
    if forge:
        monkeypatch.setenv(forge, "true")
    takes = {"folder": tmp_path} if "folder" in TAKES[what] else {"stack": "x"}
    with pytest.raises(
        Unsure, match=f"this is no job of GitHub Actions.*, whose pipelines run `ci {what}` to [a-z]"
    ) as no:
        command(what, **takes)  # type: ignore[arg-type]
    assert no.value.next == [
        f"{BY_HAND[what]}    (by hand)",
        "sweepctl ci github    (writes the pipelines; or: gitlab)",
    ]


def test_a_merged_results_pipeline_marks_the_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_COMMIT_SHA", MERGE)
    monkeypatch.setenv("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", HEAD)
    assert forges.gitlab_job().head == HEAD


# the night


def test_a_night_that_is_cut_says_so(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")

    def ran(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        if words[0] != "audit":
            raise KeyboardInterrupt
        return steps.Done(YES, "nothing bills")

    monkeypatch.setattr(steps, "sweepctl", ran)
    monkeypatch.setattr(steps, "pulumi", ran)
    with pytest.raises(KeyboardInterrupt):
        nightly.command(tmp_path / "r")
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    post.command(tmp_path / "r")
    (issue,) = forge.issues
    assert "| `sweepctl audit` | fine |" in issue.body
    assert "the job was cut" in issue.body
    assert issue.body.endswith(summary.read_text()), "the same in the job's summary"


@pytest.mark.parametrize(
    ("seen", "code", "line"),
    [
        ({"bills": "nothing"}, YES, ""),
        ({"bills": "yes", "alarms": ["the balance ends"]}, NO, "ALARM   the balance ends"),
        ({"boxes": [{"name": "box-0", "alarms": ["hung"]}]}, NO, "ALARM   box-0: hung"),
        ({"clocks": [{"box": "box-0", "what": "released", "left_seconds": 3600}]}, NO, "in 60 min"),
        ({"clocks": [{"box": "box-0", "what": "released", "left_seconds": None}]}, NO, "not known when"),
        ({"clocks": [{"box": "box-0", "what": "released", "left_seconds": 9e6}]}, YES, ""),
        ({"budget": {"used": 1.2, "usd": 10, "spent_usd": 12}}, NO, "used up"),
        ({"bills": "unknown"}, UNSURE, "not known"),
        ({}, UNSURE, "no document"),
    ],
)
def test_what_status_says_yes_to_and_a_person_must_know(seen: dict[str, Any], code: int, line: str) -> None:
    found, lines = nightly.of_status(YES, seen)
    assert found == code
    assert line in "\n".join(lines)


def test_the_issue_names_each_look_and_no_fence_ends_early() -> None:
    looks = [
        nightly.CheckOutcome("sweepctl audit", NO, "box x\n````\n# not a title"),
        nightly.CheckOutcome("sweepctl doctor", YES, "ok"),
    ]
    text = nightly.issue_text(looks, "https://x")
    assert "1 of 2 looks" in text
    assert "| `sweepctl doctor` | fine |" in text
    assert text.count("`````") == 2
    assert "more lines" in nightly.fenced("x\n" * 500, 200)
