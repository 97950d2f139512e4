"""Packs the agent's code for a box: all modules that it imports, and a loader."""

from __future__ import annotations

import base64
import functools
import json
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.channel.interpreters import PYTHON, finding

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "sweepstack.onbox.common.errors",
    "sweepstack.onbox.common.canonical",
    "sweepstack.onbox.agent.channel",
    "sweepstack.onbox.common.file_walk",
    "sweepstack.onbox.common.processes",
    "sweepstack.onbox.common.run_process",
    "sweepstack.onbox.agent.shell",
    "sweepstack.onbox.agent.local_channel",
    "sweepstack.onbox.agent.agent",
)
"""The last one runs; the others are what it imports."""

VISITING = ("sweepstack.onbox.common.errors", "sweepstack.onbox.agent.channel", "sweepstack.onbox.agent.shell")
"""The few that a person's own command needs: they go as an argument, which `ps` on the box shows."""

OLDEST = (3, 8)

# Sent in single quotes to whatever shell the account has: no such quote, no `, \\, ! or newline in it.
_READ = "import sys,zlib;r=sys.stdin.buffer;exec(zlib.decompress(r.read(int(r.readline()))))"
_GIVEN = "import sys,zlib,base64;exec(zlib.decompress(base64.b64decode(sys.argv[1])))"

_ONCE = threading.Lock()

_LOADER = """
import sys
if sys.version_info < {oldest}:
    found = "sweepstack: python3 here is %d.%d, and {oldest[0]}.{oldest[1]} is the oldest that will do"
    sys.stderr.write(found % sys.version_info[:2] + chr(10))
    sys.exit(97)
import datetime, enum, json, types
if not hasattr(datetime, "UTC"):
    datetime.UTC = datetime.timezone.utc
if not hasattr(enum, "StrEnum"):
    class StrEnum(str, enum.Enum):
        __str__ = str.__str__
    enum.StrEnum = StrEnum
boot = types.ModuleType("sweepstack_boot")
exec(compile({boot!r}, "<sweepstack>/sweep.channel.agent_boot", "exec"), boot.__dict__)
{rest}
__import__({main!r})
{call}
"""


def reading(python: str) -> str:
    """The remote command that reads its `program` from stdin. Nothing but the standard library is looked for: what a
    host has installed beside it takes longer to start than all of ours. `python3` is found as `finding` says."""
    return _started(python, f"-I -S -c '{_READ}'")


def given(python: str, program: bytes) -> str:
    """The remote command that has its program with it, and leaves stdin to what it runs."""
    return _started(python, f"-I -c '{_GIVEN}' {base64.b64encode(program).decode('ascii')}")


def _started(python: str, words: str) -> str:
    alone = "exec env -u SWEEPSTACK_BOX_ID"
    if python != PYTHON:
        return f"{alone} {python} {words}"
    found = finding() + '; exec "$q" "$@"'
    return f"{alone} sh -c '{found}' sh {words}"


def agent(settings: Mapping[str, Any]) -> bytes:
    """The program that serves, for `reading`."""
    return program(settings, MODULES, 'sys.modules["sweepstack.onbox.agent.agent"].main(settings)')


def visit(settings: Mapping[str, Any]) -> bytes:
    """The program that runs a person's command: compressed, for `given`."""
    call = 'sys.exit(sys.modules["sweepstack.onbox.agent.shell"].visit(settings))'
    rest = f"settings = json.loads({json.dumps(dict(settings))!r}); boot.load({_blob(VISITING)!r})"
    return _loader(rest, VISITING, call)


def program(settings: Mapping[str, Any], modules: tuple[str, ...], call: str, keep: str | None = None) -> bytes:
    """A program that imports the last of these modules and then runs `call`, which may use `settings`: a line with the
    length of its loader, that loader, a line with the settings, and the modules.

    `keep`: the root folder of the platform there, "" for the usual one, below which the compiled modules are kept;
    where that folder is not there, or for None, nothing is."""
    with _ONCE:  # many hosts are asked at the same moment
        code, blob = _code(modules, call), _blob(modules)
    line = json.dumps({"settings": dict(settings), "keep": keep, "bytes": len(blob)}).encode("ascii")
    return b"%d\n%b%b\n%b" % (len(code), code, line, blob)


@functools.cache
def _code(modules: tuple[str, ...], call: str) -> bytes:
    """`r` is what `_READ` reads from."""
    rest = 'said = json.loads(r.readline()); settings = said["settings"]; '
    rest += 'boot.load(r.read(said["bytes"]), boot.folder(said["keep"]))'
    return _loader(rest, modules, call)


@functools.cache
def _blob(modules: tuple[str, ...]) -> bytes:
    return zlib.compress(json.dumps([(name, _source(name)) for name in modules]).encode("ascii"))


def _loader(rest: str, modules: tuple[str, ...], call: str) -> bytes:
    boot = _source("sweepstack.onbox.agent.bootstrap")
    text = _LOADER.format(oldest=OLDEST, boot=boot, rest=rest, main=modules[-1], call=call)
    return zlib.compress(text.encode("utf-8"))


def _source(name: str) -> str:
    return (ROOT / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
