"""Which forge this job runs on."""

from __future__ import annotations

import os
from collections.abc import Callable

from sweepstack.cli.commands.ci import github_api, gitlab_api
from sweepstack.cli.commands.ci.forge import Forge, Job
from sweepstack.cli.output import Unsure


def here() -> tuple[Job, Callable[[], Forge]]:
    """The job that runs, and what makes its forge's client (which needs the token). Raises Unsure outside of a job."""
    if os.environ.get("GITHUB_ACTIONS"):
        return github_api.job(), github_api.GitHub
    if os.environ.get("GITLAB_CI"):
        return gitlab_api.job(), gitlab_api.GitLab
    raise Unsure("this is no job of GitHub Actions or GitLab CI: `sweepctl review` and `pulumi` are for people")
