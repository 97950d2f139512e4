"""The pipelines as files: templates beside this module, filled in for one repository."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sweepstack.cli.output import YES, Out
from sweepstack.core.paths import docs_page, installed, shipped
from sweepstack.extensions.pipelines.changes import git
from sweepstack.extensions.pipelines.oidc import ROLE
from sweepstack.extensions.pipelines.steps import BACKEND, PRIVATE_KEY
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import No, SweepstackError
from sweepstack.operations.sweep.target import project_root

TEMPLATES = Path(__file__).with_name("templates")
SECRETS = (
    BACKEND,
    "PULUMI_CONFIG_PASSPHRASE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    ROLE,
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    PRIVATE_KEY,
)
"""What every repository may set: backend and evidence, and the SSH key for boxes. One that is not set is left out."""
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_PLACE = re.compile(r"^( *)@SECRETS@\n", re.MULTILINE)


def repository() -> Path:
    """The repository's root, which has to be the project's. Raises No where it is another folder."""
    root = project_root()
    if Path(git(root, "rev-parse", "--show-toplevel")).resolve() != root:
        raise No("Pulumi.yaml lies below the repository's root, and the jobs work at the root: move the project there")
    return root


def set_up(root: Path, given: str | None) -> str:
    """The command that sets a fresh clone up: this repository's own, or pip in a project that `sweepctl init` made.

    Raises No: several lines, or a project whose requirements.txt does not name sweepstack.
    """
    if given is not None:
        if not given.strip() or "\n" in given:
            raise No("--setup takes one command on one line; write a script for more")
        return given.strip()
    if not installed():
        return "python3 scripts/setup --quiet"
    needs = root / "requirements.txt"
    if not needs.is_file() or "sweepstack" not in needs.read_text(encoding="utf-8"):
        raise No(
            "requirements.txt is not there, or does not name sweepstack: a fresh clone could not install it",
            ["the same command with --setup 'COMMAND'    (what else makes .venv with sweepctl)"],
        )
    package = ".venv/bin/pip install --quiet --requirement requirements.txt"
    return f"python3 -m venv .venv && {package} && {engine_command('.venv')}"


def engine_command(venv: str) -> str:
    """The command that puts the engine of this version's choice into an environment, checked by its release's list of
    digests: what an image has is another version each month, or none."""
    version = shipped(".pulumi-version").read_text(encoding="utf-8").strip()
    return (
        f"v={version} && f=pulumi-v$v-linux-$(uname -m | sed 's/x86_64/x64/;s/aarch64/arm64/').tar.gz "
        f"&& u=https://github.com/pulumi/pulumi/releases/download/v$v && curl -fsSL -o {venv}/$f $u/$f "
        f'&& curl -fsSL $u/pulumi-$v-checksums.txt | grep "  $f$" | (cd {venv} && sha256sum --check --quiet) '
        f"&& tar -xzf {venv}/$f -C {venv} && ln -sf ../pulumi/pulumi {venv}/bin/pulumi"
    )


def main_branch(root: Path, given: str | None) -> str:
    """The branch that is brought up: the given one, else the remote's, else the one that is checked out.

    Raises No for a name that a pipeline can't hold.
    """
    name = given or ""
    if given is None:
        with suppress(SweepstackError):  # no branch is checked out
            name = git(root, "symbolic-ref", "--short", "HEAD")  # it answers before the first commit, too
        heads = git(root, "for-each-ref", "--format=%(symref:short)", "refs/remotes/origin/HEAD")
        name = heads.removeprefix("origin/") or name
    if not _BRANCH.fullmatch(name):
        raise No(f"{name!r} is no branch that a pipeline can name: --branch NAME")
    return name


def filled(template: str, *, setup: str, branch: str, secrets: Sequence[str], expression: str) -> str:
    """A template's text. `expression`: how the forge writes a secret's value, with `{}` for its name; "" where its jobs
    have all secrets as variables already.

    Raises No for a secret whose name is none.
    """
    for name in secrets:
        if not _NAME.fullmatch(name) or name.startswith(("GITHUB_", "GITLAB_", "CI_")):
            raise No(f"{name!r} can't be a secret of a job: capitals, digits and _, and not of the forge itself")
    names = dict.fromkeys((*SECRETS, *secrets))

    def lines(found: re.Match[str]) -> str:
        return "".join(f"{found[1]}{name}: {expression.format(name)}\n" for name in names)

    text = _PLACE.sub(lines, (TEMPLATES / template).read_text(encoding="utf-8"))
    quoted = json.dumps(setup, ensure_ascii=False)[1:-1]  # it stands between double quotes, whose escapes are JSON's
    text = text.replace("docs/pipelines.md", docs_page("pipelines.md"))
    return text.replace("@BRANCH@", branch).replace("@SETUP@", quoted)


def put(root: Path, files: dict[str, str], following: Sequence[str], *, force: bool, as_json: bool) -> int:
    """Writes the files and says which it wrote. Raises No as `write`."""
    changed, out = write(root, files, force=force), Out(as_json=as_json)
    out.document({"files": list(files), "written": changed, "next": list(following)})
    for name in files:
        out.line(f"{'wrote' if name in changed else 'is current:'} {name}")
    out.next(following)
    return YES


def write(root: Path, files: dict[str, str], *, force: bool) -> list[str]:
    """Writes the files, relative to the repository's root; returns those that changed. Idempotent.

    Raises No where a file is there that differs, unless `force`: nothing was written then.
    """
    for name, text in files.items():
        if (root / name).exists() and (root / name).read_text(encoding="utf-8") != text and not force:
            raise No(
                f"{name} is there and differs, so nothing was written",
                ["git diff    (after --force, which writes over it)"],
            )
    changed = [n for n, t in files.items() if not (root / n).exists() or (root / n).read_text(encoding="utf-8") != t]
    for name in changed:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(root / name, files[name].encode())
    return changed
