"""The stack file of one stack: finds it, reads it, and edits single values in it.

An edit sets or removes one value in the text: every other byte stays as the person wrote it. The result is parsed
before it is written: if any other value would change, the file stays as it is. A YAML writer would align, fold and
quote the whole file anew, and a pull request would show all of that as changed. The positions come from the YAML reader
(`config.yaml_bounds.composed`), counted in characters.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # the reader's nodes
from pydantic import TypeAdapter, ValidationError

from sweepstack.config.declared import MACHINES, Declared, read_declared
from sweepstack.config.file import flawless
from sweepstack.config.override import AcceptedFact, FactName
from sweepstack.config.project import stack_name, stack_path, stacks_of
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.printable import visible
from sweepstack.core.records import Approval
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError

SWEEP_KEY = "sweepstack:sweep"
STORE_KEY = "sweepstack:store"
APPROVED = "# Written by `sweepctl approve`; `sweepctl revoke` takes it out."
_FORMER = {APPROVED: "# Written by `sweepctl approve`; `sweepctl approve --revoke` takes it out."}
"""Comment → as an older version wrote it."""
PLACED = "# Written by `sweepctl place`; without it `pulumi up` chooses anew."
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_BYTE_ORDER_MARK = "\ufeff"


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
            declared = read_declared(self.path, self.shown)
            config = flawless(self._text(), self.shown).data.get("config")
        except ConfigError:
            return False
        if declared is not None:
            return declared.key == STORE_KEY
        return isinstance(config, dict) and STORE_KEY in config

    def of_store(self) -> StackFile:
        """The same file, read and edited as a stack of volumes."""
        return replace(self, key=STORE_KEY)

    def sweep(self) -> dict[str, Any]:
        """The object (`key`) as plain data, unchecked; the caller must not change it. Where the program declares it,
        that, with what machines wrote into the stack file.

        Raises ConfigError: no file, no such object, or a file that `pulumi preview` can't read either.
        """
        data, declared = flawless(self._text(), self.shown).data, self._declared()
        own = self._object(data, declared)
        if declared is None:
            return own
        return {**declared.values, **{key: value for key, value in own.items() if key in MACHINES}}

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
                "`sweepctl revoke` takes this one out"
            ) from error

    def accepted_facts(self) -> dict[str, AcceptedFact]:
        """The facts that the file accepts (`accept_facts`). Raises ConfigError if they are malformed."""
        try:
            accepted = TypeAdapter(dict[FactName, AcceptedFact])
            return accepted.validate_python(self.sweep().get("accept_facts") or {})
        except ValidationError as error:
            problem = error.errors()[0]
            where = visible(".".join(["accept_facts", *(str(part) for part in problem["loc"])]))
            raise ConfigError(
                f"{self.shown}: {where}: {problem['msg']}. Take it out; `sweepctl give-up fact/NAME` writes it"
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
            data = flawless(before, self.shown).data
            declared = self._declared()
            by_program = declared is not None and path[0] not in MACHINES
            now = self._object(data, declared)
            try:
                if by_program:
                    raise ConfigError("its sweep is declared by the program, which alone may change it")
                wanted = _changed(now, path, value, last=bool(header))
                if _same(wanted, now):
                    return False
                config = {**(data.get("config") or {}), self.key: wanted}
                whole = ("config", self.key, *path)
                if declared is not None and not wanted:  # no empty object is left: the engine takes none
                    del config[self.key]
                    whole = ("config", self.key) if config else ("config",)
                after = self._edited(before, whole, value, header)
                expected = {**data, "config": config}
                if not config:
                    del expected["config"]
                problem = (
                    ""
                    if _same(flawless(after, self.shown).data, expected)
                    else "the edit would change other values too"
                )
            except ConfigError as error:
                problem = str(error)
            if problem:
                line = in_program(path, value) if by_program else by_hand(path, value)
                raise ConfigError(f"{self.shown} was left as it is: {problem}. {line}")
            self._replace(mark + after)
            return True

    def _edited(self, text: str, whole: tuple[str, ...], value: Any, header: str) -> str:
        if header or value is None:
            text = take_out(text, flawless(text, self.shown).root, whole, header)
        return text if value is None else put(text, flawless(text, self.shown).root, whole, value, header)

    def _replace(self, text: str) -> None:
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            write_atomically(self.path.resolve(), text.encode("utf-8"), mode=mode)
        except OSError as error:  # a full disk, or one that may only be read
            raise ConfigError(
                f"{self.shown} can't be written: {error.strerror}. It was left as it is. Free some space, or make it "
                "writable, and run the command again"
            ) from error

    def _declared(self) -> Declared | None:
        """What the program declares of this object."""
        declared = read_declared(self.path, self.shown)
        return declared if declared is not None and declared.key == self.key else None

    def _object(self, data: dict[str, Any], declared: Declared | None = None) -> dict[str, Any]:
        config = data.get("config")
        found = config.get(self.key) if isinstance(config, dict) else None
        if found is None and declared is not None:
            return {}
        if not isinstance(found, dict):
            what = "volumes that outlive sweeps" if self.key == STORE_KEY else "a sweep"
            raise ConfigError(f"{self.shown}: there is no config.{self.key}: that object is what describes {what}")
        return found

    def _text(self) -> str:
        try:
            return read_text(self.path, self.shown)
        except ConfigError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise ConfigError(f"{self.shown} is not there. Next: sweepctl init {stack_name(self.path)}") from error
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the folder: an edit replaces the file, so a lock on the file itself would be lost."""
        if not self.path.parent.is_dir():
            raise ConfigError(f"{self.shown} is not there. Next: sweepctl init {stack_name(self.path)}")
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


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*([.+@:/-]+[A-Za-z0-9_]+)*")
"""Text that every YAML reader takes as text without quotes, except for the words excluded here."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def put(text: str, root: yaml.Node | None, path: Sequence[str], value: Any, header: str = "") -> str:
    """`text` with `value` at `path`: replaces the value there, or adds the key after the last one.

    `root`: the nodes of `text`. With `header`, a comment, the key is written at the end, below that comment, where
    `take_out` finds both. Raises ConfigError if this can't be done by changing one place.
    """
    mapping, name, value = _place(text, root, path, value)
    found = _entry(mapping, name)
    if found is None:
        block = bool(header) and not mapping.flow_style
        return _appended(text, mapping, [header, *_block(name, value)] if block else [flow({name: value})[1:-1]])
    node = found[1]
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and not _is_alias(text, node):
        raise ConfigError(f"{name} holds keys or a list there, a line each")
    start, end = node.start_mark.index, len(text[: node.end_mark.index].rstrip())
    glued = start > 0 and text[start - 1] == ":"
    return text[:start] + (" " if glued else "") + flow(value) + text[max(start, end) :]


def take_out(text: str, root: yaml.Node | None, path: Sequence[str], header: str = "") -> str:
    """`text` without the key at `path` and the comment `header` above it. Unchanged if there is no such key."""
    mapping, name, _ = _place(text, root, path, None)
    found = _entry(mapping, name)
    if found is None:
        return text
    index = next(index for index, (key, _) in enumerate(mapping.value) if key is found[0])
    return (_without_item if mapping.flow_style else _without_lines)(text, mapping, index, header)


def _place(text: str, root: yaml.Node | None, path: Sequence[str], value: Any) -> tuple[yaml.MappingNode, str, Any]:
    """The deepest mapping of `path` that exists, the key to set in it, and the value for that key."""
    node = root
    for index, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path[index - 1] if index else 'the file'} holds no keys")
        if _is_alias(text, node):
            raise ConfigError(f"{path[index - 1]} stands there as an alias")
        found = _entry(node, name)
        if index == len(path) - 1 or found is None or _is_null(found[1]):
            for inner in reversed(path[index + 1 :]):
                value = {inner: value}
            return node, name, value
        node = found[1]
    raise AssertionError("a path has a key")


def _entry(mapping: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = ((key, value) for key, value in mapping.value if isinstance(key, yaml.ScalarNode) and key.value == name)
    return next(pairs, None)


def _is_alias(text: str, node: yaml.Node) -> bool:
    return text.startswith("*", node.start_mark.index)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in ("", "~", "null", "Null", "NULL")


def _appended(text: str, mapping: yaml.MappingNode, lines: list[str]) -> str:
    if mapping.flow_style:
        entry = ", ".join(lines)
        if mapping.value:
            at, entry = mapping.value[-1][1].end_mark.index, f", {entry}"
        else:
            at = text.index("{", mapping.start_mark.index) + 1
        return text[:at] + entry + text[at:]
    column = mapping.value[0][0].start_mark.column
    at = _end(text, mapping.value[-1], mapping.end_mark.index, column)
    found = re.compile(r"\r?\n").search(text, at) or re.search(r"\r?\n", text)
    newline = found[0] if found else "\n"
    return text[:at] + "".join(f"{newline}{' ' * column}{line}" for line in lines) + text[at:]


def _without_item(text: str, mapping: yaml.MappingNode, index: int, header: str) -> str:
    """`text` without one entry of a mapping in braces, and without its comma."""
    start, end = mapping.value[index][0].start_mark.index, mapping.value[index][1].end_mark.index
    before = mapping.value[index - 1][1].end_mark.index if index else start
    if re.fullmatch(r"\s*,\s*", text[before:start]):
        return text[:before] + text[end:]
    comma = re.compile(r"\s*,[ \t]*").match(text, end)
    return text[:start] + text[comma.end() if comma else end :]


def _without_lines(text: str, mapping: yaml.MappingNode, index: int, header: str) -> str:
    """`text` without the lines of one entry, and without the comments that are indented deeper than its key."""
    key = mapping.value[index][0]
    later = mapping.value[index + 1][0] if index + 1 < len(mapping.value) else None
    stop = later.start_mark.index if later is not None else mapping.end_mark.index
    end = _end(text, mapping.value[index], stop, key.start_mark.column + 1)
    first = text.rfind("\n", 0, key.start_mark.index) + 1
    above = text.rfind("\n", 0, max(first - 1, 0)) + 1
    if header and text[above:first].strip() in (header, _FORMER.get(header)):
        first = above
    after = text.find("\n", end) + 1
    if after:
        return text[:first] + text[after:]
    return text[:first].removesuffix("\n").removesuffix("\r")


def _end(text: str, entry: tuple[yaml.Node, yaml.Node], stop: int, column: int) -> int:
    """Where the last line of an entry of a block mapping ends.

    Comments below it belong to it if they are indented to `column` and stand before `stop`.
    """
    key, node = entry
    # The parser gives no end for a block, only the place where the next token begins.
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and not _is_alias(text, node):
        last = node.value[-1]
        key, node = last if isinstance(node, yaml.MappingNode) else (last, last)
    end = max(key.end_mark.index, node.end_mark.index)
    if "+" in _indicator(text, node):  # `|+` keeps its empty lines as part of the value
        end = len(text[:end].removesuffix("\n").removesuffix("\r"))
    else:
        end = _line_end(text, len(text[:end].rstrip()))
    line = end
    while (line := text.find("\n", line) + 1) and line < stop:
        content = text[line : _line_end(text, line)]
        if content.lstrip().startswith("#") and len(content) - len(content.lstrip()) >= column:
            end = line + len(content)
        elif content.strip():
            break
    return end


def _indicator(text: str, node: yaml.Node) -> str:
    """The first line of a block scalar, such as `|+`; "" for other nodes."""
    start = node.start_mark.index
    return text[start : _line_end(text, start)].partition("#")[0] if getattr(node, "style", "") in ("|", ">") else ""


def _line_end(text: str, at: int) -> int:
    """The end of the line that contains `at`, before its line break."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _block(name: str, value: Any) -> list[str]:
    """The lines of a key and its value: one line for each key of the value, and for each row below such a key."""
    lines = [f"{flow(name)}:"]
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            rows = [f"    {flow({row: inner[row]})[1:-1]}" for row in inner]
        elif isinstance(inner, list) and inner:
            rows = [f"    - {flow(row)}" for row in inner]
        else:
            lines.append(f"  {flow({key: inner})[1:-1]}")
            continue
        lines += [f"  {flow(key)}:", *rows]
    return lines


def flow(value: Any) -> str:
    """A value as YAML on one line; text is quoted if a reader could take it for something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def in_program(path: Sequence[str], value: Any) -> str:
    """Says which line a program has to have, by the names of the schema."""
    from sweepstack.core.spelling import camel  # knows the models of the state: no command that reads needs them

    if value is None:
        return f"Take {'.'.join((camel(path[0]), *path[1:]))} out of the program"
    for name in reversed((camel(path[0]), *path[1:])):
        value = {name: value}
    return f"Write into the program, and bring it up: {flow(value)[1:-1]}"


def by_hand(path: Sequence[str], value: Any) -> str:
    """Says how a person makes the edit that could not be made."""
    if value is None:
        return f"Take {path[-1]} out by hand"
    for name in reversed(path):
        value = {name: value}
    return f"Write it by hand: {flow(value)[1:-1]}"
