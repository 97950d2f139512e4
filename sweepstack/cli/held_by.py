"""Which backend the engine uses here, and whether another backend or project holds the sweep."""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from sweepstack.cli.engine_mend import Mend
from sweepstack.cli.target import Target
from sweepstack.config.project import project_name
from sweepstack.evidence.backend_lease import engine_locks, file_folder, folder_here, is_local, named, same
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.status.engine.state import StackMissing, backend_url, read_state


def backend_of(root: Path) -> str:
    """The name of the backend that the engine uses here. Raises SweepstackError."""
    return named(backend_url(root))


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
    if folder is None or not engine_locks(folder, name, project):
        return None
    from sweepstack.cli.commands.doctor.engine import lock  # imports much, and a lock is rare

    found = lock(folder, name, project)
    if found.verdict in ("ok", "warn"):
        return None
    why = f"the engine's lock is {found.found}: each command of the engine is refused while it is there"
    return Mend(why, f"pulumi cancel --stack {target.stack}    (only where that process has ended: it would be cut)")


def adopt_command(stack: str) -> str:
    """What a person types first if another backend holds the sweep and is lost."""
    return f'sweepctl adopt --stack {stack} --reason "…"    (another backend holds it; where that is lost)'


def renamed_from(store: EvidenceStore | None, root: Path) -> str:
    """The project that the evidence belongs to, if Pulumi.yaml here has another name; else ""."""
    try:
        return store.marker.project if store is not None and store.marker.project != project_name(root) else ""
    except SweepstackError:
        return ""


def held_by_another(store: EvidenceStore | None, root: Path) -> bool:
    """Whether an `up` here would be refused because another backend holds the sweep. False if that is not known."""
    try:
        lease = store.lease() if store is not None else None
        return lease is not None and not same(lease.backend, backend_of(root))
    except SweepstackError:
        return False


@dataclass(frozen=True)
class Answer:
    """What another backend says of a stack. `there`: the command that goes on there if it still holds the stack; "" if
    it holds nothing of it, or can't be asked."""

    backend: str
    words: str
    there: str = ""


def ask_backend(held: str, stack: str, root: Path) -> Answer:
    """Asks the backend `held`, by its name in a lease, for this stack. Blocks as `read_state`. Never raises.

    A folder in which the engine never was is not asked: the engine would write its own files there, and then a disk
    that is not mounted looks like a backend without the stack.
    """
    folder = folder_here(held)
    if is_local(held) and folder is None:
        return Answer(held, "is on another computer: it can't be asked from here")
    bare = Answer(held, "shows no state now, but its disk may not be mounted: mount it first")
    try:
        if folder is not None and not stat.S_ISDIR((folder / ".pulumi").stat().st_mode):
            return bare
    except FileNotFoundError:
        return bare
    except OSError as error:
        return Answer(held, f"can't be read here: {error.strerror}")
    if "://" not in held:
        return Answer(held, "can't be asked")
    url = f"file://{folder}" if folder is not None else held
    try:
        state = read_state(stack, root, backend=url)
    except StackMissing:
        return Answer(held, "answers, and has no such stack")
    except SweepstackError as error:
        return Answer(held, f"does not answer as a backend: {error}")
    if state.empty:
        return Answer(held, "answers, and holds nothing of this stack")
    there = f"PULUMI_BACKEND_URL={shlex.quote(url)} sweepctl status --stack {shlex.quote(stack)}"
    return Answer(held, f"answers and still holds {stack}", there)
