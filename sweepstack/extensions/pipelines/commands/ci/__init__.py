"""Pipelines of GitHub and GitLab for the stacks of a repository, and what their jobs run."""

from __future__ import annotations

VERBS = ("github", "gitlab", "review", "reviewed", "up", "verify", "destroy", "nightly", "post")
"""Each is the file of its name here."""


def command() -> None:
    """Write pipelines for a repository of stacks (github, gitlab), and what their jobs run (the others)."""
