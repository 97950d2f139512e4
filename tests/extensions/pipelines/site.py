"""A team's repository: a bare remote, a project with one sweep on this machine, evidence in a bucket, and a forge."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweepstack.cli.commands.init import PROGRAM, PROJECT
from tests.engine import looking
from tests.engine.harness import ROOT, TRAIN
from tests.extensions.pipelines.workflows import Ran
from tests.s3.server import S3Server
from tests.simulators.forges import TOKEN, Forge, Thing
from tests.simulators.forges.github import user_id

STACK = "demo"
PASSPHRASE = "correct horse battery"
DEADLINE = 300.0


@dataclass
class Site:
    """`runner`: how the jobs are run. Each job gets a fresh clone, an empty HOME, and only its own variables; the boxes
    of `local` are this machine, so `machine` names where they lie."""

    base: Path
    forge: Forge
    server: S3Server
    runner: Callable[[Site, str, str, dict[str, Any]], Ran]
    number: int = 7
    _jobs: int = 0
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("home", "control", "data"):
            (self.base / name).mkdir()
        self.remote, self.work = self.base / "remote.git", self.base / "work"
        self.git(self.base, "init", "-q", "--bare", "-b", "main", str(self.remote))
        self.git(self.base, "clone", "-q", str(self.remote), str(self.work))
        self.git(self.work, "checkout", "-q", "-b", "main")
        (self.work / "stacks").mkdir()
        (self.work / "job").mkdir()
        shutil.copy2(TRAIN, self.work / "job")
        (self.work / "Pulumi.yaml").write_text(PROJECT.format(name="sweeps", venv=".venv", bin=".venv/bin"))
        (self.work / "__main__.py").write_text(PROGRAM)
        (self.work / ".gitignore").write_text(".venv\n__pycache__/\n.gitlab-ci-local/\n")
        (self.work / ".venv").symlink_to((ROOT / ".venv").resolve())

        self.reader = self.only_read()
        # A backend in object storage needs one write before it can be read: .pulumi/meta.yaml.
        listed = [str(ROOT / ".venv/bin/pulumi"), "stack", "ls"]
        known = {**os.environ, **self.secrets()}
        subprocess.run(listed, cwd=self.work, env=known, check=True, capture_output=True, timeout=DEADLINE)

    # what people do

    def git(self, cwd: Path, *words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.invalid", *words],
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(self.base / "home")},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, f"git {words}: {done.stderr}"
        return done.stdout.strip()

    def stack_file(self, seeds: str, approval: str = "", want: str = "running", retry: str = "{}") -> None:
        """Writes the sweep's file; `approval` is what `sweepctl approve` has added to it, `retry` what runs again."""
        text = f"""\
            config:
              sweepstack:sweep:
                job:
                  workdir: job
                  run: python train.py --seed {{seed}} --out {{out}}
                  env: {{DRILL_CONTROL: {self.base / "control"}}}
                  resources: {{cpu: 1}}
                cells:
                  grid: {{seed: [{seeds}]}}
                  retry: {retry}
                artifacts:
                  model.safetensors: {{load: safetensors, keys: [w1], finite: require}}
                candidates: [local]
                overrides: {{local: {{price_per_hour: 1.25}}}}
                boxes: {{box-0: {{want: {want}}}}}
                pull_to: s3://lab/sweeps/{self.base.name}
            """
        (self.work / f"stacks/Pulumi.{STACK}.yaml").write_text(textwrap.dedent(text) + approval)

    def push(self, branch: str, message: str) -> str:
        """Commits all on a branch and pushes it; the forge has a request for it, unless it is main. The commit."""
        if branch != "main":
            self.git(self.work, "checkout", "-q", "-B", branch)
        self.git(self.work, "add", "-A")
        self.git(self.work, "commit", "-q", "-m", message)
        self.git(self.work, "push", "-q", "--force", "origin", branch)
        head = self.git(self.work, "rev-parse", "HEAD")
        if branch == "main":
            self.forge.commits.add(head)
        else:
            self.forge.request(self.number, head)
            self.git(self.work, "push", "-q", "--force", "origin", f"{head}:refs/pull/{self.number}/head")
        return head

    def merge(self, branch: str) -> tuple[str, str]:
        """Merges the request with a commit of its own, as forges do. The commits of main before and after."""
        self.git(self.work, "checkout", "-q", "main")
        before = self.git(self.work, "rev-parse", "HEAD")
        self.git(self.work, "merge", "-q", "--no-ff", "-m", f"Merge {branch}", branch)
        self.git(self.work, "push", "-q", "origin", "main")
        after = self.git(self.work, "rev-parse", "HEAD")
        self.forge.merge(self.number, after)
        return before, after

    def sweepctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command that a person types in the working clone."""
        return subprocess.run(
            [str(self.work / ".venv/bin/sweepctl"), *words],
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.base / "home"), **self.machine(), **self.secrets()},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    # what jobs have

    def secrets(self, event: str = "") -> dict[str, str]:
        """The repository's secrets: the backend, and the buckets' key; that of a review only reads."""
        reads = event in ("pull_request", "merge_group")
        return {
            **self.server.environment(),
            **({"AWS_ACCESS_KEY_ID": self.reader[0], "AWS_SECRET_ACCESS_KEY": self.reader[1]} if reads else {}),
            "PULUMI_BACKEND_URL": f"s3://state/{self.base.name}?use_path_style=true",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

    def only_read(self) -> tuple[str, str]:
        """The keys of a user that may read both buckets, and write none."""
        access = f"reader-{secrets.token_hex(4)}"
        secret = self.server.add_user(access)
        for bucket in ("lab", "state"):
            rights = {"Effect": "Allow", "Principal": {"AWS": [access]}, "Action": ["s3:GetObject", "s3:ListBucket"]}
            rights["Resource"] = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
            policy = {"Version": "2012-10-17", "Statement": [rights]}
            self.server.sdk().put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        return access, secret

    def machine(self) -> dict[str, str]:
        """Where the boxes of `local` lie: they are this machine, and not the runner's."""
        return {"XDG_DATA_HOME": str(self.base / "data"), "NO_COLOR": "1", **self.env}

    def comment(self, text: str, who: str = "ann") -> Ran:
        """A person writes a comment on the request, and its job runs."""
        made = Thing(self.forge.next_id(), body=text, of=self.number, author=who)
        self.forge.comments.append(made)
        return self.run("issue_comment", comment=made)

    def run(self, event: str, task: str = "", **values: Any) -> Ran:
        """Runs the pipeline's job for this event: review, up, nightly, verify, destroy."""
        return self.runner(self, event, task, values)

    def clone(self, branch: str) -> Path:
        """A fresh clone for one job."""
        self._jobs += 1
        folder = self.base / f"job-{self._jobs}"
        self.git(self.base, "clone", "-q", "--branch", branch, str(self.remote), str(folder))
        return folder

    def home(self) -> str:
        """An empty HOME for one job."""
        folder = self.base / f"home-{self._jobs}"
        folder.mkdir(exist_ok=True)
        return str(folder)

    # what is there, seen without sweepstack

    def boxes(self) -> list[str]:
        """The native ids of all boxes."""
        folder = self.base / "data" / "sweepstack" / "local" / "boxes"
        return sorted(path.name for path in folder.glob("[!.]*")) if folder.is_dir() else []

    def wait_done(self, cells: int) -> None:
        """Until so many cells are sealed and nothing runs."""
        volumes = self.base / "data" / "sweepstack" / "local" / "volumes"
        deadline = time.monotonic() + DEADLINE
        while True:
            sealed = list(volumes.glob("*/content/*/cells/*/manifest.json"))
            if len(sealed) >= cells and not any(looking.processes_of(self.boxes()).values()):
                return
            assert time.monotonic() < deadline, f"{len(sealed)} of {cells} cells are sealed"
            time.sleep(0.05)

    def started(self) -> list[str]:
        """Each start of a cell that the journals of the boxes tell of."""
        folder = self.base / "data" / "sweepstack" / "local" / "boxes"
        journals = [folder / box / "data" / "sweep" / "journal.jsonl" for box in self.boxes()]
        lines = [json.loads(line) for journal in journals for line in journal.read_text().splitlines()]
        return sorted(line["cell"] for line in lines if line["event"] == "cell-started")

    def leaks(self, ran: str) -> list[str]:
        """The secrets that a job printed."""
        known = {"token": TOKEN, "passphrase": PASSPHRASE, "key of the bucket": self.server.secret}
        return [name for name, value in known.items() if value in ran]


def github_event(site: Site, event: str, values: dict[str, Any]) -> dict[str, Any]:
    """The event's document, as GitHub writes it."""
    repository = {"full_name": site.forge.repository, "default_branch": "main"}
    if event == "pull_request":
        head = {"ref": values["branch"], "sha": values["head"]}
        head["repo"] = {"full_name": values.get("repository", site.forge.repository)}
        request = {"number": site.number, "head": head, "base": {"ref": "main"}}
        return {"number": site.number, "pull_request": request, "repository": repository}
    if event == "merge_group":
        group = {"head_sha": values["head"], "base_sha": values["base"], "base_ref": "refs/heads/main"}
        return {"action": "checks_requested", "merge_group": group, "repository": repository}
    if event == "issue_comment":
        made = values["comment"]
        author = {"login": made.author, "id": user_id(made.author), "type": "User"}
        comment = {"id": made.id, "body": made.body, "user": author, "performed_via_github_app": None}
        issue = {"number": site.number, "state": "open", "pull_request": {"url": "https://forge.invalid"}}
        return {"action": "created", "issue": issue, "comment": comment, "repository": repository}
    if event == "push":
        return {"ref": "refs/heads/main", **values, "repository": repository}
    return {"ref": "refs/heads/main", "inputs": json.loads(json.dumps(values)), "repository": repository}
