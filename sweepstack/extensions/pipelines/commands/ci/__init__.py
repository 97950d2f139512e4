"""`sweepctl ci`: pipelines of GitHub and GitLab for a repository of stacks, and their steps."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli.options import AsJson, Stack, one_of
from sweepstack.onbox.common.errors import Unsure

WRITES = ("secret", "setup", "branch", "force")
TAKES = {
    "github": WRITES,
    "gitlab": WRITES,
    "review": ("folder",),
    "reviewed": ("folder", "only", "digest"),
    "asked": ("folder",),
    "up": ("folder",),
    "verify": ("stack",),
    "destroy": ("stack",),
    "nightly": ("folder",),
    "post": ("folder", "pages"),
}
"""What there is to do, each the file of its name here → its options. A folder is needed."""
BY_HAND = {
    "review": "sweepctl review --stack NAME",
    "reviewed": "sweepctl review --stack NAME",
    "asked": "sweepctl review --stack NAME && pulumi up --stack NAME",
    "up": "pulumi up --stack NAME",
    "verify": "sweepctl pull --verify --stack NAME",
    "destroy": "sweepctl finish --stack NAME",
    "nightly": "sweepctl audit",
    "post": "sweepctl review --stack NAME",
}
"""A step of a job → what a person types instead."""


def command(
    what: Annotated[
        str,
        typer.Argument(help=f"github, gitlab: write its pipelines. A step of their jobs: {', '.join([*TAKES][2:])}."),
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]", help="A step: where the files for the next one go; post: where the steps left them."
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="GitHub: a further secret that the jobs get (a platform's key). Repeatable. GitLab's jobs have all.",
        ),
    ] = None,
    setup: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="What makes .venv with sweepctl and the engine.")
    ] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="The branch that is brought up.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there and differ.")] = False,
    pages: Annotated[
        str, typer.Option(metavar="URL", help="post: where the job keeps the pages of its reviews: comments link it.")
    ] = "",
    only: Annotated[str, typer.Option(metavar="STACK", help="reviewed: this stack alone, with --digest.")] = "",
    digest: Annotated[str, typer.Option(metavar="sha256:…", help="reviewed: the digest that a person has read.")] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Write a repository's pipelines, or run a step of their jobs."""
    one_of(what, *TAKES)
    given = {
        "secret": secret,
        "setup": setup,
        "branch": branch,
        "force": force,
        "folder": folder,
        "pages": pages,
        "only": only,
        "digest": digest,
    }
    takes = TAKES[what]
    for name, value in given.items():
        if value and name not in takes:
            raise Unsure(f"ci {what} takes no {'FOLDER' if name == 'folder' else f'--{name}'}")
    if folder is None and "folder" in takes:
        raise Unsure(f"ci {what} needs a FOLDER")
    step = importlib.import_module(f"{__name__}.{what}").command
    if what in BY_HAND:
        _need_a_job(what, step.__doc__)
    words = {name: value for name, value in given.items() if name in takes}
    if "stack" in takes:
        words["stack"] = stack
    code: int = step(**words, json=json)
    return code


def _need_a_job(what: str, does: str) -> None:
    """Raises Unsure outside of a job. `does`: the step's docstring."""
    forges = {"GITHUB_ACTIONS": "GitHub Actions"} | ({} if what == "asked" else {"GITLAB_CI": "GitLab CI"})
    if not any(map(os.environ.get, forges)):
        does = " ".join(does.split())
        raise Unsure(
            f"this is no job of {' or '.join(forges.values())}, whose pipelines run `ci {what}` to "
            f"{does[0].lower()}{does[1:].rstrip('.')}",
            [f"{BY_HAND[what]}    (by hand)", "sweepctl ci github    (writes the pipelines; or: gitlab)"],
        )
