"""What makes the engine refuse every command for a stack, and the commands that mend it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from sweepstack.config.project import project_name
from sweepstack.core.paths import shipped
from sweepstack.evidence.stack_copy import copy_back
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import engine_locks, file_folder
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, SweepstackError
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.state import away


@dataclass(frozen=True)
class Mend:
    """Why the engine refuses, and the command to type before any other."""

    why: str
    command: str


def engine_mend(sources: Sources) -> Mend | None:
    """What to type before any command of the engine; None where it runs as it is. Reads only, and asks no platform."""
    target, file = sources.target, sources.target.file
    if target.evidence is None and file.path.is_dir():
        aside = away(file.path, "folder")
        back = copy_back(sources.store, file.path) if sources.store is not None else ""
        what = "(the copy of the last pulumi up takes its place)" if back else "(no copy of the stack file is here)"
        why = f"{file.shown} is a folder, and the engine runs no command for {target.stack} while it is there"
        return Mend(why, " && ".join(filter(None, [aside, back])) + f"    {what}")
    if missing := sources.state.missing:
        why = f"the state refers to {', '.join(missing)}, which is not in it: the engine runs no command with it"
        return Mend(why, f"pulumi state repair --stack {target.stack} --yes    (takes such references out)")
    return None


class EngineLock(NamedTuple):
    """The engine's lock on a stack, in words. `ended`: whether the process that took it has; None if that is not known,
    and `reads`, whether the lock says which one it is."""

    words: str
    ended: bool | None
    reads: bool = True


def engine_lock(folder: Path, stack: str, project: str) -> EngineLock | None:
    """The lock on this stack in a folder of states; None where it is free."""
    found = engine_locks(folder, stack, project)
    if not found:
        return None
    import runpy  # a lock is rare

    try:
        # The engine's launcher removes the lock of a dead process before each command; this uses the same test.
        host, pid, since, ended = runpy.run_path(str(shipped("scripts/launcher")))["holder"](found[0])
    except (OSError, ValueError):
        return EngineLock(f"{found[0]} can't be read", None, reads=False)
    now = {None: "", False: ", which runs", True: ", which has ended"}[ended]
    return EngineLock(f"held by process {pid} on {host} since {since[:19]}{now}", ended)


def lock_left(target: Target) -> Mend | None:
    """The engine's lock on the state, and what takes it away; None where it is free, or held by a process that runs
    here. Whether one of another computer was left, no one can tell from here.

    Looks only at PULUMI_BACKEND_URL, or else at the default folder: a backend that only `pulumi login` or Pulumi.yaml
    names is left to `sweepctl doctor`.
    """
    url = os.environ.get("PULUMI_BACKEND_URL", "")
    folder = file_folder(url) if url else data_folder() / "state"
    name = target.stack.rsplit("/", 1)[-1]
    try:
        project = project_name(target.root)
    except SweepstackError:
        return None
    if folder is None:
        return None
    found = engine_lock(folder, name, project)
    if found is None or found.ended is False:
        return None
    why = f"the engine's lock is {found.words}: each command of the engine is refused while it is there"
    return Mend(why, f"pulumi cancel --stack {target.stack}    (only where that process has ended: it would be cut)")


def require_engine(sources: Sources) -> None:
    """Raises No, with the command that mends it, where the engine would refuse every command."""
    if mend := engine_mend(sources):
        raise No(f"{mend.why}. Nothing was changed", [mend.command])


def put_back(target: Target, store: EvidenceStore) -> str:
    """The command that restores the stack file of the last `pulumi up`; "" if no folder has a copy, or if a folder has
    the file's name. A file that a person may have edited, with a mistake, is moved aside and not overwritten."""
    path, finish = target.file.path, f"sweepctl finish --stack {target.stack}"
    back = "" if path.is_dir() else copy_back(store, path)
    if not back:
        return ""
    if _is_torn(path):
        return f"{back} && {finish}    (the last that was up)"
    remark = "(the last that was up; or mend the file, and type only the last command)"
    return f"{away(path, 'unreadable')} && {back} && sweepctl status --stack {target.stack}    {remark}"


def _is_torn(path: Path) -> bool:
    """Whether no person wrote it so: it is gone, empty, or holds zero bytes, as a disk or a crash leaves a file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return not data.strip() or b"\0" in data
