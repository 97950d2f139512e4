"""Copies a file, a text or a folder to another machine: a shell script there reads it on its stdin.

Where things go is as in pulumi-command. A file that is copied to an existing folder keeps its name. A folder is put
below an existing or new one, under its own name; if its path ends with `/`, only its content is. Nothing is removed on
the other machine.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from sweepstack.onbox.common.errors import PlatformError


@dataclass(frozen=True)
class Copy:
    """A shell command for the other machine, and its stdin."""

    command: str
    stdin: bytes


_FAIL = 'fail() { echo "$*" >&2; exit 1; }\n'
_TEXT = """\
[ ! -d {to} ] || fail "remote path "{to}" is a directory; when using a text asset, remotePath must be a file path"
mkdir -p "$(dirname {to})" || fail "failed to create parent directories for "{to}
cat > {to} || fail "failed to create remote file "{to}
"""
_FILE = """\
to={to}
if [ -d "$to" ]; then to=$to/{name}; elif [ ! -e "$to" ]; then
    mkdir -p "$(dirname "$to")" || fail "failed to create parent directories for $to"
fi
cat > "$to" || fail "failed to create remote file $to"
"""
_FOLDER = """\
to={to}
[ -e "$to" ] || mkdir -p "$to" || fail "failed to create remote directory $to"
{below}
for one in . {folders}; do
    [ ! -e "$to/$one" ] || [ -d "$to/$one" ] || fail "remote path $to/$one exists but is not a directory"
done
[ -d "$to" ] || fail "remote path $to exists but is not a directory"
tar -x -o -C "$to" -f - || fail "failed to copy to $to"
"""
_BELOW = """\
to=$to/{name}
[ ! -e "$to" ] || [ -d "$to" ] || fail "remote path $to exists but is not a directory"
[ -d "$to" ] || mkdir "$to" || fail "failed to create remote directory $to"
"""


def copy_of(source: Mapping[str, Any], remote_path: str) -> Copy:
    """The command that copies an asset or archive to `remote_path`. Reads the files and sends nothing. Raises
    PlatformError if they can't be read."""
    to, path = quote(remote_path), str(source.get("path") or "")
    if not path:
        return Copy(_FAIL + _TEXT.format(to=to), str(source.get("text", "")).encode())
    name = quote(Path(path).name)
    try:
        if not os.path.isdir(path):
            return Copy(_FAIL + _FILE.format(to=to, name=name), Path(path).read_bytes())
        below = "" if path.endswith("/") else _BELOW.format(name=name)
        content, folders = _packed(Path(path))
    except OSError as error:
        raise PlatformError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    listed = " ".join(quote(folder) for folder in folders)
    return Copy(_FAIL + _FOLDER.format(to=to, below=below, folders=listed), content)


def _packed(root: Path) -> tuple[bytes, list[str]]:
    """A folder's files as a tar stream, and the names of its folders. Links are followed; modes are not kept."""
    buffer, folders = io.BytesIO(), []
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as tar:
        for path in sorted(root.rglob("*")):
            info = tar.gettarinfo(path, str(path.relative_to(root)))
            info.mode, info.uid, info.gid, info.uname, info.gname = 0o755 if info.isdir() else 0o644, 0, 0, "", ""
            info.type = tarfile.REGTYPE if info.islnk() else info.type
            if info.isdir():
                folders.append(info.name)
                tar.addfile(info)
                continue
            content = path.read_bytes()
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue(), folders
