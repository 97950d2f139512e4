"""`sweepctl ci github`: writes workflows for GitHub Actions."""

from __future__ import annotations

from pathlib import Path

from sweepstack.cli.commands.ci import pipelines
from sweepstack.cli.commands.ci.changes import git
from sweepstack.cli.commands.ci.pipelines import Branch, Force, Secret, SetUp
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, No, Out
from sweepstack.status.engine.call import find_project_root

FILES = ("review", "up", "by-hand", "nightly")
FOLDER = ".github/workflows"
VALUE = "${{{{ secrets.{} }}}}"


def command(
    secret: Secret = None, setup: SetUp = None, branch: Branch = None, force: Force = False, json: AsJson = False
) -> int:
    """Write the workflows: review of each request, `up` on merge, verify and destroy by hand, a look every night."""
    root = find_project_root(Path.cwd())
    if Path(git(root, "rev-parse", "--show-toplevel")).resolve() != root:
        raise No("Pulumi.yaml lies below the repository's root, and the jobs work at the root: move the project there")
    words = {"setup": pipelines.set_up(root, setup), "branch": pipelines.main_branch(root, branch)}
    files = {
        f"{FOLDER}/sweeps-{name}.yml": pipelines.filled(
            f"github-{name}.yml", secrets=secret or (), expression=VALUE, **words
        )
        for name in FILES
    }
    changed = pipelines.write(root, files, force=force)
    following = ["docs/pipelines.md    (which secrets and environments the repository needs)"]
    out = Out(as_json=json)
    out.document({"files": list(files), "written": changed, "next": following})
    for name in files:
        out.line(f"{'wrote' if name in changed else 'is current:'} {name}")
    out.next(following)
    return YES
