"""The local platform's folder of boxes and volumes, and the registry that says whose folder it is.

    <root>/registry.json    {schema, id, also_known_as, marked…}: made once; the host's name and the id are the account
    <root>/registry.lock    flock: held while anything is made or marked
    <root>/boxes/<id>/      a box; appears and disappears by rename
    <root>/boxes/.registry  the mark: the registry's id. Boxes were made in this folder; it is no empty mount point
    <root>/volumes/<id>/    a volume: volume.json, content/
    <root>/volumes/.registry  the same mark, for the volumes
    <root>/staging/ trash/  folders on their way in or out; the process that holds the lock may empty them

`boxes` and `volumes` are made before `registry.json`. So if the registry is there, and `boxes` can be read and has the
registry's id as its mark, a box that is not in it does not exist. In every other case that is not known. The same holds
for `volumes`. A box that is removed stays listed until the end, and nothing outside of its folder is touched.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from sweepstack.onbox.agent.channel import host_identity
from sweepstack.onbox.common.canonical import fsync_directory, write_atomically, write_json_atomically
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ONLY_IF, FolderLost, NotYetGone, PlatformError, Unreachable, WrongAccount
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.mount_points import clear_folder, mounted_below, refuse_mounted
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.onbox.host.platform import Wait

ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
MARK = ".registry"
CLAIM = "python -m sweepstack.platforms.local --also"

BUCKET = "fuse.rclone"
"""The file system type of a bucket that the runner mounts."""
UNMOUNT_SECONDS = 30.0
RENTED = "ended"
"""Folder below the platform's root: one file for each box that was made on a rented machine, which goes on billing when
the box is gone."""


def default_root() -> Path:
    """`$XDG_DATA_HOME/sweepstack/local`, by default below `~/.local/share`."""
    return data_folder() / "local"


def random_id() -> str:
    """Ten random base-32 letters: 50 bits."""
    import secrets

    return "".join(secrets.choice(ALPHABET) for _ in range(10))


@dataclass(frozen=True)
class Registry:
    """The registry: whose folder this is. `also_known_as`: other accounts that a person assigned to it. `marked`,
    `volumes_marked`: whether the folder of the boxes, and that of the volumes, has the mark; False in a registry that
    is older than the mark. `machine`: whose it is; "" for this host's."""

    id: str
    also_known_as: tuple[str, ...] = ()
    marked: bool = False
    volumes_marked: bool = False
    machine: str = ""

    @property
    def account(self) -> str:
        """`<host>/<registry id>`: the host is part of it, since another host can't see this one's processes."""
        return f"{self.machine or host_identity()}/{self.id}"


class LocalStore:
    """The folder; see the module. Methods raise Unreachable when the state can't be known, WrongAccount for another
    account."""

    def __init__(self, root: Path, *, remote: bool = False, addressed: bool = False, machine: str = "") -> None:
        """`remote`: the person who reads the messages is at another computer, and can't run our commands here, or has
        none that is for this folder. `addressed`: this host was asked because its address is on record with the box.
        `machine`: the name that stands for this host in accounts, if several hosts see the same boxes."""
        self.root = root
        self.remote, self.addressed = remote or addressed, addressed
        self.machine = machine
        self.boxes = root / "boxes"
        self.volumes = root / "volumes"
        self.staging = root / "staging"
        self.trash = root / "trash"
        self.registry_file = root / "registry.json"

    @property
    def host(self) -> str:
        """This host's name in accounts."""
        return self.machine or host_identity()

    @property
    def where(self) -> str:
        """Behind a command that a person types where these folders are."""
        return " on that host" if self.remote else ""

    def claim(self, account: str) -> str:
        """The command with which a person assigns this folder to `account`; with its condition, unless the folder is
        proved to be that account's. Where nothing here is, the one that calls lost what was."""
        if self.remote and self._may_be(account):
            return 'sweepctl adopt BOX --reason "…"'
        if self.remote:
            return f'sweepctl confirm gone BOX --saw "…"    ({ONLY_IF} it is lost for good)'
        host, _, identifier = account.rpartition("/")
        return f"{CLAIM} {account}{self._condition(host, identifier) if host else ''}"

    def _condition(self, host: str, identifier: str) -> str:
        """What has to be true before a person types it: what is not in this folder then counts as gone, and another
        computer's boxes are not in it. Both marks with this id prove that these are the same folders, and mounted."""
        marks: set[str] = set()
        with contextlib.suppress(OSError, ValueError):  # a damaged mark proves nothing
            marks = {_mark(self.boxes), _mark(self.volumes)}
        if marks == {identifier}:
            return "" if host == self.host else f"    (if this computer was called {host}, and was renamed)"
        was = "its registry here was lost" if host == self.host else f"this computer was called {host}"
        return f"    ({ONLY_IF} {was}: what is not here then counts as gone)"

    def _may_be(self, account: str) -> bool:
        """Whether these folders may be those of `account`: the registry or a mark says so, or no mark says whose they
        are and something is in them. What can't be read may be."""
        identifier = account.rpartition("/")[2]
        try:
            with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # lost, or damaged
                found = _parse_registry(self._registry_bytes())
                return found.id == identifier or account in found.also_known_as
            folders = (self.boxes, self.volumes)
            marks = {*map(_mark, folders)} - {""}
            return identifier in marks or (not marks and any(map(_holds, folders)))
        except (OSError, ValueError):
            return True

    def was(self, identifier: str) -> bool:
        """Whether the registry or a mark has this id, by what can be read: these folders are that account's."""
        found: set[str] = set()
        for folder in (self.boxes, self.volumes):
            with contextlib.suppress(OSError, ValueError):
                found.add(_mark(folder))
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found.add(_parse_registry(self._registry_bytes()).id)
        return identifier in found

    def registry(self, account: str = "") -> Registry | None:
        """The registry; None only when this folder was never used. `account`: named in the message when the registry is
        lost. Raises Unreachable."""
        named = account or "ACCOUNT"
        with answering(self.registry_file):
            try:
                data = self._registry_bytes()
            except FileNotFoundError:
                kept = [path for path in (self.boxes, self.volumes) if _holds(path)]
                if kept:
                    raise self._unknown(account)(
                        f"{self.registry_file} is gone, and {kept[0]} is not empty: whose these are is not known. "
                        f"Put the file back, or, if this is the machine that rented them, name their account"
                        f"{'' if account else ' (it is in the state, as `account`)'}: `{self.claim(named)}`"
                    ) from None
                return None
        try:
            return replace(_parse_registry(data), machine=self.machine)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unknown(account)(
                f"{self.registry_file} does not read ({error}): whose boxes these are is not known. Put the file back, "
                f"or name the account of the boxes{'' if account else ' (in the state, as `account`)'}, which keeps "
                f"the file beside it: `{self.claim(named)}`"
            ) from error

    def _unknown(self, account: str) -> type[Unreachable]:
        """The error where the registry can't tell whose these folders are."""
        return FolderLost if self.addressed and account and not self._may_be(account) else Unreachable

    def _registry_bytes(self) -> bytes:
        """The file's content; empty when a folder has that name. Raises FileNotFoundError."""
        try:
            return self.registry_file.read_bytes()
        except IsADirectoryError:
            return b""

    def require(self, account: str) -> None:
        """Returns when this is the folder of `account`; else raises WrongAccount or Unreachable. Reads only."""
        registry = self.registry(account)
        if self.addressed and not self._may_be(account):
            here = "is empty" if registry is None else f"has the boxes of {registry.account}"
            raise FolderLost(
                f"what {account} had at {self.root} is not there: the folder {here}. Is its disk mounted? Put it back; "
                f"if it is lost for good, say so with `{self.claim(account)}`"
            )
        own = (
            f"To go on here although the name differs, because this machine was renamed or its registry was lost: "
            f"`{self.claim(account)}`"
        )
        if registry is None and account.rpartition("/")[0] == self.host:
            raise Unreachable(
                f"the registry of {account} is not at {self.registry_file}, so nothing is known of its boxes. "
                f"Is XDG_DATA_HOME what it was when they were made? {own}"
            )
        if registry is None:
            raise WrongAccount(
                f"this belongs to {account}, and this machine is {self.host}, which has no boxes at {self.root}. "
                f"Run the command on the machine that it belongs to. {own}"
            )
        if account != registry.account and account not in registry.also_known_as:
            raise WrongAccount(
                f"this belongs to {account}, and the account at hand is {registry.account} ({self.root}). "
                f"Run the command on that machine, with that XDG_DATA_HOME. {own}"
            )
        self.require_boxes(registry, account)

    def require_boxes(self, registry: Registry, account: str = "") -> None:
        """Returns when `boxes` is proved to be the folder in which boxes were made: then a box that is not in it does
        not exist. Raises Unreachable otherwise, such as for the empty mount point of a disk that is not mounted.
        """
        self._require(self.boxes, registry, registry.marked, account)

    def require_volumes(self, registry: Registry, account: str = "") -> None:
        """`require_boxes` for `volumes`."""
        self._require(self.volumes, registry, registry.volumes_marked, account)

    def _require(self, folder: Path, registry: Registry, marked: bool, account: str) -> None:
        with answering(folder):
            there = folder.is_dir()
            mark = _mark(folder) if there else ""
            if mark == registry.id or (there and not mark and not marked and _holds(folder)):
                return
        why = "is not there" if not there else f"is another folder than the one that {folder.name} were made in"
        if there and not mark and not marked:
            why = f"is empty and carries no mark that says that {folder.name} were made in it"
        command = f"{CLAIM} {account or registry.account}    ({ONLY_IF} they are really gone)"
        if self.remote:
            command = f"mkdir -p {quote(str(folder))} && echo {registry.id} > {quote(str(folder / MARK))}"
        raise Unreachable(
            f"{folder} {why}, so nothing is known of the {folder.name} in it. Is its disk mounted? Put it back; if "
            f"they are really gone, say so with `{command}`{self.where}"
        )

    def found(self) -> Registry:
        """The registry; makes it at the first use, and adds missing marks. Call it while holding the lock. Raises
        Unreachable when a registry without a mark has an empty `boxes`: with a mark, the mount point of a disk that is
        not mounted would prove all its boxes gone. An empty `volumes` gets no mark; `require_volumes` then refuses."""
        registry = self.registry()
        if registry is None:
            for folder in (self.boxes, self.volumes):
                folder.mkdir(exist_ok=True)
            return self._write(Registry(random_id(), machine=self.machine))
        if not registry.marked:
            self.require_boxes(registry)
        with answering(self.volumes):
            volumes = not registry.volumes_marked and (_mark(self.volumes) == registry.id or _holds(self.volumes))
        if not registry.marked or volumes:
            registry = self._write(registry, boxes=not registry.marked, volumes=volumes)
        return registry

    def answer_for(self, account: str, *, boxes: bool = True, volumes: bool = True) -> Registry:
        """Records that this folder belongs to `account`, as a person says; also when the registry was lost. A registry
        that can't be read is kept under another name, and the id is taken from the marks. `boxes`, `volumes`: also mark
        these folders, so that what is not in them counts as gone. Blocks for the lock, up to 30 s."""
        with self.locked(Wait(30)):
            for folder in (self.boxes, self.volumes):
                folder.mkdir(exist_ok=True)
            known = Registry(_mark(self.boxes) or _mark(self.volumes) or random_id(), machine=self.machine)
            if self.registry_file.exists():
                known = self._unless_damaged() or known
            if account not in (known.account, *known.also_known_as):
                known = replace(known, also_known_as=(*known.also_known_as, account))
            return self._write(known, boxes=boxes, volumes=volumes)

    def _unless_damaged(self) -> Registry | None:
        """The registry; None when it can't be parsed: then the file is renamed. Raises Unreachable when the disk does
        not answer."""
        with answering(self.registry_file):
            try:
                return replace(_parse_registry(self._registry_bytes()), machine=self.machine)
            except (ValueError, KeyError, TypeError):
                beside = self.registry_file.with_name(f"registry.json.unread-{random_id()}")
                os.rename(self.registry_file, beside)
                return None

    def renamed(self, account: str) -> Registry:
        """`answer_for`, but only if `account` differs by the host's name alone, or if only the registry file was lost
        or damaged. Raises WrongAccount when this is another registry, or when this folder was never used."""
        host, known = self.host, None
        with contextlib.suppress(Unreachable):  # lost or damaged
            known = self.registry(account)
        if known is None:
            with answering(self.boxes):
                marks = {folder: _mark(folder) for folder in (self.boxes, self.volumes)}
                boxes, volumes = (bool(mark) or _holds(folder) for folder, mark in marks.items())
            for folder, mark in marks.items():
                if mark and mark != account.rpartition("/")[2]:
                    raise WrongAccount(
                        f"this belongs to {account}, and {folder} is marked as that of the registry {mark}: not the "
                        f"same folder under another name of the host. If what it had here is lost: "
                        f"`{self.claim(account)}`"
                    )
            if self._may_be(account):
                return self.answer_for(account, boxes=boxes, volumes=volumes)
        if known is None or known.id != account.rpartition("/")[2]:
            have = known.account if known is not None else f"{host}, which has no boxes at {self.root}"
            raise WrongAccount(
                f"this belongs to {account}, and here is {have}: not the same folder under another name of the host. "
                f"If what it had here is lost: `{self.claim(account)}`"
            )
        return self.answer_for(account, boxes=False, volumes=False)  # proves nothing about what is in the folders

    def _write(self, registry: Registry, *, boxes: bool = True, volumes: bool = True) -> Registry:
        """Marks the folders, then writes the registry: in this order, so that a registry never claims a missing
        mark."""
        known = replace(registry, marked=boxes or registry.marked, volumes_marked=volumes or registry.volumes_marked)
        for folder, asked in ((self.boxes, boxes), (self.volumes, volumes)):
            if asked:
                with answering(folder):
                    write_atomically(folder / MARK, f"{known.id}\n".encode())
        facts = {
            "schema": 1,
            "id": known.id,
            "also_known_as": list(known.also_known_as),
            "marked": known.marked,
            "volumes_marked": known.volumes_marked,
        }
        write_json_atomically(self.registry_file, facts)
        return known

    @contextlib.contextmanager
    def locked(self, wait: Wait) -> Iterator[None]:
        """Holds the lock, and removes what interrupted commands left half-made. Raises Unreachable when the lock is not
        free in time."""
        with answering(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            holder = open(self.root / "registry.lock", "ab")  # noqa: SIM115 - closed below, after the caller's work
        with holder:
            why = wait.until(lambda: take(holder.fileno()), f"the lock {holder.name}, which another command holds")
            if why:
                raise Unreachable(f"{why}; nothing was made or ended")
            with answering(self.root):
                for folder in (self.staging, self.trash):
                    folder.mkdir(exist_ok=True)
                    clear_folder(folder)
            yield

    def admit(self, staged: Path, folder: Path) -> None:
        """Renames a staged folder to its final name. When this returns, it survives a power cut."""
        for parent, _, _ in os.walk(staged):
            fsync_directory(Path(parent))
        os.rename(staged, folder)
        fsync_directory(folder.parent)


def _mark(folder: Path) -> str:
    try:
        return (folder / MARK).read_text().strip()
    except FileNotFoundError:
        return ""


def _holds(folder: Path) -> bool:
    """Whether the folder has any entry besides the mark (or a part of one)."""
    return folder.is_dir() and any(not name.startswith(".") for name in os.listdir(folder))


def read_facts(path: Path) -> dict[str, Any]:
    """A JSON record. Raises FileNotFoundError; ValueError when it is damaged or can't be read."""
    try:
        facts = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(str(error)) from error
    if not isinstance(facts, dict):
        raise ValueError("not a JSON object")
    return facts


def named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """The entries of `folder` whose whole name matches, sorted."""
    return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))


def place(path: Path) -> str:
    """`host:path`: a path of this machine, for people at other machines."""
    return f"{host_identity()}:{path}"


@contextlib.contextmanager
def answering(path: Path) -> Iterator[None]:
    """Turns an OSError into Unreachable: what can't be read is not known, and never counts as absent."""
    try:
        yield
    except OSError as error:
        raise Unreachable(
            f"the local platform's folder {path} does not answer: {error}{_way_out(path, error)}"
        ) from error


def _way_out(path: Path, error: OSError) -> str:
    """What a person can do about the error, for the message; "" when there is nothing."""
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    elsewhere = "or set XDG_DATA_HOME to a folder elsewhere (for new boxes; those that are here stay)"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        why = "is read-only" if error.errno == errno.EROFS else "may not be written by this user"
        return f". {there} {why}: make it writable, {elsewhere}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f". {_what_is_full(there)}: take away what is not needed there, {elsewhere}"
    return ""


def _what_is_full(folder: Path) -> str:
    try:
        room = os.statvfs(folder)
    except OSError:
        return f"the disk of {folder} is full"
    if room.f_files and not room.f_favail:
        return f"the disk of {folder} holds as many files as it can ({room.f_files:,} inodes, `df -i {folder}`)"
    return f"the disk or the quota of {folder} is full (`df -h {folder}`)"


def unsafe(what: str) -> PlatformError:
    """The error for an id, tag or mount that can't be one of this platform's."""
    return PlatformError(f"{what} is not one of the local platform's")


def _parse_registry(data: bytes) -> Registry:
    facts = json.loads(data)
    identifier, also = facts["id"], facts.get("also_known_as", [])
    if not isinstance(identifier, str) or not identifier or not all(isinstance(name, str) for name in also):
        raise ValueError("no id in it")
    return Registry(identifier, tuple(also), facts.get("marked") is True, facts.get("volumes_marked") is True)


def mark_ending(box: Path, *, facts: str, ending: str) -> None:
    """Marks the box: from now on nothing is started on it. It renames a file, since that works on a full disk, too.

    Raises NotYetGone when the box is a link. Idempotent.
    """
    if box.is_symlink():
        raise NotYetGone(
            f"{box} is a link to {os.readlink(box)}, which is not ours to delete: put the folder in its place"
        )
    try:
        os.rename(box / facts, box / ending)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            (box / ending).touch()
    except NotADirectoryError:
        box.unlink()


def record_rented(facts_file: Path, root: Path) -> None:
    """Records that a box is, or was, on a rented machine: when its folder is gone, the machine still bills. Does
    nothing for a machine that is not rented. Idempotent. Raises OSError."""
    try:
        facts = read_facts(facts_file)
    except (FileNotFoundError, ValueError):
        return  # its facts are lost; the command that ends the box knows that the machine is rented
    if facts.get("rented") is True:
        write_json_atomically(root / RENTED / f"{facts_file.parent.name}.json", facts)


def rented_record(native_id: str, root: Path) -> dict[str, Any] | None:
    """The recorded facts of a box that was on a rented machine; None without a record, {} when it can't be read."""
    try:
        return read_facts(root / RENTED / f"{native_id}.json")
    except FileNotFoundError:
        return None
    except ValueError:
        return {}


def rented_ids(root: Path) -> set[str]:
    """The ids of all boxes with such a record."""
    return {path.stem for path in (root / RENTED).glob("*.json")}


def empty(box: Path, *, keep: tuple[str, ...]) -> None:
    """Removes all files except `keep` (paths inside the box) and the folders that lead to them. Removes links, does not
    follow them. Idempotent.

    The kept files say whose box it was and what ran on it: if this is interrupted, the box is still listed, and the
    teardown check finds the same journal as before. Raises NotYetGone when something can't be removed.
    """
    _refuse_mounted(box)
    kept = {box / path for path in keep}
    kept_parents = {parent for path in kept for parent in path.parents}
    try:
        for parent, folders, files in os.walk(box, onerror=_raise):
            for path in [Path(parent, name) for name in folders]:
                if path in kept_parents and not path.is_symlink():
                    _open_up(path)
                    continue
                folders.remove(path.name)
                _remove(path)
            for path in (Path(parent, name) for name in files):
                if path not in kept:
                    path.unlink(missing_ok=True)
    except OSError as error:
        raise NotYetGone(f"{box} is only partly removed: {error}. Run it again") from error


def wipe(folder: Path) -> None:
    """Empties a folder; makes it if it is missing. Raises NotYetGone as `empty` does."""
    _refuse_mounted(folder)
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
            folder.mkdir()
        _open_up(folder)
        for name in os.listdir(folder):
            path = folder / name
            if path.is_dir() or path.is_symlink():
                _remove(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise NotYetGone(f"{folder} is only partly emptied: {error}. Run it again") from error


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
        return
    _open_up(path)
    for parent, folders, _ in os.walk(path, onerror=_raise):
        for name in folders:
            _open_up(Path(parent, name))
    shutil.rmtree(path)


def _open_up(folder: Path) -> None:
    """Makes a folder writable for this user: a read-only folder can't be emptied."""
    if not folder.is_symlink() and folder.stat().st_mode & 0o700 != 0o700:
        folder.chmod(0o700)


def _refuse_mounted(box: Path) -> None:
    """`refuse_mounted`, but a bucket that the box itself mounted is unmounted: its process was ended before, and a
    killed process leaves a dead mount behind."""
    for point, kind in mounted_below(box):
        if kind == BUCKET:
            _let_go(point)
    refuse_mounted(box, "box")


def _let_go(point: str) -> None:
    for program in ("fusermount3", "fusermount"):
        if shutil.which(program) is not None:
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # the caller checks whether it is gone
                subprocess.run([program, "-uz", point], stderr=subprocess.DEVNULL, timeout=UNMOUNT_SECONDS, check=False)
            return


def _raise(error: OSError) -> None:
    raise error
