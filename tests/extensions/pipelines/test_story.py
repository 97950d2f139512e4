"""One sweep from its first request to its end, by the written workflows of GitHub, read by our reader.

Real engine, real bucket, a bare remote; the forge is a simulator. Each job has a fresh clone and an empty HOME. The
same by act and gitlab-ci-local: test_by_others.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.pipelines.site import STACK, Site, github_event
from tests.extensions.pipelines.workflows import Ran, github
from tests.s3.server import S3Server
from tests.simulators.forges import TOKEN, Thing, serving

pytestmark = pytest.mark.engine
FILES = {
    "pull_request": "review",
    "push": "up",
    "issue_comment": "comment",
    "schedule": "nightly",
    "workflow_dispatch": "by-hand",
}


def by_reader(site: Site, event: str, task: str, values: dict[str, Any]) -> Ran:
    """The workflow of this event, read by tests/extensions/pipelines/workflows.py."""
    document = github_event(site, event, values)
    branch = values.get("branch", "main")
    clone = site.clone(branch)
    head = site.git(clone, "rev-parse", "HEAD")
    machine = {
        **site.machine(),
        "HOME": site.home(),
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": site.forge.url,
        "GITHUB_GRAPHQL_URL": site.forge.graphql,
        "GITHUB_SERVER_URL": "https://forge.invalid",
        "GITHUB_REPOSITORY": site.forge.repository,
        "GITHUB_SHA": head,
        "GITHUB_REF_NAME": branch if event != "pull_request" else f"{site.number}/merge",
        "GITHUB_RUN_ID": "1",
    }
    request, comment = document.get("pull_request", {}), document.get("comment", {})
    known = {
        "github.token": TOKEN,
        "github.repository": site.forge.repository,
        "github.event_name": event,
        "github.ref": f"refs/heads/{branch}",
        "github.event.pull_request.head.repo.full_name": request.get("head", {}).get("repo", {}).get("full_name", ""),
        "github.run_id": "1",
        "github.event.issue.number": str(site.number),
        "github.event.issue.pull_request": "{}" if comment else "",
        "github.event.comment.body": comment.get("body", ""),
        "github.event.comment.user.type": "User" if comment else "",
        **{f"inputs.{key}": str(value) for key, value in values.items()},
        "inputs.task": task,
    }
    name = f"sweeps-{'up' if task == 'up' else FILES[event]}.yml"
    return github(
        clone,
        name,
        document,
        values=known,
        secrets=site.secrets(event),
        machine=machine,
        granted=lambda rights: setattr(site.forge, "rights", rights),
    )


def test_what_was_reviewed_is_brought_up(server: S3Server, tmp_path: Path) -> None:
    with serving("github") as forge:
        site = Site(tmp_path, forge, server, by_reader)
        begin(site, "github")
        reviewed_and_up(site)


@pytest.mark.proof  # its first half stays in make test, above
def test_from_a_request_to_nothing_bills(server: S3Server, tmp_path: Path) -> None:
    with serving("github") as forge:
        site = Site(tmp_path, forge, server, by_reader)
        begin(site, "github")
        reviewed_and_up(site)
        to_the_end(site)


@pytest.mark.proof  # the steps of a comment's job stay in make test: test_comments.py
def test_a_comment_brings_up_a_request_before_its_merge(server: S3Server, tmp_path: Path) -> None:
    with serving("github") as forge:
        site = Site(tmp_path, forge, server, by_reader)
        begin(site, "github")
        reviewed_and_up(site)
        by_comment(site)


def begin(site: Site, kind: str) -> None:
    """The pipelines are written and pushed."""
    (site.work / "README.md").write_text("sweeps\n")
    wrote = site.sweepctl("ci", kind, "--setup", f"ln -s {site.work / '.venv'} .venv", "--branch", "main")
    assert wrote.returncode == 0, wrote.stderr
    site.push("main", "Pipelines")


def reviewed_and_up(site: Site) -> None:
    """Request → comment and status → the same comment, for another change → merge → up."""
    forge = site.forge
    site.stack_file("0")
    head = site.push("first", "One cell")
    ran = site.run("pull_request", branch="first", head=head)
    assert ran.code == 0, str(ran)
    (text,) = forge.texts(7)
    assert text.startswith(f"<!-- sweepctl review: {STACK} -->"), text
    assert "[The same as a page](http" in text, text
    assert [path.name for path in ran.kept] == [f"{STACK}.html"]
    assert "$1.25" in text, text
    status = forge.newest(head, f"sweepctl review: {STACK}")
    assert status is not None
    assert status.state == "success"
    assert site.boxes() == []
    kept = site.server.sdk().list_objects_v2(Bucket="state", Prefix=site.base.name)["Contents"]
    assert not [one["Key"] for one in kept if "/stacks/" in one["Key"]], "an unmerged request makes no stack"

    before, after = site.merge("first")
    ran = site.run("push", before=before, after=after)
    assert ran.code == 0, str(ran)
    assert len(site.boxes()) == 1, str(ran)
    assert any(text.startswith(f"<!-- sweepctl up: {STACK} -->") for text in forge.texts(7))
    assert not site.leaks(ran.said)


def by_comment(site: Site) -> None:
    """One more cell by request → a stranger's comment → a review made anew → up by comment → merge: nothing is left."""
    site.number, forge = 11, site.forge
    others = ["sweeps-comment.yml"]
    """What a runner of others says: the file, and it keeps no summary."""
    forge.people = {"ann": "write", "mallory": "read"}
    site.stack_file("0, 1")
    head = site.push("more", "Another cell")
    assert site.run("pull_request", branch="more", head=head).code == 0
    status = forge.newest(head, f"sweepctl review: {STACK}")
    assert status is not None
    digest = status.body.partition("; ")[2]
    for who, text in (("mallory", f"/sweep up {digest}"), ("ann", f"/sweep up {digest}\n$(touch {site.base}/pwned)")):
        ran = site.comment(text, who)
        assert (ran.jobs in (["asked"], others), ran.code) == (True, 1), str(ran)
    assert not (site.base / "pwned").exists()
    forge.runs.append(Thing(forge.next_id(), name="sweeps-review.yml", commit=head, state="completed"))
    ran = site.comment("/sweep review")
    assert (ran.jobs in (["asked"], others), ran.code, forge.runs[0].edits) == (True, 0, 1), str(ran)
    assert forge.newest(head, f"sweepctl up: {STACK}") is None

    ran = site.comment(f"/sweep up {digest}")
    assert (ran.jobs in (["asked", "up"], others), ran.code) == (True, 0), str(ran)
    if ran.jobs != others:
        assert "What it was held to" in ran.summary
        assert "1 cell more" in ran.summary, ran.summary
    up = forge.newest(head, f"sweepctl up: {STACK}")
    assert up is not None
    assert up.state == "success"
    site.wait_done(2)
    assert not site.leaks(ran.said + ran.summary)
    ran = site.run("schedule")
    look = f"pulumi preview --expect-no-changes --stack {STACK}`"
    (night,) = [one.body for one in forge.issues if one.state == "open"]
    assert f"{look} | could not tell" in night, night
    assert "seed1" in night, "the main branch lacks a cell that is up, and no `up` may leave one out"

    before, after = site.merge("more")
    ran = site.run("push", before=before, after=after)
    assert ran.code == 0, str(ran)
    assert "up already: nothing changes" in ran.said
    ran = site.run("schedule")
    assert f"{look} | fine" in forge.issues[0].body


def to_the_end(site: Site) -> None:
    """A destroy is refused → another cell and a retry by request → verify → approval by request → destroy."""
    early = site.run("workflow_dispatch", "destroy", stack=STACK)
    assert early.code != 0, str(early)
    assert len(site.boxes()) == 1, "nothing is verified, nothing is approved"
    assert "nothing was ended" in early.said
    site.number = 8
    site.wait_done(1)
    site.stack_file("0, 1", retry="{seed0: 1}")
    head = site.push("second", "Another cell, and one once more")
    ran = site.run("pull_request", branch="second", head=head)
    assert ran.code == 0, str(ran)
    (text,) = [text for text in site.forge.texts(8) if text.startswith("<!-- sweepctl review")]
    assert "runs again" in text, text
    before, after = site.merge("second")
    # Another change than the reviewed one is not brought up, and the comment says so.
    status = site.forge.newest(head, f"sweepctl review: {STACK}")
    assert status is not None
    status.body = status.body[:-8] + "00000000"
    ran = site.run("push", before=before, after=after)
    assert ran.code == 1, str(ran)
    (text,) = [text for text in site.forge.texts(8) if text.startswith("<!-- sweepctl up")]
    assert "another one now" in text
    digest = text.partition("the digest `")[2].partition("`")[0]
    ran = site.run("workflow_dispatch", "up", stack=STACK, digest=digest)
    assert ran.code == 0, str(ran)
    site.wait_done(2)
    assert site.started() == ["seed0", "seed0", "seed1"], "a retry of the stack file counts once"

    ran = site.run("workflow_dispatch", "verify", stack=STACK)
    assert ran.code == 0, str(ran)
    receipt = json.loads(site.sweepctl("verify", "--stack", STACK, "--json").stdout)["receipt"]
    approved = site.sweepctl("approve", "--stack", STACK, receipt)
    assert approved.returncode == 0, approved.stderr
    site.number = 9
    head = site.push("approve", "Approve")
    ran = site.run("pull_request", branch="approve", head=head)
    assert ran.code == 0, str(ran)
    before, after = site.merge("approve")
    ran = site.run("push", before=before, after=after)
    assert ran.code == 0, str(ran)

    ran = site.run("schedule")
    open_ones = [one for one in site.forge.issues if one.state == "open"]
    assert len(open_ones) == (ran.code != 0), str(ran)
    ran = site.run("workflow_dispatch", "destroy", stack=STACK)
    assert ran.code == 0, str(ran)
    assert site.boxes() == []
    assert "nothing bills any more" in ran.said
