"""Reads Pulumi.yaml: the project's name, and its folder of stack files. The engine checks the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

STACKS = "stacks"
"""Where the stack files are in a folder without a Pulumi.yaml."""


POLICY = "policy.yaml"
"""The file of the project's policy (`sweepstack.config.policy`)."""
SIGNERS = "allowed_signers"
"""The file beside it with the keys of the people that it names, as OpenSSH reads it (ssh-keygen(1))."""


def project_root(start: Path) -> Path:
    """The folder of Pulumi.yaml at or above `start`; `start` if there is none. The engine starts plugins in the
    program's folder, while its handshake names the plugin's own (seen with 3.259)."""
    return next((folder for folder in (start, *start.parents) if (folder / "Pulumi.yaml").is_file()), start)


def has_policy(root: Path) -> bool:
    """Whether the project has anything of the name of a policy: a file, or what can't be read as one."""
    return os.path.lexists(root / POLICY) or bool(misnamed_policies(root))


def misnamed_policies(root: Path) -> list[str]:
    """Names there that are meant for the policy, and that are not read: `policy.yml`, `Policy.yaml`."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return [name for name in names if name.casefold() in (POLICY, "policy.yml") and name != POLICY]


def project_name(project_root: Path) -> str:
    """The project's name, "" if it has none. Raises ConfigError if the file is missing or can't be read."""
    return str(_project(project_root).get("name") or "")


def stack_path(project_root: Path, stack: str) -> Path:
    """The path of a stack's file, whether it exists or not. `stack` may be qualified (`org/project/name`)."""
    return _folder(project_root) / f"Pulumi.{stack.rsplit('/', 1)[-1]}.yaml"


def program_path(project_root: Path) -> Path:
    """The file that the engine runs: `main` of Pulumi.yaml, a file or the folder of `__main__.py`; whether it exists or
    not. Raises ConfigError if Pulumi.yaml can't be read."""
    main = project_root / str(_project(project_root).get("main") or ".")
    return main if main.is_file() else main / "__main__.py"


def stack_name(path: Path) -> str:
    """The stack that a file of this name describes."""
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def stacks_in(folder: Path) -> list[str]:
    """The names of all stacks that have a file in this folder, sorted."""
    return sorted(map(stack_name, folder.glob("Pulumi.*.yaml")))


def stacks_of(project_root: Path) -> list[str]:
    """The names of all stacks of the project that have a file, sorted."""
    return stacks_in(_folder(project_root))


def _folder(project_root: Path) -> Path:
    """`stackConfigDir` of Pulumi.yaml, else the project's own folder."""
    settings = _project(project_root) if (project_root / "Pulumi.yaml").exists() else {"stackConfigDir": STACKS}
    return project_root / str(settings.get("stackConfigDir") or ".")


def _project(project_root: Path) -> dict[str, Any]:
    from sweepstack.config.file import read_document  # with the YAML reader, an eighth of what the plugin's start takes

    path = project_root / "Pulumi.yaml"
    return read_document(path, str(path)).data
