"""The written files by runners that others wrote, nektos/act and gitlab-ci-local, without containers.

act is built from Go modules (tools/go.mod pins it), gitlab-ci-local comes from npm: minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import wheels
from scripts.lib.console import Console
from scripts.lib.engine_build import compile_package, fetch_modules, go_tools, oldest_go
from scripts.lib.places import Places
from tests.extensions.pipelines.site import Site, github_event
from tests.extensions.pipelines.test_lint import workflows
from tests.extensions.pipelines.test_story import FILES, begin, by_comment, reviewed_and_up, to_the_end
from tests.extensions.pipelines.workflows import KEPT, Ran, run_to_end
from tests.s3.server import S3Server
from tests.simulators.forges import TOKEN, serving

pytestmark = [
    pytest.mark.engine,
    pytest.mark.proof,  # the same files by a reader of ours stay in make test: test_story.py
    pytest.mark.timeout(2400),
]
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SECONDS = 600
ACT = "github.com/nektos/act"
GITLAB_CI_LOCAL = "gitlab-ci-local@4.70.1"
"""The last version that runs on Node 20."""
UPLOADER = """\
name: Keep files
description: In place of actions/upload-artifact
inputs:
  path:
    required: true
    description: A pattern
  name: {{description: Its name}}
  if-no-files-found: {{description: Or not}}
  overwrite: {{description: Or not}}
  retention-days: {{description: How long}}
outputs:
  artifact-url:
    description: Where it is
    value: ${{{{ steps.keep.outputs.artifact-url }}}}
runs:
  using: composite
  steps:
    - id: keep
      shell: bash
      run: |
        cp ${{{{ inputs.path }}}} {kept}/ && echo "artifact-url={url}" >> "$GITHUB_OUTPUT"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with act."""
    folder = tmp_path_factory.mktemp("tools")
    source, cancel, env, console = folder / "source", threading.Event(), dict(os.environ), Console()
    places = Places.of(ROOT, os.environ)
    shutil.copytree(HERE / "tools", source)

    def uv() -> Path:
        pins = ROOT / "scripts" / "requirements-uv.txt"
        return wheels.find_uv(env) or wheels.install_uv(places.cache, pins, env, console, cancel)

    go, go_env = go_tools(oldest_go(source), places.engine_sources, folder / "cache", env, console, cancel, uv)
    with console.step(ACT, "from Go modules") as step:
        total = fetch_modules(go, go_env, source, ACT, step, cancel)
        compile_package(go, go_env, source, ACT, folder / Path(ACT).name, "-s -w", total, step, cancel)
    return folder


def started(command: list[str], cwd: Path, env: dict[str, str], job: str) -> Ran:
    """Runs a runner to its end."""
    return Ran([job], *run_to_end(command, cwd, env, SECONDS))


def test_act_runs_the_whole_story(tools: Path, server: S3Server, tmp_path: Path) -> None:
    # No network reaches GitHub: what keeps the pages is an action of ours with the same inputs and outputs.
    uploader, kept = tmp_path / "uploader", tmp_path / "kept"
    uploader.mkdir()
    kept.mkdir()
    (uploader / "action.yml").write_text(UPLOADER.format(kept=kept, url=KEPT))
    (review,) = [one for one in workflows(tmp_path / "read") if one.stem == "sweeps-review"]
    (upload,) = re.findall(r"actions/upload-artifact@[0-9a-f]{40}", review.read_text())

    def by_act(site: Site, event: str, task: str, values: dict[str, Any]) -> Ran:
        branch = values.get("branch", "main")
        clone = site.clone(branch)
        site.git(clone, "config", "safe.directory", "*")
        inputs = values if task == "up" else {**values, "task": task}
        document = github_event(site, event, inputs if event == "workflow_dispatch" else values)
        file = clone.parent / f"{clone.name}.json"
        file.write_text(json.dumps(document))
        name = f"sweeps-{'up' if task == 'up' else FILES[event]}.yml"
        variables = {
            **site.machine(),
            "GITHUB_API_URL": site.forge.url,
            "GITHUB_GRAPHQL_URL": site.forge.graphql,
            "GITHUB_REPOSITORY": site.forge.repository,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        # act does not know `queue`, which GitHub has since May 2026, and reads nothing more of a step that ended.
        workflow = clone / ".github/workflows" / name
        text = re.sub(
            r"(run: \.venv/bin/sweepctl .*)", r"\1 || { code=$?; sleep 1; exit $code; }", workflow.read_text()
        )
        workflow.write_text(text.replace("  queue: max", "  #"))
        command = [str(tools / "act"), event, "-W", f".github/workflows/{name}", "-e", str(file)]
        command += ["--local-repository", f"{upload}={uploader}"]
        command += ["-P", "ubuntu-24.04=-self-hosted", "--env-file", "/dev/null", "--no-recurse", "--no-cache-server"]
        for key, value in variables.items():
            command += ["--env", f"{key}={value}"]
        secrets = clone.parent / f"{clone.name}.secrets"
        lines = [f"{key}={json.dumps(value)}" for key, value in {**site.secrets(event), "GITHUB_TOKEN": TOKEN}.items()]
        secrets.write_text("\n".join(lines) + "\n")
        ran = started([*command, "--secret-file", str(secrets)], clone, {"HOME": site.home()}, name)
        ran.kept = sorted(kept.iterdir())
        return ran

    with serving("github") as forge:
        forge.rights.add("actions")  # act knows no job's permissions; test_story.py holds each job to its own
        site = Site(tmp_path, forge, server, by_act)
        begin(site, "github")
        reviewed_and_up(site)
        by_comment(site)
        to_the_end(site)


def test_gitlab_ci_local_runs_the_whole_story(server: S3Server, tmp_path: Path) -> None:
    npm = tmp_path / "npm"
    npm.mkdir()
    installing = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
        str(npm),
        GITLAB_CI_LOCAL,
    ]
    ran = started(installing, npm, dict(os.environ), "npm")  # the user's own settings of npm: proxies, certificates
    assert ran.code == 0, str(ran)
    sources = {"pull_request": "merge_request_event", "workflow_dispatch": "web"}
    jobs = {"pull_request": "sweeps-review", "push": "sweeps-up", "schedule": "sweeps-nightly"}

    def by_gitlab(site: Site, event: str, task: str, values: dict[str, Any]) -> Ran:
        branch = values.get("branch", "main")
        clone = site.clone(branch)
        site.git(clone, "remote", "set-url", "origin", str(site.remote))
        variables = {
            **site.machine(),
            **site.secrets(event),
            "GITLAB_CI": "true",
            "GITLAB_TOKEN": TOKEN,
            "CI_API_V4_URL": site.forge.url,
            "CI_PROJECT_ID": "1217",
            "CI_DEFAULT_BRANCH": "main",
            "CI_JOB_URL": "https://forge.invalid/jobs/1",
            "CI_PIPELINE_SOURCE": sources.get(event, event),
            "CI_COMMIT_BEFORE_SHA": values.get("before", "0" * 40),
            **{key.upper(): str(value) for key, value in values.items() if key in ("stack", "digest")},
        }
        if event == "pull_request":
            variables |= {
                "CI_MERGE_REQUEST_IID": str(site.number),
                "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
                "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1217",
            }
        job = jobs.get(event) or f"sweeps-{task}"
        command = [str(npm / "node_modules/.bin/gitlab-ci-local"), job, "--force-shell-executor"]
        for key, value in variables.items():
            command += ["--variable", f"{key}={value}"]
        ran = started(command, clone, {"HOME": site.home()}, job)
        ran.kept = sorted((clone / ".gitlab-ci-local/artifacts").glob("*/sweeps-review/*.html"))
        return ran

    with serving("gitlab") as forge:
        site = Site(tmp_path, forge, server, by_gitlab)
        begin(site, "gitlab")
        reviewed_and_up(site)
        to_the_end(site)
