"""The stack file of one stack: finds it, reads it, and edits single values in it.

An edit sets or removes one value. It changes the text (`config.edit.text`), so every other byte stays as the person
wrote it. The result is parsed before it is written: if any other value would change, the file stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sweepstack.config.accepted import AcceptedFact, FactName
from sweepstack.config.edit.text import by_hand, put, take_out
from sweepstack.config.file import Document, parse_document
from sweepstack.config.project import stack_name, stack_path, stacks_of
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.printable import visible
from sweepstack.core.records import Approval
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import ConfigError

SWEEP_KEY = "sweepstack:sweep"
STORE_KEY = "sweepstack:store"
APPROVED = "# Written by `sweepctl approve`; `sweepctl approve --revoke` takes it out."
PLACED = "# Written by `sweepctl place`; without it `pulumi up` chooses anew."
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_BYTE_ORDER_MARK = "\ufeff"
_ACCEPTED = TypeAdapter(dict[FactName, AcceptedFact])


@lru_cache(maxsize=4)
def _read(text: str, shown: str) -> Document:
    """The parsed file. Cached: one command asks several times, and a file with many cells takes long to parse."""
    document = parse_document(text, shown)
    if document.flaws:
        raise ConfigError(f"{shown}, line {document.flaws[0].line}: {document.flaws[0].text}")
    return document


def valid_stack_name(name: str) -> bool:
    """Whether a new stack may have this name: it becomes part of file names, tags and commands."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class StackFile:
    """`Pulumi.<stack>.yaml`. Each method reads the file again."""

    path: Path
    shown: str
    """The path for messages: relative to the project root if the file is below it."""
    key: str = SWEEP_KEY
    """The key of the object that is read and edited."""

    @classmethod
    def locate(cls, project_root: Path, stack: str) -> StackFile:
        """The file of `stack` (`org/project/stack` or its last part), whether it exists or not."""
        path = stack_path(project_root, stack)
        shown = str(path.relative_to(project_root)) if path.is_relative_to(project_root) else str(path)
        return cls(path, shown)

    @classmethod
    def stacks(cls, project_root: Path) -> list[str]:
        """The names of all stacks that have a file here, sorted."""
        return stacks_of(project_root)

    @property
    def is_store(self) -> bool:
        """Whether it describes a stack of volumes (`sweepstack:store`); False if it can't be read."""
        try:
            config = _read(self._text(), self.shown).data.get("config")
        except ConfigError:
            return False
        return isinstance(config, dict) and STORE_KEY in config

    def of_store(self) -> StackFile:
        """The same file, read and edited as a stack of volumes."""
        return replace(self, key=STORE_KEY)

    def sweep(self) -> dict[str, Any]:
        """The object (`key`) as plain data, unchecked; the caller must not change it.

        Raises ConfigError: no file, no such object, or a file that `pulumi preview` can't read either.
        """
        return self._object(_read(self._text(), self.shown).data)

    def pull_to(self) -> str | None:
        """Where the evidence goes, as written in the file; None if the file or the key is missing or unreadable."""
        try:
            value = self.sweep().get("pull_to")
        except ConfigError:
            return None
        return value if isinstance(value, str) else None

    def running_boxes(self) -> tuple[str, ...]:
        """The names of the boxes with `want: running`; empty if the file can't be read."""
        try:
            boxes = self.sweep().get("boxes")
        except ConfigError:
            return ()
        asked = boxes.items() if isinstance(boxes, dict) else ()
        return tuple(
            str(name) for name, box in asked if not isinstance(box, dict) or box.get("want") in (None, "running")
        )

    def hosts(self) -> tuple[str, ...]:
        """The hosts that its boxes name, as written; empty if the file can't be read."""
        try:
            boxes = self.sweep().get("boxes")
        except ConfigError:
            return ()
        named = [box.get("host") for box in boxes.values() if isinstance(box, dict)] if isinstance(boxes, dict) else []
        return tuple(host for host in named if isinstance(host, str))

    def approval(self) -> Approval | None:
        """The approval in the file, None if there is none. Raises ConfigError if it is malformed."""
        raw = self.sweep().get("approval")
        if raw is None:
            return None
        try:
            return Approval.model_validate(raw)
        except ValidationError as error:
            problem = error.errors()[0]
            where = visible(".".join(["approval", *(str(part) for part in problem["loc"])]))
            wrong = "is not what sweepctl writes" if problem["type"] == "string_pattern_mismatch" else problem["msg"]
            raise ConfigError(
                f"{self.shown}: {where}: {wrong}. Approvals are written by `sweepctl approve`; "
                "`sweepctl approve --revoke` takes this one out"
            ) from error

    def accepted_facts(self) -> dict[str, AcceptedFact]:
        """The facts that the file accepts (`accept_facts`). Raises ConfigError if they are malformed."""
        try:
            return _ACCEPTED.validate_python(self.sweep().get("accept_facts") or {})
        except ValidationError as error:
            problem = error.errors()[0]
            where = visible(".".join(["accept_facts", *(str(part) for part in problem["loc"])]))
            raise ConfigError(
                f"{self.shown}: {where}: {problem['msg']}. Take it out; `sweepctl approve --accept-fact NAME` writes it"
            ) from error

    def create(self, text: str) -> bool:
        """Writes a new file. False if the file exists: it stays as it is. Raises OSError, and leaves no file then."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
                handle.write(text)
        except BaseException:
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise
        return True

    def write_approval(self, approval: Approval | None) -> bool:
        """Writes the approval as the last key; None removes it. See `_write`."""
        return self._write(("approval",), _rows(approval) if approval else None, APPROVED)

    def write_accepted_fact(self, name: str, accepted: AcceptedFact) -> bool:
        """Writes `accept_facts.<name>` in place of an earlier one. See `_write`."""
        path = ("accept_facts", name)
        if name in self.accepted_facts():  # may stand there on several lines, which no edit replaces
            self._write(path, None)
        return self._write(path, accepted.model_dump(mode="json"))

    def write_placement(self, placement: dict[str, Any] | None) -> bool:
        """Writes a `config.rent.Placement`, as plain values, as the last key; None removes it. See `_write`."""
        return self._write(("placement",), placement, PLACED)

    def write_want(self, box: str, want: str) -> bool:
        """Sets `boxes.<box>.want` of a box that the file names. See `_write`."""
        boxes = self.sweep().get("boxes")
        if not isinstance(boxes, dict) or box not in boxes:
            raise ConfigError(f"{self.shown} has no boxes.{box}")
        if isinstance(boxes[box], dict | None) and (boxes[box] or {}).get("want", "running") == want:
            return False
        return self._write(("boxes", box, "want"), want)

    def write_drop(self, cell: str, reason: str) -> bool:
        """Writes `cell: reason` into `cells.drop`. See `_write`."""
        return self._write(("cells", "drop", cell), reason)

    def write_pull_to(self, place: str) -> bool:
        """Sets `pull_to`. See `_write`."""
        return self._write(("pull_to",), place)

    def _write(self, path: tuple[str, ...], value: Any, header: str = "") -> bool:
        """Sets the value at `path` of the object; None removes it. False if the file has this value already.

        With `header`, a comment, the value becomes the last key, below that comment. No other byte changes. Idempotent.
        Holds a lock; replaces the file by rename. Raises ConfigError, which says what to do by hand; nothing was
        written then.
        """
        with self._locked():
            raw = self._text()
            mark = _BYTE_ORDER_MARK * raw.startswith(_BYTE_ORDER_MARK)
            before = raw.removeprefix(mark)
            data = _read(before, self.shown).data
            now = self._object(data)
            try:
                wanted = _changed(now, path, value, last=bool(header))
                if _same(wanted, now):
                    return False
                after = self._edited(before, path, value, header)
                expected = {**data, "config": {**data["config"], self.key: wanted}}
                problem = (
                    "" if _same(_read(after, self.shown).data, expected) else "the edit would change other values too"
                )
            except ConfigError as error:
                problem = str(error)
            if problem:
                raise ConfigError(f"{self.shown} was left as it is: {problem}. {by_hand(path, value)}")
            self._replace(mark + after)
            return True

    def _edited(self, text: str, path: tuple[str, ...], value: Any, header: str) -> str:
        whole = ("config", self.key, *path)
        if header or value is None:
            text = take_out(text, _read(text, self.shown).root, whole, header)
        return text if value is None else put(text, _read(text, self.shown).root, whole, value, header)

    def _replace(self, text: str) -> None:
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            write_atomically(self.path.resolve(), text.encode("utf-8"), mode=mode)
        except OSError as error:  # a full disk, or one that may only be read
            words = (
                f"{self.shown} can't be written: {error.strerror}. It was left as it is. Free some space, or make it"
            )
            instead = f'sweepctl approve --stack {stack_name(self.path)} --abandon BOX --reason "…"'
            raise ConfigError(
                f"{words} writable, and run the command again. Next, if you can do neither and give up a box's data: "
                f"{instead}"
            ) from error

    def _object(self, data: dict[str, Any]) -> dict[str, Any]:
        config = data.get("config")
        found = config.get(self.key) if isinstance(config, dict) else None
        if not isinstance(found, dict):
            what = "volumes that outlive sweeps" if self.key == STORE_KEY else "a sweep"
            raise ConfigError(f"{self.shown}: there is no config.{self.key}: that object is what describes {what}")
        return found

    def _text(self) -> str:
        try:
            return read_text(self.path, self.shown)
        except ConfigError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise ConfigError(f"{self.shown} is not there. Next: sweepctl new {stack_name(self.path)}") from error
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the folder: an edit replaces the file, so a lock on the file itself would be lost."""
        if not self.path.parent.is_dir():
            raise ConfigError(f"{self.shown} is not there. Next: sweepctl new {stack_name(self.path)}")
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _changed(now: dict[str, Any], path: Sequence[str], value: Any, *, last: bool) -> dict[str, Any]:
    """A copy of `now` with `value` at `path`; None removes the key."""
    name, *rest = path
    if rest:
        inner = {} if now.get(name) is None else now[name]
        if not isinstance(inner, dict):
            raise ConfigError(f"{name} holds no keys")
        value = _changed(inner, rest, value, last=last)
    kept = {key: there for key, there in now.items() if key != name} if value is None or last else now
    return kept if value is None else {**kept, name: value}


def _same(one: Any, other: Any) -> bool:
    """Whether two parsed files are equal, where True is not 1 and the order of keys counts."""
    return repr(one) == repr(other)


def _rows(approval: Approval) -> dict[str, Any]:
    """The approval as it is written into the file: without empty lists, but `boxes` always."""
    raw = approval.model_dump(mode="json")
    raw |= {key: _time(getattr(approval, key)) for key in ("at", "expires")}
    order = ("receipt", "actions", "waive", "abandon", "waivers_digest", "by", "at", "expires")
    kept = [key for key in order if raw[key] or key not in ("waive", "abandon")]
    return {key: raw[key] for key in [*kept, *(key for key in raw if key not in order)]}


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds" if moment.microsecond else "seconds")[:-6] + "Z"
