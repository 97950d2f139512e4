"""Runs first on a machine: makes the modules sent with it importable, and caches them compiled.

Compiling takes longer than answering most requests. So the compiled modules are cached on the machine if a folder is
named: one that only this user can read, in a file whose name has the digest of what was sent, and which begins with its
own digest. A file that does not match is not used, and compiled again. If the cache can't be written, there is none.
Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import marshal
import os
import stat
import sys
import zlib
from typing import Any

FOLDER = "agent"
KEPT = 4
"""Cached files that are kept: for several versions of sweepstack and of Python."""
MOST = 16 << 20
DIGEST_BYTES = 32


class Sent:
    """An import finder and loader for the modules that were sent. `codes`: name → compiled code, or its text."""

    def __init__(self, codes: dict[str, Any]) -> None:
        self._codes = codes
        self._packages = {name[:end] for name in codes for end, char in enumerate(name) if char == "."}
        self._spec: Any = type(sys.__spec__)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        if name in self._codes or name in self._packages:
            return self._spec(name, self, is_package=name not in self._codes)
        return None

    def create_module(self, spec: Any) -> None:
        """See `importlib.abc.Loader`."""

    def exec_module(self, module: Any) -> None:
        """See `importlib.abc.Loader`."""
        name = module.__name__
        if name in self._codes:
            module.__file__ = _shown(name)
            exec(_compiled(name, self._codes[name]), module.__dict__)


def folder(root: str | None) -> str:
    """The cache folder below a platform's root; "" for none (`root` is None). An empty root stands for the default,
    `sweepstack.onbox.host.box_folders.default_root`."""
    if root is None:
        return ""
    data = os.environ.get("XDG_DATA_HOME", "")
    base = data if os.path.isabs(data) else os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(root or os.path.join(base, "sweepstack", "local"), FOLDER)


def load(blob: bytes, kept_in: str = "") -> None:
    """Makes the modules in `blob` importable: compressed JSON, a list of (name, text). `kept_in`: the cache folder,
    made if its parent is there; "" for none."""
    codes = _recalled(kept_in, _name(blob)) if kept_in else None
    if codes is None:
        codes = {name: _compiled(name, text) for name, text in json.loads(zlib.decompress(blob))}
        if kept_in:
            _keep(kept_in, _name(blob), codes)
    sys.meta_path.insert(0, Sent(codes))


def _compiled(name: str, code: Any) -> Any:
    return compile(code, _shown(name), "exec", dont_inherit=True) if isinstance(code, str) else code


def _shown(name: str) -> str:
    return "<sweepstack>/" + name


def _name(blob: bytes) -> str:
    """The name of a cache file: the digest of what was sent, and the Python that compiled it."""
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER.hex()
    return f"{hashlib.sha256(blob).hexdigest()}-{sys.implementation.cache_tag}-{sys.hexversion:x}-{magic}"


def _recalled(folder: str, name: str) -> dict[str, Any] | None:
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not _ours(place, stat.S_ISDIR):
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=place), "rb") as handle:
            data = handle.read(MOST) if _ours(handle.fileno(), stat.S_ISREG) else b""
        digest, body = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        found = marshal.loads(body) if hashlib.sha256(body).digest() == digest else None
        return found if isinstance(found, dict) else None
    except (OSError, ValueError, EOFError, TypeError):
        return None
    finally:
        os.close(place)


def _keep(folder: str, name: str, codes: dict[str, Any]) -> None:
    body = marshal.dumps(codes)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        staged = f".{name}.{os.getpid()}"
        try:
            if not _ours(place, stat.S_ISDIR):
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(staged, flags, 0o600, dir_fd=place), "wb") as handle:
                handle.write(hashlib.sha256(body).digest() + body)
            os.rename(staged, name, src_dir_fd=place, dst_dir_fd=place)
            aged = sorted(os.listdir(place), key=lambda one: os.stat(one, dir_fd=place, follow_symlinks=False).st_mtime)
            for old in aged[:-KEPT]:
                os.unlink(old, dir_fd=place)
        except OSError:  # leave no half file on a full disk
            with contextlib.suppress(OSError):
                os.unlink(staged, dir_fd=place)
        finally:
            os.close(place)


def _ours(descriptor: int, kind: Any) -> bool:
    """Whether it is of this kind and owned by this user, and no other user may read or change it."""
    status = os.fstat(descriptor)
    return kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
