"""Finds the object in a stack's file: a sweep or a stack of volumes. Needs no engine.

A stack is one sweep (`sweepstack:sweep`), or volumes that outlive sweeps (`sweepstack:store`), never both: destroying
a sweep must not destroy volumes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.config.declared import MACHINES, Declared, read_declared
from sweepstack.config.file import Document, Loc, read_document
from sweepstack.config.problems import MOST_HINTS, Mistake, dotted, oddly_written, refuse, value_at
from sweepstack.config.project import stack_name, stack_path, stacks_in
from sweepstack.core.paths import profiles_folder
from sweepstack.core.suggest import closest, did_you_mean
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.platforms.common.keys import declared

PROJECT = "sweepstack"
SWEEP, STORE = "sweep", "store"
WHAT = {SWEEP: "a sweep", STORE: "a stack of volumes"}
"""The objects that a stack config may hold, each with its name in messages."""
ENGINE_KEYS = ("config", "encryptionsalt", "encryptedkey", "secretsprovider", "environment")
"""Top-level keys that the engine itself reads."""


@dataclass
class ReadStackFile:
    """A stack's file as it was read. `at`: the path of its object, None if it is not clear; `kind`: which object."""

    stack: str
    file: str
    document: Document
    kind: str = ""
    at: Loc | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    own: dict[str, Any] | None = None
    """Where the program declares the object: what the stack file has of it, which machines wrote."""
    beside: Document | None = None
    """Where the program declares the object: the stack file, which has `own`."""
    root: Path = Path()
    """The project that it was found in."""

    @property
    def values(self) -> dict[str, Any]:
        """The object as plain values."""
        assert self.at is not None
        return dict(value_at(self.document.data, self.at))

    def other_than(self, kind: str) -> Mistake:
        """The mistake for a command that needs the other kind of stack than this one."""
        key = f"{PROJECT}:{self.kind}"
        line = self.document.line(self.at or ())
        return Mistake(line, key, f"this is {WHAT[self.kind]}, and {WHAT[kind]} is needed here ({PROJECT}:{kind})")


def known_platforms() -> list[str]:
    """The platforms that have a profile."""
    return sorted(path.stem for path in profiles_folder().glob("*.md") if not path.stem.isupper())


def find(project_root: Path, stack: str, declared_text: str | None = None) -> ReadStackFile:
    """Reads `stacks/Pulumi.<stack>.yaml`, or what the program declares, which stands beside it (`config.declared`).

    `declared_text`: what the program is about to write there. Raises ConfigError if the stack file is missing or no
    YAML, or has more than machines write beside what a program declares.
    """
    path = stack_path(project_root, stack)
    file = Path(os.path.relpath(path, project_root)).as_posix()
    if not path.exists():
        raise _no_such_stack(path, file)
    found = ReadStackFile(stack.rsplit("/", 1)[-1], file, read_document(path, file), root=project_root)
    declared = read_declared(path, file, declared_text)
    if declared is not None:
        return _with_own(found, declared)
    document = found.document
    _look_for_the_object(found)
    found.mistakes += _top_level(document)
    at = found.at
    for flaw in document.flaws:
        inside = at is not None and flaw.loc[: len(at)] == at
        found.mistakes.append(Mistake(flaw.line, dotted(flaw.loc[2:] if inside else flaw.loc), flaw.text))
    return found


def _with_own(found: ReadStackFile, declared: Declared) -> ReadStackFile:
    """What the program declares, with what machines wrote into the stack file. Raises ConfigError for more there."""
    document, key = found.document, declared.key
    config = document.data.get("config") or {}
    own = config.get(key) or {} if isinstance(config, dict) else {}
    whole = {**document.data, "config": {**config, key: own}} if isinstance(config, dict) else document.data
    looked = replace(found, document=replace(document, data=whole), mistakes=_top_level(document))
    _look_for_the_object(looked)
    mistakes = looked.mistakes + [
        Mistake(
            document.line(("config", key, one)),
            dotted((one,)),
            f"the program declares this sweep ({declared.document.shown}): say it there alone, and take it out here",
        )
        for one in (own if isinstance(own, dict) else {})
        if one not in MACHINES
    ]
    if mistakes:
        raise refuse(mistakes, document)
    data = {"config": {key: {**declared.values, **own}}}
    return ReadStackFile(
        found.stack,
        declared.document.shown,
        replace(declared.document, data=data),
        key.partition(":")[2],
        ("config", key),
        own=own,
        beside=document,
        root=found.root,
    )


def line_of(project_root: Path, stack: str, *key: str) -> str:
    """`stacks/Pulumi.t.yaml, line 5`: where a key of the stack's object stands, or would. Raises ConfigError."""
    found = find(project_root, stack)
    return f"{found.file}, line {found.document.line((*(found.at or ()), *key))}"


def _no_such_stack(path: Path, file: str) -> ConfigError:
    there, name = stacks_in(path.parent), stack_name(path)
    near = did_you_mean(name, there)
    listed = f"; there are: {', '.join(there)}." if there else "."
    return ConfigError(f"{file} does not exist{near or f'{listed} To make it: sweepctl init {name}'}")


def _top_level(document: Document) -> list[Mistake]:
    unknown = [key for key in document.data if key not in ENGINE_KEYS]
    return [
        Mistake(
            document.line((key,)),
            dotted((key,), all_ascii=True),
            f"unknown key{did_you_mean(key, ENGINE_KEYS) if index < MOST_HINTS else ''}{oddly_written(key)}",
        )
        for index, key in enumerate(unknown)
    ]


def _look_for_the_object(found: ReadStackFile) -> None:
    """Finds the stack's object, and keys that look like it or that the project doesn't have."""
    document, mistakes = found.document, found.mistakes
    wanted = f"{PROJECT}:{SWEEP}"
    config = document.data.get("config")
    if not isinstance(config, dict):
        if config is not None:
            mistakes.append(Mistake(document.line(("config",)), "config", "expected keys and values"))
        else:
            mistakes.append(Mistake(1, "config", f"is missing; the sweep stands below it as {wanted}"))
        return
    keys: dict[str, str] = {}
    for key in itertools.islice(config, 1000):  # a message shows fewer than that
        namespace, colon, name = key.partition(":")
        kind = name if colon and namespace == PROJECT else key
        if kind not in WHAT:
            mistakes += _other_key(found, config, key)
            continue
        line = document.line(("config", key))
        if kind in keys:
            mistakes.append(Mistake(line, key, f"is the same as {keys[kind]}; keep one of them"))
        elif keys:
            other = next(iter(keys.values()))
            mistakes.append(
                Mistake(line, key, f"{other} is here too; a stack holds one of the two: move one to another file")
            )
        keys.setdefault(kind, key)
    if not keys:
        if not mistakes:
            mistakes.append(Mistake(document.line(("config",)), wanted, "is missing"))
        return
    found.kind, key = next(iter(keys.items()))
    if not isinstance(config[key], dict):
        mistakes.append(Mistake(document.line(("config", key)), key, "expected keys and values"))
        return
    secret = next(iter(_secrets(config[key], ())), None)
    if secret is not None:
        where = document.line(("config", key, *secret))
        fix = "an encrypted value would stand unencrypted in the state; list its name in job.secrets, and export it"
        mistakes.append(Mistake(where, dotted(secret) or key, fix))
        return
    found.at = ("config", key)


def _other_key(found: ReadStackFile, config: dict[str, Any], key: str) -> Iterator[Mistake]:
    """What is wrong with a key that is none of `WHAT`: it looks like one, or holds a platform's key unencrypted."""
    line, shown = found.document.line(("config", key)), dotted((key,), all_ascii=True)
    options = [one.option for one in declared().values()]
    namespace, colon, name = key.partition(":")
    kind = name if colon and namespace == PROJECT else key
    if colon and namespace == PROJECT and kind in options:
        if not _secrets(config[key], ()):
            asked = f"withdraw it, and `pulumi config set --secret --stack {found.stack} {shown} …`"
            yield Mistake(line, shown, f"a key stands here unencrypted: {asked}")
    elif not colon or namespace == PROJECT:
        yield Mistake(line, shown, f'unknown key; "{PROJECT}:{closest(kind, [*WHAT, *options]) or SWEEP}"?')
    elif closest(namespace, [PROJECT], cutoff=0.8):
        yield Mistake(line, shown, f'unknown namespace; "{PROJECT}:{name if name in WHAT else SWEEP}"?')


def _secrets(value: Any, loc: Loc) -> list[Loc]:
    """The paths of the engine's encrypted values."""
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            return [loc]
        return [found for key, inner in value.items() for found in _secrets(inner, (*loc, key))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in _secrets(inner, (*loc, index))]
    return []
