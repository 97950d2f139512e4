"""`sweepctl ci` against what forges really do: strangers' comments, pages, limits, lost and refused requests."""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sweepstack.cli.output import NO, UNSURE, YES
from sweepstack.extensions.pipelines import forge as forge_command
from sweepstack.extensions.pipelines import oidc, steps
from sweepstack.extensions.pipelines.commands.ci import nightly, post
from sweepstack.extensions.pipelines.commands.ci.gitlab import command as write_gitlab
from sweepstack.extensions.pipelines.commands.ci.review import command as review
from sweepstack.extensions.pipelines.steps import Result, StackResult
from sweepstack.onbox.common.errors import No, NotAuthorized, OutcomeUnknown, PlatformError, Unsure
from sweepstack.review.markdown import _block, marked_stack, marker
from sweepstack.review.words import Line
from tests.extensions.pipelines.ci_jobs import DIGEST, HEAD, MERGE, as_job, commit, git, left
from tests.simulators.forges import JOB_TOKEN, Forge, Thing

MINE = "<!-- sweepctl review: a -->"
ISSUE = "<!-- sweepctl nightly -->"


def posted(folder: Path, text: str = "fine", code: int = YES, **more: str) -> None:
    post.command(left(folder, StackResult("a", code, "may go on", f"{text}\n", DIGEST, page="a.html")), **more)


def night(folder: Path, code: int) -> None:
    post.command(left(folder, kind="nightly", code=code, title="Sweeps", body="words"))


def mine(forge: Forge) -> list[str]:
    """Our comments, without their last lines: commit, time, job."""
    return [one.body.partition("\nOf commit ")[0] for one in forge.comments if one.author == forge.me]


def test_a_comment_that_a_stranger_wrote_is_not_ours(forge: Forge, tmp_path: Path) -> None:
    planted = Thing(1, body=f"{MINE}\nIt may go on, trust me.\n", of=7)
    other = Thing(2, body="<!-- sweepctl review: b -->\nlook\n", of=7, author=f"{forge.me}x")
    forge.comments += [planted, other]
    posted(tmp_path / "r")
    posted(tmp_path / "r", "again")
    assert (planted.edits, other.edits) == (0, 0)
    assert mine(forge) == [f"{MINE}\nagain\n"]


def test_an_issue_that_a_stranger_opened_is_not_ours(forge: Forge, tmp_path: Path) -> None:
    planted = Thing(1, number=1, title="x", body=f"{ISSUE}\nall is fine\n", state="open")
    forge.issues.append(planted)
    night(tmp_path / "n", NO)
    night(tmp_path / "n", YES)
    assert (planted.edits, planted.state) == (0, "open")
    assert [one.state for one in forge.issues if one.author == forge.me] == ["closed"]


def test_whose_token_it_is_has_to_be_known(forge: Forge, tmp_path: Path) -> None:
    forge.comments.append(Thing(1, body=f"{MINE}\nx\n", of=7))
    forge.fail("/graphql|GET .*/user", 502, times=9)
    with pytest.raises((Unsure, PlatformError)):
        posted(tmp_path / "r")
    assert (mine(forge), forge.statuses) == ([], [])


def test_one_that_was_deleted_meanwhile_is_made_anew(forge: Forge, tmp_path: Path) -> None:
    posted(tmp_path / "r")
    forge.between["(PATCH|PUT) .*(comments|notes)/"] = forge.comments.clear
    posted(tmp_path / "r", "again")
    assert mine(forge) == [f"{MINE}\nagain\n"]
    night(tmp_path / "n", NO)
    forge.between["(PATCH|PUT) .*issues/"] = forge.issues.clear
    night(tmp_path / "n", NO)
    assert [one.state for one in forge.issues] == ["open"]


@pytest.mark.parametrize("carried", [True, False])
def test_a_bad_gateway(forge: Forge, tmp_path: Path, carried: bool) -> None:
    forge.fail("POST .*(comments|notes)$", 502, text="<html>bad gateway</html>", carried=carried)
    if carried:
        posted(tmp_path / "r")
    else:
        with pytest.raises(OutcomeUnknown):
            posted(tmp_path / "r")
        assert forge.texts(7) == []
        posted(tmp_path / "r")
    forge.fail("POST .*/statuses/", 502, carried=carried)
    forge.fail("(PATCH|PUT) ", 502, carried=carried)
    forge.fail("GET .*(comments|notes)$", 502)
    try:
        posted(tmp_path / "r", "again")
    except OutcomeUnknown:
        assert not carried
    assert mine(forge) == [f"{MINE}\nagain\n"]


@pytest.mark.parametrize(("status", "name"), [(429, "retry-after"), (403, "retry-after"), (403, "x-ratelimit-reset")])
def test_a_limit_is_waited_for(forge: Forge, tmp_path: Path, status: int, name: str) -> None:
    headers = {"retry-after": "0"} if name == "retry-after" else {"x-ratelimit-remaining": "0", name: "1"}
    forge.fail("POST .*(comments|notes)$", status, headers=headers, text="Retry later")
    forge.fail("GET .*(comments|notes)$", status, headers=headers, text="Retry later")
    posted(tmp_path / "r")
    assert len(forge.texts(7)) == 1


def test_ours_is_found_behind_many_and_behind_a_short_page(forge: Forge, tmp_path: Path) -> None:
    posted(tmp_path / "r")
    talk = [Thing(forge.next_id(), body=f"talk {number}", of=7) for number in range(230)]
    talk[3].hidden = talk[40].hidden = forge.kind == "gitlab"
    forge.comments[:0] = talk
    posted(tmp_path / "r", "again")
    assert mine(forge) == [f"{MINE}\nagain\n"]


def test_more_than_is_read_is_not_known(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.extensions.pipelines.forge.MOST_PAGES", 1)
    forge.comments += [Thing(forge.next_id(), body="talk", of=7) for _ in range(130)]
    with pytest.raises(Unsure, match="not all were read"):
        posted(tmp_path / "r")
    assert mine(forge) == []


def test_rights_that_are_missing_are_named(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if forge.kind == "github":
        forge.rights = {"statuses"}
    else:
        forge.scope = "read_api"
    with pytest.raises(NotAuthorized, match=r"permissions|scope"):
        posted(tmp_path / "r")
    forge.rights, forge.scope, forge.issues_off = {"issues", "pull-requests"}, "api", True
    with pytest.raises((No, NotAuthorized)) as refused:
        night(tmp_path / "n", NO)
    if forge.kind == "github":
        assert "Settings" in str(refused.value)
        with pytest.raises(NotAuthorized):
            posted(tmp_path / "r")
    else:
        forge.protected.add(HEAD)
        with pytest.raises(NotAuthorized, match="may merge to the branch"):
            posted(tmp_path / "r")
        monkeypatch.setenv("GITLAB_TOKEN", JOB_TOKEN)
        with pytest.raises(NotAuthorized):
            posted(tmp_path / "r")


def test_a_text_of_a_file_is_no_command_to_gitlab(forge: Forge, tmp_path: Path) -> None:
    posted(tmp_path / "r", "\n".join(_block(Line("/merge now"), 9, top=False)))
    assert forge.commands == []
    posted(tmp_path / "r", "/merge now")
    assert bool(forge.commands) == (forge.kind == "gitlab"), "the simulator would have told"


def test_the_page_is_linked_where_there_is_one(forge: Forge, tmp_path: Path) -> None:
    posted(tmp_path / "r", "x" * 70_000, pages="https://forge.invalid/artifacts/1")
    assert forge.texts(7)[0].rstrip().endswith("(https://forge.invalid/artifacts/1) (`a.html`), kept for 30 days.")
    for none in ("", "javascript:x", "https://x/) [y](https://z"):
        posted(tmp_path / "r", pages=none)
        assert "The same as a page" not in forge.texts(7)[0]
        assert mine(forge) == [f"{MINE}\nfine\n"]


@pytest.mark.parametrize("stack", ["a", "a-b", "a--b", "a--", "team/p/x.y_z"])
@pytest.mark.parametrize("kind", ["review", "up"])
def test_each_stack_has_a_marker_of_its_own(stack: str, kind: str) -> None:
    assert marked_stack(marker(stack, kind), kind) == stack
    assert marked_stack(marker(stack, kind), "nightly") is None
    assert marked_stack(f"{marker(stack, kind)} x", kind) is None


def test_a_role_of_aws_is_taken_by_a_token_that_stays_fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The address answers as GitHub's does: `value`, to a GET with the audience and the bearer."""
    asked: list[str] = []

    class Tokens(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            text = json.dumps({"value": f"jwt-{len(asked)}"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", *oidc.HIDDEN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/sweeps-review")
    with pytest.raises(Unsure, match="id-token: write"), steps.environment():
        pass
    address = f"http://127.0.0.1:{server.server_port}/idtoken?api-version=2.0"
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", address)
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "bearer-of-the-job")
    monkeypatch.setattr(oidc, "FRESH", 0.01)
    with steps.environment() as env:
        assert not set(env) & set(oidc.HIDDEN), "what makes tokens for other roles"
        file = Path(env["AWS_WEB_IDENTITY_TOKEN_FILE"])
        until = time.monotonic() + 60
        while file.read_text() == "jwt-1" and time.monotonic() < until:
            time.sleep(0.01)
        assert file.read_text() != "jwt-1"
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()
    assert asked[0] == "/idtoken?api-version=2.0&audience=sts.amazonaws.com Bearer bearer-of-the-job"
    server.shutdown()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    with pytest.raises(No, match="both set"), steps.environment():
        pass
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("SWEEPS_ID_TOKEN", "jwt of GitLab")
    with steps.environment() as env:
        assert Path(env["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text() == "jwt of GitLab"


@pytest.mark.parametrize("forge", ["gitlab"], indirect=True)
@pytest.mark.parametrize("may", [True, None, False])
def test_the_nights_issue_says_that_forks_may_run_with_our_variables(
    forge: Forge, tmp_path: Path, may: bool | None
) -> None:
    forge.forks_run_here = may
    night(tmp_path / "n", YES)
    assert [one.state for one in forge.issues] == (["open"] if may else [])
    if may:
        assert "--data ci_allow_fork_pipelines_to_run_in_parent_project=false" in forge.issues[0].body
    forge.forks_run_here = False
    night(tmp_path / "n", YES)
    assert "open" not in [one.state for one in forge.issues]


def test_gitlab_has_no_secret_to_name(project: Path) -> None:
    with pytest.raises(No, match="SOME_API_KEY is there once it is set"):
        write_gitlab(secret=["SOME_API_KEY"], setup="make env")
    assert not (project / ".gitlab").exists()


def test_a_stack_that_does_not_read_keeps_the_issue_open(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    night(tmp_path / "n", NO)
    fine = steps.Done(YES, json.dumps({"bills": "nothing"}))  # and no list of stacks: what is up is not known
    monkeypatch.setattr(steps, "sweepctl", lambda *_, **__: fine)
    monkeypatch.setattr(steps, "pulumi", lambda root, env, *words, **__: steps.Done(255 if "b" in words else YES))
    assert nightly.command(tmp_path / "n") == UNSURE
    post.command(tmp_path / "n")
    (issue,) = forge.issues
    assert issue.state == "open"
    assert "the state of b could not be read" in issue.body
    assert "the state of a " not in issue.body
    monkeypatch.setattr(steps, "pulumi", lambda *_, **__: steps.Done(YES))
    assert nightly.command(tmp_path / "n") == YES
    post.command(tmp_path / "n")
    assert issue.state == "closed"


@pytest.mark.parametrize("forge", ["github"], indirect=True)  # GitLab's merge trains run the request's own pipeline
def test_a_merge_queue_is_reviewed_from_what_it_stands_on(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    git(project, "checkout", "-q", "-b", "gh-readonly-queue/main/pr-7")
    (project / "stacks/Pulumi.b.yaml").write_text("config: {}\n")
    base = commit(project, "before it in the queue")
    (project / "job/train.py").write_text("2\n")
    head = commit(project, "the request")
    event = {"merge_group": {"head_sha": head, "base_sha": base, "base_ref": "refs/heads/main"}}
    Path(os.environ["GITHUB_EVENT_PATH"]).write_text(json.dumps(event))
    job = forge_command.github_job()
    assert (job.change, job.head, job.base, job.target, job.foreign) == (None, head, base, "main", False)
    seen: list[tuple[str, ...]] = []

    def ran(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        seen.append(words)
        Path(next(word for word in words if word.endswith(".json"))).write_text(json.dumps({"digest": DIGEST}))
        return steps.Done(YES)

    monkeypatch.setattr(steps, "sweepctl", ran)
    monkeypatch.setattr(steps, "pulumi", lambda *_, **__: steps.Done(YES, '[{"name": "a"}]'))
    assert review(tmp_path / "r") == YES
    assert [words[2] for words in seen] == ["a"], "what is before it in the queue is reviewed there"
    forge.commits.add(head)
    post.command(tmp_path / "r")
    assert (forge.comments, forge.newest(head, "sweepctl review: a") is not None) == ([], True)


def test_the_page_of_a_review_is_left_for_the_job_to_keep(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    as_job(forge, monkeypatch, tmp_path, change=7)
    git(project, "checkout", "-q", "-b", "change")
    (project / "job/train.py").write_text("2\n")
    commit(project, "change")

    def ran(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        Path(next(word for word in words if word.endswith(".html"))).write_text("<html></html>")
        return steps.Done(NO)

    monkeypatch.setattr(steps, "sweepctl", ran)
    monkeypatch.setattr(steps, "pulumi", lambda *_, **__: steps.Done(YES, '[{"name": "a"}]'))
    assert review(tmp_path / "r") == NO
    assert [one.page for one in Result.read(tmp_path / "r").stacks] == ["a.html"]
    assert (tmp_path / "r/a.html").is_file()
    assert MERGE not in forge.commits
