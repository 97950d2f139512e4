"""Which backend's state a sweep belongs to: what a lease names, and taking one over."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import AwareDatetime, Field

from sweepstack.core import this_host
from sweepstack.core.paths import engine_home
from sweepstack.core.records import Lease, Record
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceDamaged, EvidenceError, SweepstackError

TAKEOVERS = "takeovers.json"


class Takeover(Record):
    """A person's decision that another backend's state holds the sweep now. `answered`: what the old one said."""

    held_by: str
    taken_to: str
    by: str
    at: AwareDatetime
    reason: str = Field(min_length=1)
    answered: str = ""


class Takeovers(Record):
    """All of them, oldest first."""

    takeovers: tuple[Takeover, ...] = ()


def backend_name() -> str:
    """The backend's URL without credentials; a local one with the host's name. "unknown" when nothing names one."""
    return name_of_backend(os.environ.get("PULUMI_BACKEND_URL") or _logged_in())


def name_of_backend(url: str) -> str:
    """The same of any backend's URL."""
    if not url:
        return "unknown"
    parts = urlsplit(url)
    if parts.scheme == "file":
        return f"file://{socket.gethostname()}{os.path.realpath(os.path.expanduser(parts.netloc + parts.path))}"
    return urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))


def is_local(backend: str) -> bool:
    """Whether the state lives on one machine's disk."""
    return backend.startswith("file://")


def folder_here(backend: str) -> Path | None:
    """The folder of a local backend that is on this computer, under any of its names; None for any other."""
    host, _, path = backend.removeprefix("file://").partition("/")
    return Path("/" + path) if is_local(backend) and host in this_host.names() else None


def file_folder(url: str) -> Path | None:
    """The folder of a file backend, by the URL that the engine knows it by; None for any other."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    return Path(os.path.expanduser(unquote(parts.netloc + parts.path)))


def engine_locks(folder: Path, stack: str, project: str) -> list[Path]:
    """The engine's lock files on a stack of the file backend in `folder`, sorted; empty while it is free."""
    return sorted((folder / ".pulumi" / "locks" / "organization" / project / stack).glob("*.json"))


def same(one: str, other: str) -> bool:
    """Whether two names are of one backend: also where this computer was renamed between them."""
    return one == other or (folder_here(one) is not None and folder_here(one) == folder_here(other))


def held_elsewhere(store: EvidenceStore, backend: str = "") -> Lease | None:
    """The lease, where another backend than this one holds the sweep. Raises EvidenceError."""
    held = store.lease()
    return held if held is not None and not same(held.backend, backend or backend_name()) else None


def elsewhere_words(held: Lease, stack: str, backend: str = "") -> str:
    """Why nothing is done here, and the ways out."""
    return (
        f"this sweep's evidence is held by the state in {held.backend} (since {held.taken_at:%Y-%m-%d %H:%M}); "
        f"this state is in {backend or backend_name()}. Use that backend (PULUMI_BACKEND_URL), or another pull_to for "
        f'a new sweep. Next, where that backend is lost: sweepctl adopt --stack {stack} --reason "…"'
    )


def take_lease(store: EvidenceStore) -> None:
    """Writes that this backend holds the identity. Raises when another one does: two states would rent twice."""
    backend = backend_name()
    while True:
        held = held_elsewhere(store, backend)
        if held is not None:
            raise SweepstackError(elsewhere_words(held, store.marker.stack, backend))
        try:
            store.write_lease(Lease(backend=backend, host=socket.gethostname(), taken_at=datetime.now(UTC)))
            return
        except EvidenceChanged:  # by another box of this very `up`, most likely; then the lease is ours
            now = store.lease()
            if now is not None and now.backend == backend:
                return


def take_over(store: EvidenceStore, taken: Takeover) -> None:
    """Puts the takeover on record, then the lease into the other name. Raises EvidenceError."""

    def later(before: Takeovers | None) -> Takeovers:
        return Takeovers(takeovers=(*(before.takeovers if before else ()), taken))

    try:
        store.update_record(TAKEOVERS, Takeovers, later)
    except EvidenceDamaged:
        store.write_record(TAKEOVERS, later(None))
    lease = Lease(backend=taken.taken_to, host=socket.gethostname(), taken_at=taken.at)
    try:
        store.lease()  # what stands there is what is written over
    except EvidenceDamaged:
        store.release_lease()
    store.write_lease(lease)


def taken_over(store: EvidenceStore, held_by: str, ours: str) -> bool:
    """Whether a person decided that what the backend `held_by` held is that of `ours`. No if that is unreadable."""
    try:
        known = store.record(TAKEOVERS, Takeovers)
    except EvidenceError:
        return False
    return known is not None and any(same(one.held_by, held_by) and same(one.taken_to, ours) for one in known.takeovers)


def _logged_in() -> str:
    try:
        return str(json.loads((engine_home() / "credentials.json").read_text()).get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""
