"""The stack config as a file that programs edit: only the `approval` block, every other byte as it was.

A dump by any YAML writer would align, fold and quote anew what a person laid out, and the diff of a pull request would
show it. So the block is cut out and put in by line, at the end of `sweepstack:sweep`; where the file is in flow style
and has no lines of its own, it is dumped by round trip. Either way the result is parsed again, and written only if
nothing but the approval differs.
"""

from __future__ import annotations

import copy
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from sweepstack.config.edit.text import (
    HEADER,
    ROOT_KEY,
    STORE_KEY,
    approval_block,
    dumped,
    node,
    spliced,
    value_spliced,
    want_dumped,
    want_spliced,
)
from sweepstack.config.yaml_bounds import composed, read_text
from sweepstack.core.printable import visible
from sweepstack.core.records import Approval
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@lru_cache(maxsize=4)
def _parsed(text: str, shown: str) -> Any:
    """The YAML in `text`. One command asks several times, and a sweep of many cells takes a second to parse."""
    composed(text, shown)  # ruamel.yaml has no bounds
    return YAML(typ="safe", pure=True).load(text)


def stack_config_dir(project_root: Path) -> Path:
    """Where the project keeps its stack configs (`stackConfigDir` in Pulumi.yaml, else the root)."""
    folder = _project(project_root).get("stackConfigDir")
    return project_root / str(folder) if folder else project_root


def find_project_name(project_root: Path) -> str:
    """The project's name in Pulumi.yaml, "" where it has none. Raises ConfigError."""
    return str(_project(project_root).get("name") or "")


def _project(project_root: Path) -> dict[str, Any]:
    path = project_root / "Pulumi.yaml"
    try:
        data = _parsed(read_text(path, str(path)), str(path))
    except (ValueError, YAMLError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from error
    return data if isinstance(data, dict) else {}


def valid_stack_name(name: str) -> bool:
    """Whether a new stack may be called so: it becomes part of file names, tags and commands."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class StackFile:
    """`Pulumi.<stack>.yaml`. Reading costs a few milliseconds; nothing is cached."""

    path: Path
    shown: str
    """The path for messages: relative to the project root where it lies below it."""
    key: str = ROOT_KEY
    """The object in it that is read and edited."""

    @classmethod
    def locate(cls, project_root: Path, stack: str) -> StackFile:
        """The file of `stack` (of `org/project/stack` the last part), whether it exists or not."""
        path = stack_config_dir(project_root) / f"Pulumi.{stack.rsplit('/', 1)[-1]}.yaml"
        shown = str(path.relative_to(project_root)) if path.is_relative_to(project_root) else str(path)
        return cls(path, shown)

    @classmethod
    def stacks(cls, project_root: Path) -> list[str]:
        """The names of all stacks that have a file here, sorted."""
        found = stack_config_dir(project_root).glob("Pulumi.*.yaml")
        return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in found)

    @property
    def is_store(self) -> bool:
        """Whether it describes a stack of volumes (`sweepstack:store`); no where it can't be read."""
        try:
            config = self._data(self._text()).get("config")
        except (ConfigError, AttributeError):
            return False
        return isinstance(config, dict) and STORE_KEY in config

    def of_store(self) -> StackFile:
        """The same file, read and edited as a stack of volumes."""
        return replace(self, key=STORE_KEY)

    def sweep(self) -> dict[str, Any]:
        """The object (`key`) as plain data, unchecked. Raises ConfigError: no file, no such object."""
        return self._object(self._data(self._text()))

    def pull_to(self) -> str | None:
        """Where the evidence goes, as it was written; None where the file or the key is not there or not readable."""
        try:
            value = self.sweep().get("pull_to")
        except ConfigError:
            return None
        return value if isinstance(value, str) else None

    def running_boxes(self) -> tuple[str, ...]:
        """The boxes that are wanted running, as they are written; none where that can't be read."""
        try:
            boxes = self.sweep().get("boxes")
        except ConfigError:
            return ()
        asked = boxes.items() if isinstance(boxes, dict) else ()
        return tuple(
            str(name) for name, box in asked if not isinstance(box, dict) or box.get("want") in (None, "running")
        )

    def approval(self) -> Approval | None:
        """The approval that the file holds. Raises ConfigError when there is one and it is malformed."""
        raw = self.sweep().get("approval")
        if raw is None:
            return None
        try:
            return Approval.model_validate(raw)
        except ValidationError as error:
            problem = error.errors()[0]
            where = visible(".".join(["approval", *(str(part) for part in problem["loc"])]))
            wrong = "is not what was written" if problem["type"] == "string_pattern_mismatch" else problem["msg"]
            raise ConfigError(
                f"{self.shown}: {where}: {wrong}. Approvals are written by `sweepctl approve`; "
                "`sweepctl approve --revoke` takes this one out"
            ) from error

    def write_approval(self, approval: Approval | None) -> bool:
        """Puts the approval in as the last key of `sweepstack:sweep`, or takes it out. False when nothing changed.

        Idempotent. Under a lock; the file is replaced by rename. Raises ConfigError, and then nothing was written.
        """
        with self._locked():
            before = self._text()
            after = self._edited(before, approval)
            if after == before:
                return False
            self._replace(after)
            return True

    def write_want(self, box: str, want: str) -> bool:
        """Sets `boxes.<box>.want`. False when it stood there already. No other value changes; comments stay.

        Idempotent. Under a lock; the file is replaced by rename. Raises ConfigError, and then nothing was written.
        """

        def wanted(sweep: dict[str, Any]) -> dict[str, Any]:
            boxes = sweep.get("boxes")
            if not isinstance(boxes, dict) or box not in boxes:
                raise ConfigError(f"{self.shown} has no boxes.{box}")
            now = boxes[box] or {}
            if not isinstance(now, dict):
                raise ConfigError(f"{self.shown}: boxes.{box} is no mapping; write {{want: {want}}}")
            if now.get("want", "running") == want:
                return sweep
            return {**sweep, "boxes": {**boxes, box: {**now, "want": want}}}

        def change(text: str) -> str:
            return want_spliced(text, box, want) or want_dumped(text, box, want)

        return self.edit(change, wanted, f"boxes.{box}.want: {want}")

    def edit(
        self, change: Callable[[str], str], wanted: Callable[[dict[str, Any]], dict[str, Any]], instead: str
    ) -> bool:
        """Lets `change` work on the text, which then has to say `wanted` of the sweep that it said before, and nothing
        else. False when it says so already.

        Under a lock; the file is replaced by rename. Raises ConfigError, with what to write by hand (`instead`), and
        then nothing was written.
        """
        with self._locked():
            before = self._text()
            old = self._data(before)
            expected = wanted(self._object(old))
            if expected == self._object(old):
                return False
            newline = "\r\n" if "\r\n" in before else "\n"
            try:
                after = change(before.replace("\r\n", "\n"))
                new = self._data(after)
                same = self._object(new) == expected
                new["config"][self.key] = old["config"][self.key] = None
                problem = "" if same and new == old else "that would change more than it should"
            except (ConfigError, YAMLError) as error:
                problem = str(error)
            if problem:
                raise ConfigError(f"{self.shown} was left as it is: {problem}. Write it by hand: {instead}")
            self._replace(after.replace("\n", newline))
            return True

    def _replace(self, text: str) -> None:
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            write_atomically(self.path.resolve(), text.encode("utf-8"), mode=mode)
        except OSError as error:  # a full disk, or one that may only be read
            words = f"{self.shown} can't be written: {error.strerror}. It was left as it is. Make room, or make it"
            instead = f'sweepctl approve --stack {_stack_of(self.path)} --abandon BOX --reason "…"'
            raise ConfigError(
                f"{words} writable, and run the command again. Next, where that can't be, and a box is to be given up: "
                f"{instead}"
            ) from error

    def write_pull_to(self, place: str) -> bool:
        """Sets `pull_to`. False when it stood there already. See `edit`."""

        def change(text: str) -> str:
            ours = node(node(YAML(typ="rt", pure=True).compose(text), "config"), self.key)
            return value_spliced(text, ours, "pull_to", place) or text

        return self.edit(change, lambda sweep: {**sweep, "pull_to": place}, f"pull_to: {place}")

    def _edited(self, before: str, approval: Approval | None) -> str:
        old = self._data(before)
        had = "approval" in self._object(old)
        if approval is None and not had:
            return before
        newline = "\r\n" if "\r\n" in before else "\n"
        text = before.replace("\r\n", "\n")
        lines = approval_block(approval) if approval else None
        after = spliced(text, "approval", HEADER, lines, self.key)
        if after is None or not self._only_approval_differs(old, after, approval):
            after = dumped(text, approval, self.key)
            if not self._only_approval_differs(old, after, approval):
                raise ConfigError(
                    f"{self.shown} can't be edited without changing more than the approval, so it was left as it is. "
                    f"Write {self.key} in block style, one key a line"
                )
        return after.replace("\n", newline)

    def _only_approval_differs(self, old: Any, after: str, approval: Approval | None) -> bool:
        try:
            new = self._data(after)
        except ConfigError:
            return False
        sweep, expected = dict(self._object(new)), dict(self._object(old))
        written = sweep.pop("approval", None)
        expected.pop("approval", None)
        if list(sweep.items()) != list(expected.items()):
            return False
        rest, before = ({**data, "config": {**data["config"], self.key: None}} for data in (new, old))
        same_word = (Approval.model_validate(written) if written else None) == approval
        return bool(rest == before and same_word)

    def _object(self, data: Any) -> dict[str, Any]:
        config = data.get("config") if isinstance(data, dict) else None
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
                raise ConfigError(f"{self.shown} is not there. Next: sweepctl new {_stack_of(self.path)}") from error
            raise

    def _data(self, text: str) -> Any:
        try:
            return copy.deepcopy(_parsed(text, self.shown))
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else "?"
            if isinstance(error, DuplicateKeyError):  # its own text quotes both values
                raise ConfigError(f"{self.shown}, line {line}: a key stands twice in the same mapping") from error
            raise ConfigError(f"{self.shown}, line {line}: {error.problem or 'not YAML'}") from error
        except (YAMLError, ValueError) as error:
            raise ConfigError(f"{self.shown}: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds a lock on the file's folder: the file itself is replaced, so a lock on it would be lost."""
        if not self.path.parent.is_dir():
            raise ConfigError(f"{self.shown} is not there. Next: sweepctl new {_stack_of(self.path)}")
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _stack_of(path: Path) -> str:
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")
