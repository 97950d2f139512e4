"""The stack config as a file that programs edit: only the `approval` block, every other byte as it was.

A dump by any YAML writer would align, fold and quote anew what a person laid out, and the diff of a pull request would
show it. So the block is cut out and put in by line, at the end of `sweepstack:sweep`; where the file is in flow style
and has no lines of its own, it is dumped by round trip. Either way the result is parsed again, and written only if
nothing but the approval differs.
"""

from __future__ import annotations

import copy
import fcntl
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from sweep.canonical import write_atomically
from sweep.errors import ConfigError
from sweep.model import Approval

ROOT_KEY = "sweepstack:sweep"
HEADER = "# Written by `sweepctl approve`; `sweepctl approve --revoke` takes it out."
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_UNFOLDED = 1 << 16


@lru_cache(maxsize=2)
def _parsed(text: str) -> Any:
    """The YAML in `text`. One command asks several times, and a sweep of many cells takes a second to parse."""
    return YAML(typ="safe", pure=True).load(text)


def find_project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds a Pulumi.yaml. Raises ConfigError when there is none."""
    for folder in [start, *start.parents]:
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise ConfigError(f"there is no Pulumi.yaml in {start} or above it: run this inside a sweepstack project")


def stack_config_dir(project_root: Path) -> Path:
    """Where the project keeps its stack configs (`stackConfigDir` in Pulumi.yaml, else the root)."""
    path = project_root / "Pulumi.yaml"
    try:
        data = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except (OSError, ValueError, YAMLError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from error
    folder = data.get("stackConfigDir") if isinstance(data, dict) else None
    return project_root / str(folder) if folder else project_root


def valid_stack_name(name: str) -> bool:
    """Whether a new stack may be called so: it becomes part of file names, tags and commands."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class StackFile:
    """`Pulumi.<stack>.yaml`. Reading costs a few milliseconds; nothing is cached."""

    path: Path
    shown: str
    """The path for messages: relative to the project root where it lies below it."""

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

    def sweep(self) -> dict[str, Any]:
        """The `sweepstack:sweep` object as plain data, unchecked. Raises ConfigError: no file, no such object."""
        return _sweep_of(self._data(self._text()), self.shown)

    def pull_to(self) -> str | None:
        """Where the evidence goes, as it was written; None where the file or the key is not there or not readable."""
        try:
            value = self.sweep().get("pull_to")
        except ConfigError:
            return None
        return value if isinstance(value, str) else None

    def approval(self) -> Approval | None:
        """The approval that the file holds. Raises ConfigError when there is one and it is malformed."""
        raw = self.sweep().get("approval")
        if raw is None:
            return None
        try:
            return Approval.model_validate(raw)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(["approval", *(str(part) for part in problem["loc"])])
            raise ConfigError(
                f"{self.shown}: {where}: {problem['msg']}. Approvals are written by `sweepctl approve`; "
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
            mode = stat.S_IMODE(self.path.stat().st_mode)
            write_atomically(self.path.resolve(), after.encode("utf-8"), mode=mode)
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
            return _want_spliced(text, box, want) or _want_dumped(text, box, want)

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
            expected = wanted(_sweep_of(old, self.shown))
            if expected == _sweep_of(old, self.shown):
                return False
            newline = "\r\n" if "\r\n" in before else "\n"
            try:
                after = change(before.replace("\r\n", "\n"))
                new = self._data(after)
                same = _sweep_of(new, self.shown) == expected
                new["config"][ROOT_KEY] = old["config"][ROOT_KEY] = None
                problem = "" if same and new == old else "that would change more than it should"
            except (ConfigError, YAMLError) as error:
                problem = str(error)
            if problem:
                raise ConfigError(f"{self.shown} was left as it is: {problem}. Write it by hand: {instead}")
            mode = stat.S_IMODE(self.path.stat().st_mode)
            write_atomically(self.path.resolve(), after.replace("\n", newline).encode("utf-8"), mode=mode)
            return True

    def write_pull_to(self, place: str) -> bool:
        """Sets `pull_to`. False when it stood there already. See `edit`."""

        def change(text: str) -> str:
            sweep = _node(_node(YAML(typ="rt", pure=True).compose(text), "config"), ROOT_KEY)
            return _value_spliced(text, sweep, "pull_to", place) or text

        return self.edit(change, lambda sweep: {**sweep, "pull_to": place}, f"pull_to: {place}")

    def _edited(self, before: str, approval: Approval | None) -> str:
        old = self._data(before)
        had = "approval" in _sweep_of(old, self.shown)
        if approval is None and not had:
            return before
        newline = "\r\n" if "\r\n" in before else "\n"
        text = before.replace("\r\n", "\n")
        lines = _block(approval) if approval else None
        after = spliced(text, "approval", HEADER, lines)
        if after is None or not self._only_approval_differs(old, after, approval):
            after = _dumped(text, approval)
            if not self._only_approval_differs(old, after, approval):
                raise ConfigError(
                    f"{self.shown} can't be edited without changing more than the approval, so it was left as it is. "
                    f"Write {ROOT_KEY} in block style, one key a line"
                )
        return after.replace("\n", newline)

    def _only_approval_differs(self, old: Any, after: str, approval: Approval | None) -> bool:
        try:
            new = self._data(after)
        except ConfigError:
            return False
        sweep, expected = dict(_sweep_of(new, self.shown)), dict(_sweep_of(old, self.shown))
        written = sweep.pop("approval", None)
        expected.pop("approval", None)
        if list(sweep.items()) != list(expected.items()):
            return False
        rest, before = ({**data, "config": {**data["config"], ROOT_KEY: None}} for data in (new, old))
        same_word = (Approval.model_validate(written) if written else None) == approval
        return bool(rest == before and same_word)

    def _text(self) -> str:
        try:
            with self.path.open(encoding="utf-8", newline="") as handle:
                return handle.read()
        except FileNotFoundError as error:
            raise ConfigError(f"{self.shown} is not there. Next: sweepctl new {_stack_of(self.path)}") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.shown} can't be read: {error}") from error

    def _data(self, text: str) -> Any:
        try:
            return copy.deepcopy(_parsed(text))
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else "?"
            raise ConfigError(f"{self.shown}:{line}: {error.problem or 'not YAML'}") from error
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


def _sweep_of(data: Any, shown: str) -> dict[str, Any]:
    config = data.get("config") if isinstance(data, dict) else None
    sweep = config.get(ROOT_KEY) if isinstance(config, dict) else None
    if not isinstance(sweep, dict):
        raise ConfigError(f"{shown}: there is no config.{ROOT_KEY}: that object is what describes a sweep")
    return sweep


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds" if moment.microsecond else "seconds")[:-6] + "Z"


def _plain(approval: Approval) -> CommentedMap:
    """The approval as YAML nodes: times quoted, since YAML would make something of them; one line a row."""
    raw = approval.model_dump(mode="json")
    raw |= {key: DoubleQuotedScalarString(_time(getattr(approval, key))) for key in ("at", "expires")}
    order = ["receipt", "actions", "waive", "abandon", "waivers_digest", "by", "at", "expires"]
    plain = CommentedMap((key, raw[key]) for key in [*order, *(key for key in raw if key not in order)])
    for key in ("actions", "waive", "abandon"):
        if not plain[key]:
            del plain[key]
            continue
        rows = []
        for row in plain[key]:
            mapping = CommentedMap(row)
            mapping.fa.set_flow_style()
            rows.append(mapping)
        plain[key] = rows
    if "actions" not in plain:
        plain.insert(1, "actions", [])
    return plain


def _writer() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = _UNFOLDED
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))
    return yaml


def _block(approval: Approval) -> list[str]:
    """The lines of the block, not indented yet."""
    out = io.StringIO()
    _writer().dump(CommentedMap(approval=_plain(approval)), out)
    return [HEADER, *out.getvalue().rstrip("\n").split("\n")]


def _dumped(text: str, approval: Approval | None) -> str:
    yaml = _writer()
    data = yaml.load(text)
    sweep = data["config"][ROOT_KEY]
    sweep.pop("approval", None)
    if approval is not None:
        sweep["approval"] = _plain(approval)
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def spliced(text: str, name: str, header: str, block: list[str] | None) -> str | None:
    """`text` with the lines of the key `name`, and the comment `header` above it, replaced by `block` at the end of the
    sweep; None where it has no lines of its own."""
    sweep = _node(_node(YAML(typ="rt", pure=True).compose(text), "config"), ROOT_KEY)
    if sweep is None or sweep.flow_style or not sweep.value:
        return None
    lines = text.split("\n")
    column = sweep.value[0][0].start_mark.column
    keys = [(key.value, key.start_mark.line) for key, _ in sweep.value]
    end = _end_of(lines, keys[-1][1], sweep.end_mark.line, column)
    starts = [line for _, line in keys] + [end]
    for index, (key, first) in enumerate(keys):
        if key == name:
            last = _end_of(lines, first, starts[index + 1], column + 1)
            if first > 0 and lines[first - 1].strip() == header:
                first -= 1
            del lines[first:last]
            end -= last - first
            break
    if block is not None:
        lines[end:end] = [" " * column + line for line in block]
        if end == len(lines) - len(block):
            lines.append("")
    return "\n".join(lines)


def _want_spliced(text: str, box: str, want: str) -> str | None:
    """`text` with the value of `boxes.<box>.want` replaced where it stands; None where there is none to replace."""
    boxes = _node(_node(_node(YAML(typ="rt", pure=True).compose(text), "config"), ROOT_KEY), "boxes")
    return _value_spliced(text, _node(boxes, box), "want", want)


def _value_spliced(text: str, mapping: MappingNode | None, name: str, new: str) -> str | None:
    """`text` with the plain value of one key replaced where it stands; None where there is none on one line."""
    for key, value in mapping.value if mapping is not None else ():
        if key.value == name and isinstance(value, ScalarNode):
            lines = text.split("\n")
            start, end = value.start_mark, value.end_mark
            if start.line == end.line:
                line = lines[start.line]
                lines[start.line] = line[: start.column] + new + line[end.column :]
                return "\n".join(lines)
    return None


def _want_dumped(text: str, box: str, want: str) -> str:
    """The same by round trip, for a box without a `want` of its own."""
    yaml = _writer()
    data = yaml.load(text)
    boxes = data["config"][ROOT_KEY]["boxes"]
    if boxes[box] is None:
        boxes[box] = CommentedMap()
    boxes[box]["want"] = want
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def _end_of(lines: list[str], first: int, limit: int, column: int) -> int:
    """One past the last line below `first` and before `limit` that is content, or a comment indented to `column`."""
    limit = min(limit if limit > first else first + 1, len(lines))
    while limit > first + 1:
        line = lines[limit - 1]
        indented = len(line) - len(line.lstrip())
        if line.strip() and not (line.lstrip().startswith("#") and indented < column):
            break
        limit -= 1
    return limit


def _node(parent: Node | None, key: str) -> MappingNode | None:
    if not isinstance(parent, MappingNode):
        return None
    for name, value in parent.value:
        if isinstance(name, ScalarNode) and name.value == key and isinstance(value, MappingNode):
            return value
    return None
