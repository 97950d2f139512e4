"""Finds the stack that a command works on: project, stack file, and the expected evidence."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sweepstack.config.edit.stack_file import STORE_KEY, StackFile
from sweepstack.config.project import STACKS, stacks_in
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.paths import project_fix
from sweepstack.core.records import Approval
from sweepstack.core.suggest import closest, did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, No, SweepstackError, Unsure
from sweepstack.platforms.common import keys
from sweepstack.status.engine.call import find_project_root
from sweepstack.status.engine.stack_keys import StackKeys


class NeverUp(Unsure):
    """Neither the backend nor any record knows the stack."""


class NoProject(Unsure, ConfigError):
    """No Pulumi.yaml at or above the working folder, and no stack files."""


@dataclass(frozen=True)
class Target:
    """One stack of one project."""

    root: Path
    stack: str
    file: StackFile
    evidence: str | None = None
    """Set by `--evidence`: only it is read, and `file` is the copy of the stack file in it."""

    @classmethod
    def find(cls, stack: str | None, *, start: Path | None = None) -> Target:
        """The stack, in the project at or above the working folder. Its keys count from now on (`common.keys`).

        Raises Unsure: no stack named, or only its Pulumi.yaml is gone; NoProject.
        """
        root = project_root(stack, start)
        if not stack:
            here = StackFile.stacks(root)
            named = f" Here are: {', '.join(here)}." if here else ""
            raise Unsure(f"which stack? Name it with --stack, or in PULUMI_STACK.{named}")
        file = StackFile.locate(root, stack)
        keys.look_in(StackKeys(stack, root, file.path))
        return cls(root, stack, file.of_store() if file.is_store else file)

    @classmethod
    def find_sweep(cls, stack: str | None, *, start: Path | None = None) -> Target:
        """The same for a command about cells or boxes. Also raises Unsure for a stack of volumes."""
        target = cls.find(stack, start=start)
        if target.is_store:
            raise Unsure(
                f"{target.file.shown} describes volumes (sweepstack:store): {target.stack} has no cells and no boxes, "
                "and this command is about those",
                [f"sweepctl status --stack {target.stack}    (its volumes, and which sweeps use them)"],
            )
        return target

    @classmethod
    def find_to_read(cls, stack: str | None, evidence: str | None) -> Target:
        """`find_sweep`; or with `evidence` (a folder or an address) the sweep of that evidence. Raises Unsure."""
        return cls.find_sweep(stack) if evidence is None else cls._of_evidence(evidence)

    @classmethod
    def _of_evidence(cls, place: str) -> Target:
        """The copy of the stack file in the evidence, as a temporary project that ends with this process."""
        from sweepstack.evidence.stack_copy import stack_file_of
        from sweepstack.evidence.store import EvidenceStore

        uri = evidence_uri(Path.cwd(), place) or place
        store = EvidenceStore.open(uri)
        found = stack_file_of(store)
        if found is None:
            raise Unsure(
                f"{store.shown} holds no copy of its stack file: no `pulumi up` of this version ran. Put the file into "
                f"{store.shown}/stack-files/Pulumi.{store.marker.stack}.yaml"
            )
        name, text = found
        root = Path(tempfile.mkdtemp(prefix="sweepstack-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        (root / "Pulumi.yaml").write_text(f"name: {store.marker.project}\nruntime: python\n")
        (root / name).write_bytes(text)
        file = StackFile(root / name, f"{store.shown}/stack-files/{name}")
        return cls(root, store.marker.stack, file, uri)

    def named(self) -> str:
        """The option with which a reading command names this sweep: `--stack X`, or `--evidence PLACE`."""
        if self.evidence is None:
            return f"--stack {self.stack}"
        return f"--evidence {_path(self.evidence)}"

    @property
    def is_store(self) -> bool:
        """Whether it is a stack of volumes and not a sweep."""
        return self.file.key == STORE_KEY

    def likely_evidence(self) -> str | None:
        """Where the evidence would be by the stack file, for a sweep that the backend no longer has."""
        return self.evidence or evidence_uri(self.root, self.file.pull_to() or "")

    def no_cell(self, cell: str, known: Iterable[str]) -> No:
        """The error for a cell that the sweep does not have, with a similar name, or some of its cells."""
        names = list(known)
        hint = did_you_mean(cell, names)
        if not hint and names:
            hint = f"; it has {', '.join(names[:5])}{f' and {len(names) - 5} more' if names[5:] else ''}"
        shows = "status" if self.evidence is None else "results"
        return No(f"there is no cell {cell} in {self.stack}{hint}", [f"sweepctl {shows} {self.named()}"])

    def no_stack(self, problem: str = "") -> Unsure:
        """The error for a stack that the backend does not have, with the likely reason. `problem`: why its evidence
        can't be read."""
        from sweepstack.evidence.stack_copy import remembered

        place, were = self.likely_evidence(), remembered(self.stack)
        if place is not None and place in were:
            why = (
                "is not there any more: what was rented is not known, and `pulumi up` would rent anew. Put it back, or "
                "look first"
            )
            if problem:
                why = f"does not read, so what was rented is not known: {problem}"
            return Unsure(
                f"the backend has no stack {self.stack}, and its evidence, which was at {_path(place)}, {why}",
                ["sweepctl audit    (what bills, and what ends it)"],
            )
        there = self.file.path.exists()
        if not there and (kept := self._kept()):
            return kept
        if place is None and were:
            lost = "does not say where its evidence is" if there else "is not there"
            return Unsure(
                f"the backend has no stack {self.stack}, and {self.file.shown} {lost}. Its evidence was at "
                f"{' and '.join(map(_path, were))}: what was rented is not known, and `pulumi up` would rent anew. Put "
                "back what is missing, or look first",
                ["sweepctl audit    (what bills, and what ends it)"],
            )
        if there:
            unread = f". Its evidence does not read: {problem}" if problem and place is not None else ""
            return (Unsure if unread else NeverUp)(
                f"the backend has no stack {self.stack}: nothing was ever brought up, or it was removed, or it is in "
                f"another backend (PULUMI_BACKEND_URL){unread}",
                [f"pulumi stack init {self.stack} && pulumi up --stack {self.stack}"],
            )
        near = closest(self.stack, StackFile.stacks(self.root))
        return NeverUp(
            f"there is no stack {self.stack}: the backend has none, and {self.file.shown} "
            f"is not there{did_you_mean(self.stack, [near] if near else [])}",
            [f"sweepctl status --stack {near}"] if near else [f"sweepctl init {self.stack}"],
        )

    def _kept(self) -> Unsure | None:
        """The same error if this computer remembers where the evidence is, and it is there; None if it is not."""
        from sweepstack.evidence.stack_copy import copy_back, places_of
        from sweepstack.evidence.store import EvidenceStore

        places = places_of(self.stack)
        if not places:
            return None
        following = [f"sweepctl results --evidence {_path(places[0])}    (also logs, show, verify)"]
        with contextlib.suppress(EvidenceError):
            if back := copy_back(EvidenceStore.open(places[0]), self.file.path):
                following.append(f"{back} && pulumi stack init {self.stack}    (brings the stack file back)")
        return Unsure(
            f"the backend has no stack {self.stack}, and {self.file.shown} is not there: `pulumi stack rm` deletes "
            f"both. Its evidence is at {' and '.join(map(_path, places))}",
            following,
        )


def project_root(stack: str | None = None, start: Path | None = None) -> Path:
    """The project's folder, at or above the working folder. `stack`: the one that was named, if any.

    Raises Unsure: only its Pulumi.yaml is gone, with what brings it back; NoProject, with what to type.
    """
    start = (start or Path.cwd()).resolve()
    try:
        return find_project_root(start)
    except ConfigError as error:
        raise _without_project(start, stack, error) from error


def _path(uri: str) -> str:
    """An address of evidence as a person types it: for a folder of this host, its path."""
    return "/" + uri.removeprefix("file://").partition("/")[2] if uri.startswith("file://") else uri


def approval_of(target: Target, problems: list[str] | None = None) -> Approval | None:
    """The stack file's approval, which the next `up` would write into the state; None if there is none, or if it is
    malformed: `problems` gets why."""
    try:
        return target.file.approval() if target.file.path.exists() else None
    except ConfigError as error:
        if problems is not None:
            problems.append(str(error))
        return None


def _without_project(start: Path, stack: str | None, error: ConfigError) -> SweepstackError:
    """The error where no Pulumi.yaml is found: with what brings it back, where stack files say that one was here."""
    folder = next((one for one in (start, *start.parents) if stacks_in(one) or stacks_in(one / STACKS)), None)
    if folder is None:
        near = sorted(one.parent.name for one in start.glob("*/Pulumi.yaml"))
        into = f"cd {' or '.join(near[:3]) or 'FOLDER'}    (your project)"
        return NoProject(str(error), [into, project_fix()])
    name = _project_on_record(stack) if stack else ""
    what = f"; its name has to be {name} again" if name else ""
    back = f"git -C {_path(str(folder))} checkout -- Pulumi.yaml    (or from a backup{what})"
    return Unsure(
        f"there is no Pulumi.yaml in {folder}, where stack files are: without it the engine runs no command. Boxes run "
        "on, and bill",
        [back],
    )


def _project_on_record(stack: str) -> str:
    """The project of the last evidence that this computer remembers of a stack of this name; "" if there is none."""
    from sweepstack.evidence.stack_copy import places_of
    from sweepstack.evidence.store import EvidenceStore

    with contextlib.suppress(EvidenceError):
        return next((EvidenceStore.open(uri).marker.project for uri in reversed(places_of(stack))), "")
    return ""
