"""The code that runs on a rented box, as it is sent there: the agent with all modules that it imports, and a loader."""

from __future__ import annotations

import base64
import functools
import json
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "sweep.errors",
    "sweep.canonical",
    "sweep.channel.base",
    "sweep.channel.walking",
    "sweep.channel.processes",
    "sweep.channel.running",
    "sweep.channel.visiting",
    "sweep.channel.local",
    "sweep.channel.agent",
)
"""In the order in which they are loaded: each after what it imports."""

VISITING = ("sweep.errors", "sweep.channel.base", "sweep.channel.visiting")
"""The few that a person's own command needs: they go as an argument, which `ps` on the box shows."""

OLDEST = (3, 8)

# Sent as an argument to whatever shell the account has: no quotes but these, no $, `, \\, ! or newline in it.
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
def load(name, text):
    parent, _, last = name.rpartition(".")
    if parent and parent not in sys.modules:
        load(parent, None)
    module = types.ModuleType(name)
    module.__file__ = "<sweepstack>/" + name
    sys.modules[name] = module
    if text is None:
        module.__path__ = []
    else:
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    if parent:
        setattr(sys.modules[parent], last, module)
settings = json.loads({settings})
for name, text in json.loads({modules!r}):
    load(name, text)
{call}
"""


def reading(python: str) -> str:
    """The remote command that reads its `program` from stdin. Nothing but the standard library is looked for: what a
    host has installed beside it takes longer to start than all of ours."""
    return f"exec env -u SWEEPSTACK_BOX_ID {python} -I -S -c '{_READ}'"


def given(python: str, program: bytes) -> str:
    """The remote command that has its program with it, and leaves stdin to what it runs."""
    return f"exec env -u SWEEPSTACK_BOX_ID {python} -I -c '{_GIVEN}' {base64.b64encode(program).decode('ascii')}"


def agent(settings: Mapping[str, Any]) -> bytes:
    """The program that serves, for `reading`."""
    return program(settings, MODULES, 'sys.modules["sweep.channel.agent"].main(settings)')


def visit(settings: Mapping[str, Any]) -> bytes:
    """The program that runs a person's command: compressed, for `given`."""
    call = 'sys.exit(sys.modules["sweep.channel.visiting"].visit(settings))'
    return _compressed(repr(json.dumps(dict(settings))), VISITING, call)


def program(settings: Mapping[str, Any], modules: tuple[str, ...], call: str) -> bytes:
    """A program of these modules, loaded in this order, that then runs `call`, which may use `settings`: a line with
    its length, itself, and a line with the settings."""
    with _ONCE:  # many hosts are asked at the same moment
        code = _code(modules, call)
    return b"%d\n%b%b\n" % (len(code), code, json.dumps(dict(settings)).encode("ascii"))


@functools.cache
def _code(modules: tuple[str, ...], call: str) -> bytes:
    return _compressed("sys.stdin.buffer.readline()", modules, call)


def _compressed(settings: str, names: tuple[str, ...], call: str) -> bytes:
    modules = json.dumps([(name, _source(name)) for name in names])
    text = _LOADER.format(oldest=OLDEST, settings=settings, modules=modules, call=call)
    return zlib.compress(text.encode("utf-8"))


def _source(name: str) -> str:
    return (ROOT / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
