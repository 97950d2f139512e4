"""The sets of a cell's checkpoints in a bucket: their owners, their order, and which are whole.

Below `<identity>/checkpoints/<cell>/<work>.sets/` lies a folder for each owner, `<generation>-<box>`:

    owner                    the owner's claim. Its generation is one more than the highest that it found here
    files/<sha256>/<name>    what its sets consist of, each content once
    lists/<number>           a set: path → sha256, size, time and object of each file. Written last: that is whole then

A content counts as there only if a list names it: what a copy sent that was cut off, or whose file changed, may be
wrong.

The order of sets is generation, box, number: no clock is in it. A later owner's set is newer than all of an earlier
one, whenever that arrives. An owner writes, and takes away, only what is its own or of an earlier owner, and its sets
need nothing of another one. What older commits copied (`<identity>/checkpoints/<cell>/<work>/`, without a list) is the
oldest set.

On the box, beside the folder of the checkpoints:

    <work>.copied.json       whose set the folder goes back to, and what of it was copied
    <work>.partial           a set on its way in; renamed when it is whole
    <work>.sending           hard links that hold the files of a set on its way out
    <work>.superseded-<n>    what a later owner's set came in place of; never taken away
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.canonical import canonical_json, file_sha256, fsync_directory, write_json_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.runner.sealing import CHUNK, flush_and_forget, linked

ROOT = "checkpoints"
KEEP = 2
"""So many sets stay in the bucket; the newest whole one is always one of them."""
TRIES = 3
"""So often a set is taken again at once because its files changed meanwhile."""
TICK_SECONDS = 0.05
"""Longer than a step of a file system's clock: what is written after it gets another time."""
GROWING = ("*.log", "*.jsonl", "*.csv", "*.txt", "*.wandb", "events.out.tfevents.*")
"""Files that a job appends to all the time. A set has what was in them when it began; that they grow spoils none."""
OWNER, FILES, LISTS = "owner", "files", "lists"
_CLAIM = re.compile(r"(\d{6,})-(.+)")
_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._+=-]{1,100}")
"""A file's own name, if it can be an object's with every store."""


class Store(Protocol):
    """What is asked of the bucket. Each call blocks, and raises OSError when it failed."""

    def tree(self, path: str) -> dict[str, int]: ...  # files below `path` → size; empty when there are none
    def read(self, path: str) -> bytes: ...
    def write(self, path: str, data: bytes) -> None: ...  # one object, at once; returns when it reads back the same
    def send(self, folder: Path, path: str) -> None: ...  # all files of a folder, also those that links point to
    def take(self, path: str, names: Collection[str], folder: Path) -> None: ...
    def copy_there(self, path: str, names: Collection[str], to: str) -> None: ...  # without sending a byte
    def remove(self, path: str, names: Collection[str]) -> None: ...


class Changing(SweepstackError, OSError):
    """The files change all the time, so that no set of them is whole. The message names one."""


class Superseded(SweepstackError, OSError):
    """Another box has taken the cell over: what this one has is not copied any more."""


class Damaged(SweepstackError, OSError):
    """A set in the bucket is not what its list says."""


class NoSuchSet(SweepstackError):
    """There is no set to begin with, and one was asked for. The message has what to do."""


class Claim(NamedTuple):
    """An owner and its generation; the larger one is the later owner."""

    generation: int
    owner: str

    @property
    def folder(self) -> str:
        return f"{self.generation:06d}-{self.owner}"


class Rank(NamedTuple):
    """The place of a set in the order; the largest is the newest."""

    claim: Claim
    number: int


OLDEST = Rank(Claim(0, ""), 0)
"""What an older commit copied."""


class SeenFile(NamedTuple):
    """A file as the file system shows it: the same twice if nothing wrote to it."""

    size: int
    mtime_ns: int
    inode: int


class Pinned(NamedTuple):
    """A file of a set on its way out. `file`: where it is read; `seen`: as it was there before the first byte was read;
    `source`: as the folder had it."""

    file: Path
    seen: SeenFile
    source: SeenFile


class BucketListing:
    """What lies in the bucket for one cell, by one listing."""

    def __init__(self, sets: Mapping[str, int], plain: Mapping[str, int]) -> None:
        self.plain = dict(plain)
        self.claims: list[Claim] = []
        self.files: dict[Claim, dict[str, int]] = {}  # <sha256>/<name> → size
        self.ranks: list[Rank] = [OLDEST] if plain else []
        for path, size in sets.items():
            folder, _, rest = path.partition("/")
            found = _CLAIM.fullmatch(folder)
            if not found:
                continue
            claim = Claim(int(found[1]), found[2])
            if claim not in self.files:
                self.files[claim] = {}
                self.claims.append(claim)
            kind, _, name = rest.partition("/")
            if kind == FILES:
                self.files[claim][name] = size
            elif kind == LISTS and name.isdigit():
                self.ranks.append(Rank(claim, int(name)))
        self.claims.sort()
        self.ranks.sort(reverse=True)
        self.bytes = sum(sum(files.values()) for files in self.files.values()) + sum(plain.values())


class Local:
    """What a box knows of one folder of checkpoints: `<work>.copied.json`. `claim`: the owner that it goes back to;
    `claimed`: that is this box. `seen`: the highest claim when a set was brought, if this box has not claimed then."""

    def __init__(self, folder: Path) -> None:
        self.path = folder.with_name(f"{folder.name}.copied.json")
        self.claim: Claim | None = None
        self.claimed = False
        self.seen: Claim | None = None
        self.files: dict[str, tuple[SeenFile, str]] = {}
        self.links: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(self.path.read_bytes())
            self.claim = Claim(int(known["generation"]), str(known["owner"]))
            self.claimed, self.links = bool(known["claimed"]), dict(known["links"])
            self.seen = Claim(int(known["seen"][0]), str(known["seen"][1])) if known["seen"] else None
            self.files = {path: (SeenFile(*one[:3]), str(one[3])) for path, one in known["files"].items()}

    def write(self) -> None:
        claim = self.claim or OLDEST.claim
        files = {path: [*seen, sha256] for path, (seen, sha256) in self.files.items()}
        more = {"claimed": self.claimed, "seen": self.seen, "files": files, "links": self.links}
        write_json_atomically(self.path, {"generation": claim.generation, "owner": claim.owner, **more})

    def sha256(self, path: str, seen: SeenFile) -> str:
        """What a file had when it was copied, if it is the same still; else ""."""
        known = self.files.get(path)
        return known[1] if known and known[0] == seen else ""


class Sets:
    """The sets of one folder of checkpoints. For one thread at a time.

    `folder`: on the box. `where`: `<identity>`. `owner`: this box; of workers that share one, this worker, too.
    """

    def __init__(self, store: Store, where: str, cell: str, folder: Path, owner: str) -> None:
        self.store, self.folder = store, folder
        self.owner = re.sub(r"[^A-Za-z0-9._-]", "_", owner)
        self.plain = f"{where}/{ROOT}/{cell}/{folder.name}"
        self.place, self.anew = f"{self.plain}.sets", f"Next: sweepctl retry {cell} --from start"
        self.partial, self.sending = (folder.with_name(f"{folder.name}.{end}") for end in ("partial", "sending"))
        self.local = Local(folder)
        self.look: BucketListing | None = None
        self._plain: dict[str, int] | None = None
        self._lists: dict[Rank, dict[str, Any]] = {}
        self._sent: dict[str, str] = {}  # sha256 → object, of files that were as they had been when all was sent

    # -- in

    def bring(self, start: str = "", of: Sets | None = None, claim: bool = True) -> str:
        """Brings a set into the folder, if that has no files, or has what an earlier owner left here; that is then kept
        under another name. Returns what it did, in words; "" for nothing. Blocks.

        `start`: "" for the newest set; "previous" for the one before it; "nothing" for none. `of`: whose sets are meant
        where this folder has none of its own. A set that is not what its list says is left out. Killed at any moment it
        leaves the folder as it was, or with a whole set. This box is the owner from now on; `claim`: False where it may
        yet be another that starts the cell: then from its first copy on, if no other has claimed the cell since. Raises
        NoSuchSet; OSError: nothing is known. Then the cell must not start.
        """
        self._plain = None
        mine = self._claim_anew(self._look()) if claim else None
        source, look = self, self._look()
        newest = look.ranks[0] if look.ranks else None
        if not empty(self.folder) and (newest is None or not self._is_older_here(newest)):
            self._begin_as(mine, self.local.claim, look)
            self.local.write()
            return ""
        if of is not None:
            source, look, start = (of, of._look(), start) if newest is None else (self, look, "")
        ranks = [] if start == "nothing" else look.ranks[1:] if start == "previous" else look.ranks
        said = []
        for rank in ranks:
            try:
                listed = source._listed(rank, look)
                self._fetch(source, look, rank, listed)
            except Damaged as error:
                said.append(str(error))
                continue
            self._begin_as(mine, rank.claim if source is self else None, look)
            return "; ".join([*said, self._put_in_place(rank, listed, source is self and rank != OLDEST)])
        if said:
            raise NoSuchSet("; ".join([*said, f"no set of it is whole. {self.anew}"]))
        if start == "previous":
            raise NoSuchSet(f"the bucket has no set before the newest. {self.anew}")
        self._begin_as(mine, newest.claim if newest else None, look)
        self._remember({}, {})
        return ""

    def _begin_as(self, mine: Claim | None, lineage: Claim | None, look: BucketListing) -> None:
        """Not yet written down: that is done once the folder has what it means."""
        self.local.claim, self.local.claimed = mine or lineage, mine is not None
        self.local.seen = None if mine or not look.claims else look.claims[-1]

    def _is_older_here(self, newest: Rank) -> bool:
        """Whether what lies here is of an earlier owner than the newest set of the bucket."""
        if newest == OLDEST or self.local.claim is None:
            return newest != OLDEST and newest.claim.owner != self.owner
        return self.local.claim < newest.claim

    def _listed(self, rank: Rank, look: BucketListing) -> dict[str, Any]:
        """A set's list. Raises Damaged."""
        if rank == OLDEST:
            return {"files": {path: ["", size, 0, path] for path, size in look.plain.items()}, "links": {}}
        if rank in self._lists:
            return self._lists[rank]
        path = f"{self.place}/{rank.claim.folder}/{LISTS}/{rank.number:06d}"
        try:
            listed: dict[str, Any] = json.loads(self.store.read(path))
            for name, (sha256, size, mtime_ns, stored) in listed["files"].items():
                if not (isinstance(sha256, str) and isinstance(mtime_ns, int)):
                    raise ValueError(f"{name} has no SHA-256 or no time")
                if not _is_plain(name) or look.files[rank.claim].get(stored) != size:
                    raise Damaged(f"{path}: {name} is not there")
            if not all(_is_plain(name) and isinstance(target, str) for name, target in listed["links"].items()):
                raise ValueError("a link has no plain name, or no target")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{path} can't be read: {error}") from error
        self._lists[rank] = listed
        return listed

    def _fetch(self, source: Sets, look: BucketListing, rank: Rank, listed: Mapping[str, Any]) -> None:
        """Makes `partial/tree` of a set of `source`, compared with its list. Goes on with what an earlier try left."""
        tree, files = self.partial / "tree", listed["files"]
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        if rank == OLDEST:
            self.store.take(source.plain, list(files), tree)
            short = [name for name, (_, size, *_) in files.items() if _size(tree / name) != size]
            if short:
                raise Damaged(f"{source.plain}/{short[0]} did not come whole")
        else:
            content = self._fetched(source, rank, files)
            for name, (sha256, _, mtime_ns, _) in files.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                if os.stat(content[sha256]).st_nlink > 1 or not linked(content[sha256], tree / name):
                    shutil.copyfile(content[sha256], tree / name)  # of two names of one file, a write would change both
                os.utime(tree / name, ns=(mtime_ns, mtime_ns))
        for name, target in listed["links"].items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, tree / name)
        for name in files:
            flush_and_forget(tree / name)

    def _fetched(self, source: Sets, rank: Rank, files: Mapping[str, Any]) -> dict[str, Path]:
        """Fetches what a set consists of: sha256 → the file. Raises Damaged where one is wrong twice."""
        folder, place = self.partial / FILES, f"{source.place}/{rank.claim.folder}/{FILES}"
        folder.mkdir(exist_ok=True)
        stored = {sha256: name for sha256, _, _, name in files.values()}
        wrong = sorted(stored)
        for _ in range(2):
            if wrong:
                self.store.take(place, [stored[one] for one in wrong], folder)
            content = {sha256: folder / name for sha256, name in stored.items()}
            wrong = [one for one in wrong if _size(content[one]) < 0 or file_sha256(content[one]) != one]
            for one in wrong:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(content[one])
        if wrong:
            raise Damaged(f"{place}/{stored[wrong[0]]} is not what was copied there")
        return content

    def _put_in_place(self, rank: Rank, listed: Mapping[str, Any], copied: bool) -> str:
        """`copied`: it is a set of this folder already, which needs no other one before something changes."""
        kept = None
        try:
            os.rename(self.partial / "tree", self.folder)
        except OSError:  # something is in it
            kept = set_aside(self.folder)
            os.rename(self.partial / "tree", self.folder)
        fsync_directory(self.folder.parent)
        shutil.rmtree(self.partial, ignore_errors=True)
        seen = scan(self.folder)[0]
        known = {name: (seen[name], one[0]) for name, one in listed["files"].items() if name in seen}
        self._remember(known if copied else {}, dict(listed["links"]) if copied else {})
        words = f"{len(listed['files'])} files came from set {rank.number} of {rank.claim.folder}"
        if rank == OLDEST:
            words = f"{len(listed['files'])} files came from what an older commit copied"
        return words + (f"; what was here is kept as {kept.name}" if kept else "")

    # -- out

    def copy(self, settle: float, patience: float, cut: Callable[[float], object] = time.sleep) -> bool:
        """Copies the folder as a new set, if it has changed since the last one. False when there was nothing to copy.
        Blocks. It waits for `settle` seconds without a change, for as long as `patience`: a save of several files has
        pauses. `cut`: sleeps so long, and may raise.

        Raises Changing when files of the set changed until its list was to be written, TRIES times; Superseded;
        OSError. The set before stays the newest then.
        """
        until = time.monotonic() + patience
        for left in reversed(range(TRIES)):
            files, links = self._quiet(settle, until, cut)
            if not files or self._is_copied(files, links):
                return False
            try:
                pinned = self._pin(files, links)
                cut(TICK_SECONDS)
                self._send(pinned, links)
                return True
            except Changing:
                if not left:
                    raise
            finally:
                shutil.rmtree(self.sending, ignore_errors=True)
        return False

    def _quiet(
        self, settle: float, until: float, cut: Callable[[float], object]
    ) -> tuple[dict[str, SeenFile], dict[str, str]]:
        """What is in the folder, once it stayed the same for `settle`, or it is too late to wait for that."""
        found = scan(self.folder)
        while settle and found[0] and not self._is_copied(*found):
            cut(settle)
            before, found = found, scan(self.folder)
            if time.monotonic() > until or not _changed(before[0], found[0], growth=True):
                break
        return found

    def _is_copied(self, files: Mapping[str, SeenFile], links: Mapping[str, str]) -> bool:
        known = {name: seen for name, (seen, _) in self.local.files.items()}
        return self.local.claimed and known == files and self.local.links == links

    def _must_be(self, files: Mapping[str, SeenFile], links: Mapping[str, str], growth: bool = False) -> None:
        now, links_now = scan(self.folder)
        changed = _changed(files, now, growth) or _changed(links, links_now, growth)
        if changed:
            raise Changing(f"its files change while they are copied: {changed[0]}")

    def _pin(self, files: Mapping[str, SeenFile], links: Mapping[str, str]) -> dict[str, Pinned]:
        """Holds the files as they are now: by hard links, which neither a rename nor a removal by the job touches; by
        copies of what grows; where the file system has no hard links, by their names."""
        shutil.rmtree(self.sending, ignore_errors=True)
        (self.sending / "pins").mkdir(parents=True)
        found = {}
        for number, (name, seen) in enumerate(sorted(files.items())):
            source, pin = self.folder / name, self.sending / "pins" / str(number)
            try:
                if grows(name):
                    copy_start(source, pin, seen.size)
                    os.utime(pin, ns=(seen.mtime_ns, seen.mtime_ns))
                elif not linked(source, pin):
                    pin = source
                found[name] = Pinned(pin, _seen(os.lstat(pin)), seen)
            except FileNotFoundError as error:
                raise Changing(f"its files change while they are copied: {name}") from error
        self._must_be(files, links)
        return found

    def _send(self, pinned: Mapping[str, Pinned], links: Mapping[str, str]) -> None:
        digests = {}
        for name, one in pinned.items():
            digests[name] = self.local.sha256(name, one.source) or file_sha256(one.file)
        claim = self._claim()
        sizes = {digests[name]: one.seen.size for name, one in pinned.items()}
        stored = self._contents(claim, sizes)
        new = {digests[name]: name for name in sorted(pinned, reverse=True) if digests[name] not in stored}
        for sha256, name in new.items():
            own = PurePosixPath(name).name
            stored[sha256] = f"{sha256}/{own if _NAME.fullmatch(own) else 'file'}"
            target = self.sending / "up" / stored[sha256]
            target.parent.mkdir(parents=True)
            os.symlink(pinned[name].file, target)
        place = f"{self.place}/{claim.folder}"
        try:
            if new:
                self.store.send(self.sending / "up", f"{place}/{FILES}")
        finally:
            self._still(pinned, links)  # if it failed: else that is why
            self._sent.update({sha256: stored[sha256] for sha256 in new})
        look = self._look()
        self._must_own(look, claim)
        lacking = [name for one, name in stored.items() if look.files.get(claim, {}).get(name) != sizes[one]]
        if lacking:
            self._sent.clear()
            raise OSError(f"{place}/{FILES}/{lacking[0]} is not there, or not whole, after it was copied")
        number = 1 + max((rank.number for rank in look.ranks if rank.claim == claim), default=0)
        listed = {
            name: [digests[name], one.seen.size, one.seen.mtime_ns, stored[digests[name]]]
            for name, one in pinned.items()
        }
        self._still(pinned, links)
        whole = {"schema": 1, "files": listed, "links": dict(links)}
        self.store.write(f"{place}/{LISTS}/{number:06d}", canonical_json(whole) + b"\n")
        look.ranks.insert(0, Rank(claim, number))
        self._sent.clear()
        self._lists[Rank(claim, number)] = whole
        self._remember({name: (one.source, digests[name]) for name, one in pinned.items()}, dict(links))

    def _contents(self, claim: Claim, sizes: Mapping[str, int]) -> dict[str, str]:
        """Which of these contents this owner has in the bucket: sha256 → object. What an earlier one has, the store
        copies."""
        look = self.look
        assert look is not None
        stored = {one: name for one, name in self._sent.items() if look.files[claim].get(name) == sizes.get(one, -1)}
        for rank in look.ranks:
            known = {}
            with contextlib.suppress(Damaged):
                files = self._listed(rank, look)["files"] if rank != OLDEST else {}
                known = {one: name for one, size, _, name in files.values() if sizes.get(one) == size}
            known = {one: name for one, name in known.items() if one not in stored}
            if known and rank.claim != claim:
                try:
                    place = f"{self.place}/{rank.claim.folder}/{FILES}"
                    self.store.copy_there(place, sorted(known.values()), f"{self.place}/{claim.folder}/{FILES}")
                except OSError:  # its owner may have taken it away just now
                    continue
            stored.update(known)
        return stored

    def _still(self, pinned: Mapping[str, Pinned], links: Mapping[str, str]) -> None:
        """Raises Changing unless each file of the set is what it was before its first byte was read; what grows may
        have become longer since."""
        for name, one in pinned.items():
            try:
                same = _seen(os.lstat(one.file)) == one.seen
                if same and grows(name):
                    same = _begins_with(self.folder / name, one.file)
            except FileNotFoundError:
                same = False
            if not same:
                raise Changing(f"its files change while they are copied: {name}")
        if any(one.file.parent != self.sending / "pins" for one in pinned.values()):
            self._must_be({name: one.source for name, one in pinned.items()}, links, growth=True)

    def _claim(self) -> Claim:
        """This box's claim, which is the highest; made now if it has none. Raises Superseded."""
        look = self._look()
        if self.local.claimed and self.local.claim is not None:
            self._must_own(look, self.local.claim)
        elif self.local.seen is not None:
            self._must_own(look, self.local.seen)
        claim = self._claim_anew(look)
        if (claim, True) != (self.local.claim, self.local.claimed):
            self.local.claim, self.local.claimed = claim, True
            self.local.write()
        return claim

    def _claim_anew(self, look: BucketListing) -> Claim:
        """The highest claim: this box's, if it is that already, else a new one. Raises Superseded where others claim at
        the same time, again and again."""
        if self.local.claimed and self.local.claim is not None and look.claims[-1:] == [self.local.claim]:
            return self.local.claim
        for _ in range(TRIES):
            claim = Claim(1 + (look.claims[-1].generation if look.claims else 0), self.owner)
            self.store.write(f"{self.place}/{claim.folder}/{OWNER}", b"{}\n")
            look = self._look()
            if look.claims[-1] == claim:
                return claim
        raise Superseded(f"other boxes take this cell over at the same time: {look.claims[-1].folder}")

    @staticmethod
    def _must_own(look: BucketListing, claim: Claim) -> None:
        if look.claims and look.claims[-1] > claim:
            raise Superseded(f"{look.claims[-1].owner} has taken this cell over: what this box has is not copied")

    def prune(self) -> None:
        """Takes sets beyond the last KEEP away, and files that no set needs. Only of a cell that this box owns, and
        only what is its own or older. Raises OSError: the rest goes the next time."""
        look = self._look()
        if not self.local.claimed or not look.claims or look.claims[-1] != self.local.claim:
            return
        if not any(rank.claim == self.local.claim for rank in look.ranks):
            return
        kept, old = look.ranks[:KEEP], look.ranks[KEEP:]
        if OLDEST in old:
            self.store.remove(self.plain, list(look.plain))
            self._plain = None
        for claim in look.claims:
            place = f"{self.place}/{claim.folder}"
            mine = [rank for rank in kept if rank.claim == claim]
            needed = {one[3] for rank in mine for one in self._listed(rank, look)["files"].values()}
            lists = [f"{rank.number:06d}" for rank in old if rank.claim == claim]
            if lists:
                self.store.remove(f"{place}/{LISTS}", lists)
            unused = [name for name in look.files[claim] if name not in needed]
            if unused:
                self.store.remove(f"{place}/{FILES}", unused)
            if not mine and claim != self.local.claim:
                self.store.remove(place, [OWNER])
        self._look()

    @property
    def facts(self) -> dict[str, int]:
        """`sets` and `bytes` in the bucket, as last seen."""
        return {"sets": len(self.look.ranks), "bytes": self.look.bytes} if self.look else {"sets": 0, "bytes": 0}

    def _look(self) -> BucketListing:
        if self._plain is None:  # before the sets: it is taken away after the first of them are there
            self._plain = self.store.tree(self.plain)
        self.look = BucketListing(self.store.tree(self.place), self._plain)
        return self.look

    def _remember(self, files: dict[str, tuple[SeenFile, str]], links: dict[str, str]) -> None:
        self.local.files, self.local.links = files, links
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.local.write()


def scan(folder: Path) -> tuple[dict[str, SeenFile], dict[str, str]]:
    """The files and the links below a folder, without what a job is just writing under another name: path → as it is
    seen, path → the link's target, where that lies in the folder, too. Raises OSError, but not for what vanishes."""
    files, links, folders = {}, {}, [""]
    while folders:
        below = folders.pop()
        with contextlib.suppress(FileNotFoundError), os.scandir(folder / below) as entries:
            for entry in entries:
                name = below + entry.name
                if fnmatch.fnmatchcase(entry.name, "*.tmp") or entry.name.startswith(".nfs"):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(name + "/")
                    elif stat.S_ISREG(status.st_mode):
                        files[name] = _seen(status)
                    elif stat.S_ISLNK(status.st_mode):
                        target = os.path.normpath(os.path.join(folder, below, os.readlink(folder / name)))
                        if target.startswith(f"{folder}/"):
                            links[name] = os.path.relpath(target, folder / below)
    return files, links


def empty(folder: Path) -> bool:
    """Whether a folder of checkpoints has no files that count, or is not there."""
    files, links = scan(folder)
    return not files and not links


def _changed(before: Mapping[str, object], now: Mapping[str, object], growth: bool) -> list[str]:
    """What differs; `growth`: but for files that a job appends to."""
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return [name for name in names if not (growth and grows(name))]


def _begins_with(file: Path, start: Path) -> bool:
    """Whether a file has the content of another one, and perhaps more after it. An empty one is no start: it may be
    written anew."""
    with open(file, "rb") as longer, open(start, "rb") as shorter:
        if not os.fstat(shorter.fileno()).st_size:
            return not os.fstat(longer.fileno()).st_size
        while True:
            chunk = shorter.read(CHUNK)
            if longer.read(len(chunk)) != chunk:
                return False
            if not chunk:
                return True


def grows(name: str) -> bool:
    """Whether a job only appends to files of such a name."""
    return any(fnmatch.fnmatchcase(PurePosixPath(name).name, pattern) for pattern in GROWING)


def copy_start(source: Path, target: Path, size: int) -> None:
    """Copies the first `size` bytes of a file, or all if it has fewer."""
    with open(source, "rb") as reader, open(target, "xb") as writer:
        while size > 0:
            chunk = reader.read(min(CHUNK, size))
            if not chunk:
                return
            writer.write(chunk)
            size -= len(chunk)


def _seen(status: os.stat_result) -> SeenFile:
    return SeenFile(status.st_size, status.st_mtime_ns, status.st_ino)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return -1


def _is_plain(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts
