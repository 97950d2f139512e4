"""The code that runs on a rented box, as it is sent there: the agent with all modules that it imports, and a loader."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SWEEP = Path(__file__).resolve().parents[1]
MODULES = (
    "errors",
    "canonical",
    "channel",
    "channel.base",
    "channel.walking",
    "channel.processes",
    "channel.running",
    "channel.visiting",
    "channel.local",
    "channel.agent",
)
"""In the order in which they are loaded: each after what it imports."""

VISITING = ("errors", "channel", "channel.base", "channel.visiting")
"""The few that a person's own command needs: they go as an argument, which `ps` on the box shows."""

OLDEST = (3, 8)

# Sent as an argument to whatever shell the account has: no quotes but these, no $, `, \\, ! or newline in it.
_READ = "import sys,zlib;r=sys.stdin.buffer;exec(zlib.decompress(r.read(int(r.readline()))))"
_GIVEN = "import sys,zlib,base64;exec(zlib.decompress(base64.b64decode(sys.argv[1])))"

_LOADER = """
import sys
if sys.version_info < {oldest}:
    found = "sweepstack: python3 here is %d.%d, and {oldest} is the oldest that will do"
    sys.stderr.write(found % sys.version_info[:2] + chr(10))
    sys.exit(97)
import json, types
settings = json.loads({settings!r})
modules = json.loads({modules!r})
sys.modules["sweep"] = types.ModuleType("sweep")
sys.modules["sweep"].__path__ = []
for name, text in modules:
    module = types.ModuleType("sweep." + name)
    module.__file__ = "<sweepstack>/" + name
    if name == "channel":
        module.__path__ = []
    sys.modules[module.__name__] = module
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    parent, _, last = module.__name__.rpartition(".")
    setattr(sys.modules[parent], last, module)
{call}
"""


def reading(python: str) -> str:
    """The remote command that reads its program from stdin: a line with its length, then `program`."""
    return f"exec env -u SWEEPSTACK_BOX_ID {python} -I -c '{_READ}'"


def given(python: str, program: bytes) -> str:
    """The remote command that has its program with it, and leaves stdin to what it runs."""
    return f"exec env -u SWEEPSTACK_BOX_ID {python} -I -c '{_GIVEN}' {base64.b64encode(program).decode('ascii')}"


def agent(settings: Mapping[str, Any]) -> bytes:
    """The program that serves: compressed, for `reading`."""
    return _program(settings, _modules(MODULES), 'sys.modules["sweep.channel.agent"].main(settings)')


def visit(settings: Mapping[str, Any]) -> bytes:
    """The program that runs a person's command: compressed, for `given`."""
    call = 'sys.exit(sys.modules["sweep.channel.visiting"].visit(settings))'
    return _program(settings, _modules(VISITING), call)


def _program(settings: Mapping[str, Any], modules: str, call: str) -> bytes:
    text = _LOADER.format(oldest=OLDEST, settings=json.dumps(dict(settings)), modules=modules, call=call)
    return zlib.compress(text.encode("utf-8"), 9)


@functools.cache
def _modules(names: tuple[str, ...]) -> str:
    return json.dumps([(name, _source(name)) for name in names])


def _source(name: str) -> str:
    if name == "channel":
        return ""
    return (SWEEP / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
