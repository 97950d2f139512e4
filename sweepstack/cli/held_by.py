"""Which backend the engine works with here; and whether another backend, project or account has the sweep."""

from __future__ import annotations

import os
from pathlib import Path

from sweepstack.config.project import project_name
from sweepstack.core.paths import data_folder
from sweepstack.evidence.backends import engine_locks, file_folder, named, same
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.engine.state import backend_url


def backend_of(root: Path) -> str:
    """The name of that backend. Raises SweepstackError."""
    return named(backend_url(root))


def lock_notes(stack: str, project: str = "sweepstack") -> list[str]:
    """That a command which is dead still locks the state on this computer, and what takes the lock away. Nothing
    is asked for it: a backend that only `pulumi login` or Pulumi.yaml names is left to `sweepctl doctor`."""
    url = os.environ.get("PULUMI_BACKEND_URL", "")
    folder = file_folder(url) if url else data_folder() / "state"
    name = stack.rsplit("/", 1)[-1]
    if folder is None or not engine_locks(folder, name, project):
        return []
    from sweepstack.cli.commands.doctor.engine import lock  # the doctor imports much, and hardly ever is there a lock

    found = lock(folder, name, project)
    return [f"the engine's lock is {found.found}. Next: {found.fix}"] if found.verdict == "fail" else []


def adopt_command(stack: str) -> str:
    """What a person types first where another backend holds the sweep, and that backend is lost."""
    return f'sweepctl adopt --stack {stack} --reason "…"    (another backend holds it; where that is lost)'


def renamed_from(store: EvidenceStore | None, root: Path) -> str:
    """The project that the evidence is of, where the project file here has another name; else ""."""
    try:
        return store.marker.project if store is not None and store.marker.project != project_name(root) else ""
    except SweepstackError:
        return ""


def held_by_another(store: EvidenceStore | None, root: Path) -> bool:
    """Whether an `up` here would be refused, as another backend holds the sweep. No where that is not known."""
    try:
        lease = store.lease() if store is not None else None
        return lease is not None and not same(lease.backend, backend_of(root))
    except SweepstackError:
        return False
