"""Where the package's files lie. Imports nothing of ours but the version.

Shell completion asks for it, so it has to be quick.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Mapping
from pathlib import Path

from sweepstack.core.version import VERSION

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `sweepstack`."""
DOCS_URL = f"https://github.com/sweepstack/pulumi-sweepstack/blob/v{VERSION}/docs"
"""Where the docs of this version are published: in the repository that pyproject.toml names, at the release's tag."""


def installed() -> bool:
    """Whether this is an installed wheel, which has the profiles in the package; a checkout has them at its root."""
    return (PACKAGE / "profiles" / "local.md").is_file()


def shipped(name: str) -> Path:
    """A file or folder of the checkout's root that an installed wheel has inside the package (see pyproject.toml)."""
    return (PACKAGE if installed() else PACKAGE.parent) / name


def profiles_folder() -> Path:
    """The folder of the platforms' profiles, `<platform>.md`."""
    return shipped("profiles")


def docs_page(name: str) -> str:
    """Where a person reads a page of the docs (`renting.md#spot-boxes`): its file in a checkout; an installed wheel has
    no docs, so there its address."""
    return f"{DOCS_URL}/{name}" if installed() else f"docs/{name}"


def engine_fix() -> str:
    """What a person does where there is no engine, or one that is too old or broken."""
    return "install the Pulumi CLI: https://www.pulumi.com/docs/iac/download-install/" if installed() else "make up"


def package_fix() -> str:
    """What a person does where a part of sweepstack itself is missing or broken."""
    return "pip install --force-reinstall sweepstack" if installed() else "make setup"


def project_fix() -> str:
    """What a person does where no project is: a checkout is one, and makes none elsewhere."""
    own = f"cd {shlex.quote(str(PACKAGE.parent))}    (the project of this sweepctl)"
    return "sweepctl init    (makes one here)" if installed() else own


def update_fix() -> str:
    """What a person does where a newer sweepstack is needed."""
    return "python -m pip install --upgrade sweepstack" if installed() else "git pull && make setup"


def engine_home(env: Mapping[str, str] = os.environ) -> Path:
    """Where the engine keeps logins and plugins: the home of the user's account, whatever $HOME says, as in some
    containers."""
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        home = Path.home()
    return Path(env.get("PULUMI_HOME") or home / ".pulumi")
