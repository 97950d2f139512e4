"""`sweepctl ci github`: writes workflows for GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence

from sweepstack.core.paths import docs_page
from sweepstack.extensions.pipelines import from_templates

FILES = ("review", "up", "comment", "by-hand", "nightly")
FOLDER = ".github/workflows"
REVIEWS = "sweeps-review.yml"
VALUE = "${{{{ secrets.{} }}}}"


def command(
    secret: Sequence[str] | None = None,
    setup: str | None = None,
    branch: str | None = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Write the workflows: review of each request, `up` on merge or by comment, verify, destroy, a look each night."""
    root = from_templates.repository()
    words = {"setup": from_templates.set_up(root, setup), "branch": from_templates.main_branch(root, branch)}
    files = {
        f"{FOLDER}/sweeps-{name}.yml": from_templates.filled(
            f"github-{name}.yml", secrets=secret or (), expression=VALUE, **words
        )
        for name in FILES
    }
    following = [f"{docs_page('pipelines.md')}    (which secrets and environments the repository needs)"]
    return from_templates.put(root, files, following, force=force, as_json=json)
