"""`sweepctl ci gitlab`: writes a pipeline for GitLab CI."""

from __future__ import annotations

from collections.abc import Sequence

from sweepstack.core.paths import docs_page
from sweepstack.extensions.pipelines import from_templates
from sweepstack.onbox.common.errors import No

FILE = ".gitlab/sweeps.yml"
MAIN = ".gitlab-ci.yml"
INCLUDE = f"include:\n  - local: {FILE}\n"


def command(
    secret: Sequence[str] | None = None,
    setup: str | None = None,
    branch: str | None = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Write the pipeline: review of each request, `up` on merge, verify and destroy by hand, a look every night."""
    if secret:
        names = ", ".join(secret)
        raise No(
            "--secret is for GitHub, whose jobs get no secret that they do not name. GitLab gives each job all "
            f"variables of the project: {names} is there once it is set under Settings, CI/CD, Variables. "
            "Nothing was written",
            [
                "sweepctl ci gitlab    (without --secret)",
                f"{docs_page('pipelines.md')}    (which variables the project needs)",
            ],
        )
    root = from_templates.repository()
    words = {"setup": from_templates.set_up(root, setup), "branch": from_templates.main_branch(root, branch)}
    files = {FILE: from_templates.filled("gitlab.yml", secrets=(), expression="", **words)}
    following = [f"{docs_page('pipelines.md')}    (which variables the project needs)"]
    if not (root / MAIN).exists():
        files[MAIN] = INCLUDE
    elif FILE not in (root / MAIN).read_text(encoding="utf-8"):
        following.insert(0, f"add to {MAIN}:  include: [{{local: {FILE}}}]")
    return from_templates.put(root, files, following, force=force, as_json=json)
