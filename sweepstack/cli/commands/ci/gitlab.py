"""`sweepctl ci gitlab`: writes a pipeline for GitLab CI."""

from __future__ import annotations

from pathlib import Path

from sweepstack.cli.commands.ci import pipelines
from sweepstack.cli.commands.ci.changes import git
from sweepstack.cli.commands.ci.pipelines import Branch, Force, Secret, SetUp
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, No, Out
from sweepstack.status.engine.call import find_project_root

FILE = ".gitlab/sweeps.yml"
MAIN = ".gitlab-ci.yml"
INCLUDE = f"include:\n  - local: {FILE}\n"


def command(
    secret: Secret = None, setup: SetUp = None, branch: Branch = None, force: Force = False, json: AsJson = False
) -> int:
    """Write the pipeline: review of each request, `up` on merge, verify and destroy by hand, a look every night."""
    root = find_project_root(Path.cwd())
    if Path(git(root, "rev-parse", "--show-toplevel")).resolve() != root:
        raise No("Pulumi.yaml lies below the repository's root, and the jobs work at the root: move the project there")
    words = {"setup": pipelines.set_up(root, setup), "branch": pipelines.main_branch(root, branch)}
    files = {FILE: pipelines.filled("gitlab.yml", secrets=secret or (), expression="", **words)}
    following = ["docs/pipelines.md    (which variables the project needs)"]
    if not (root / MAIN).exists():
        files[MAIN] = INCLUDE
    elif FILE not in (root / MAIN).read_text(encoding="utf-8"):
        following.insert(0, f"add to {MAIN}:  include: [{{local: {FILE}}}]")
    changed = pipelines.write(root, files, force=force)
    out = Out(as_json=json)
    out.document({"files": list(files), "written": changed, "next": following})
    for name in files:
        out.line(f"{'wrote' if name in changed else 'is current:'} {name}")
    out.next(following)
    return YES
