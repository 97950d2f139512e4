"""What a project has for its sweeps: these files are no code of a job.

A job may lie in the project's folder. A code digest stands for what cells ran: were these files part of it, an
approval, a new cell or a pull would be new code (docs/adr/022-the-projects-own-files-are-no-code.md).
"""

from __future__ import annotations

import os
from pathlib import Path

from sweepstack.config.project import POLICY, SIGNERS, program_path, stack_path
from sweepstack.core.bucket_address import SCHEME


def own_files(project_root: Path) -> tuple[str, ...]:
    """How the absolute paths of these files begin: Pulumi.yaml, stack files, policy and signers, the program, and the
    folders that `pull_to` of the stack files names. Empty without a Pulumi.yaml.

    Reads Pulumi.yaml and the stack files. Raises ConfigError if Pulumi.yaml can't be read; a stack file that can't be
    read names no folder.
    """
    from sweepstack.config.edit.stack_file import StackFile  # with pydantic's shapes of it

    root = project_root.resolve()
    if not (root / "Pulumi.yaml").is_file():
        return ()
    files = [
        root / "Pulumi.yaml",
        program_path(root),
        root / POLICY,
        root / SIGNERS,
        stack_path(root, "x").parent / "Pulumi.",
        stack_path(root, "x").parent / "Program.",
    ]
    pulled = [StackFile.locate(root, stack).pull_to() for stack in StackFile.stacks(root)]
    folders = [(root / Path(text).expanduser()).resolve() for text in pulled if text and not text.startswith(SCHEME)]
    return (*map(os.path.normpath, files), *(f"{folder}/" for folder in folders))
