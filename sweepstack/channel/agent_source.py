"""The code that is sent to another machine: folders of sweepstack/onbox and of extensions, a loader.

The folder `onbox` of an extension is called `sweepstack.onbox.NAME` there, as if it were one of sweepstack/onbox: its
modules import each other by `from .`, and the core's by their full names.
"""

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

ONBOX, EXTENSIONS = (Path(__file__).resolve().parents[1] / name for name in ("onbox", "extensions"))
AGENT = ("common", "visit", "agent")
"""The folders of sweepstack/onbox that the agent on a box is made of."""
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
sys.pycache_prefix = {compiled!r}
import json, types
first = types.ModuleType("sweepstack_first")
exec(compile({text!r}, "<sweepstack>/{name}", "exec"), first.__dict__)
{rest}
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


def sources(*folders: str) -> list[Path]:
    """The modules of these folders of sweepstack/onbox, or of the extensions of these names."""
    places = [(ONBOX / folder, EXTENSIONS / folder / "onbox") for folder in folders]
    return [path for own, extension in places for path in sorted(own.glob("*.py")) or sorted(extension.glob("*.py"))]


def files(*folders: str) -> list[tuple[str, Path, int]]:
    """A package of these folders that another machine imports from: (path there, source, mode). The outermost package
    is an empty one there: its names are for who reads a sweep here."""
    own = ONBOX / "__init__.py"
    modules = [(_there(source), source) for source in (own, *sources(*folders))]
    return [(there.as_posix(), source, 0o644) for there, source in ((Path("sweepstack/__init__.py"), own), *modules)]


def agent(settings: Mapping[str, Any], compiled: str | None = None) -> bytes:
    """The program that serves, for `reading`. `compiled`: a folder there that gets what it imports of the standard
    library, compiled, for a Python that is started soon with that as its `pycache_prefix`. Not where it may be full:
    Python 3.11 and older leave a module there that was cut, and fail to import it (python/cpython#126606)."""
    return program(settings, AGENT, "sweepstack.onbox.agent.agent", compiled=compiled)


def visit(settings: Mapping[str, Any]) -> bytes:
    """The program that runs a person's command: compressed, for `given`."""
    rest = f"sys.exit(first.visit(json.loads({json.dumps(dict(settings))!r})))"
    return _loader("visit/shell.py", rest)


def program(
    settings: Mapping[str, Any],
    folders: tuple[str, ...],
    main: str,
    keep: str | None = None,
    compiled: str | None = None,
) -> bytes:
    """A program that has the modules of these folders and calls `main(settings)` of the module `main`: a line with the
    length of its loader, in eight digits (`ssh.link.quotes_ours`); that loader; a line with the settings; the modules.

    `keep`: the root folder of the platform there, "" for the usual one, below which the compiled modules are kept;
    where that folder is not there, or for None, nothing is. `compiled`: see `agent`."""
    with _ONCE:  # many hosts are asked at the same moment
        loader, blob = _reading_loader(main, compiled), _blob(folders)
    line = json.dumps({"settings": dict(settings), "keep": keep, "bytes": len(blob)}).encode("ascii")
    return b"%08d\n%b%b\n%b" % (len(loader), loader, line, blob)


@functools.cache
def _reading_loader(main: str, compiled: str | None) -> bytes:
    """`r` is what `_READ` reads from."""
    rest = 'said = json.loads(r.readline()); first.load(r.read(said["bytes"]), first.folder(said["keep"])); '
    rest += f'__import__({main!r}); sys.modules[{main!r}].main(said["settings"])'
    return _loader("bootstrap.py", rest, compiled)


@functools.cache
def _blob(folders: tuple[str, ...]) -> bytes:
    found = [(_name(path), path.read_text(encoding="utf-8")) for path in sources(*folders) if path.stem != "__init__"]
    return zlib.compress(json.dumps(found).encode("ascii"))


def _loader(file: str, rest: str, compiled: str | None = None) -> bytes:
    """Runs a file of sweepstack/onbox as the module `first`, and then `rest`."""
    about = {"oldest": OLDEST, "text": (ONBOX / file).read_text(encoding="utf-8"), "compiled": compiled}
    return zlib.compress(_LOADER.format(**about, name=_name(ONBOX / file), rest=rest).encode("utf-8"))


def _name(path: Path) -> str:
    return ".".join(_there(path).with_suffix("").parts)


def _there(path: Path) -> Path:
    """Where a module lies on the other machine."""
    at = ONBOX / path.parts[-3] / path.name if path.is_relative_to(EXTENSIONS) else path
    return at.relative_to(ONBOX.parents[1])
