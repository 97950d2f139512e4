"""The archive from which the engine installs the plugin for programs in other languages than Python.

The engine asks the schema for `pluginDownloadURL`, fetches `pulumi-resource-sweepstack-v…-OS-ARCH.tar.gz` from the
release there, unpacks it, and lets its Python host install what requirements.txt names: the wheel that lies beside it.
Then it starts the command of the plugin's name; where it goes by PulumiPlugin.yaml instead, its Python host starts the
program. Both find the environment.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

SYSTEMS = ("darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64")
"""Systems as the engine names them. The bytes are the same for all: what is compiled comes from pip."""
PROJECT = """\
runtime:
  name: python
  options:
    toolchain: pip
    virtualenv: venv
"""
COMMAND = """\
#!/bin/sh
# The plugin, in the environment that the engine has made for it. exec: its parent must be the engine itself.
here=${0%/*}
for python in "$here/venv/bin/python" "$here/bin/python"; do # an old host of the engine knows no `virtualenv`
    [ ! -x "$python" ] || exec "$python" -P -m sweepstack.provider "$@"
done
echo "sweepstack: $here has no environment; install the plugin again: pulumi plugin install --reinstall" >&2
exit 1
"""
PROGRAM = '''\
"""The plugin sweepstack, in the environment that the engine has made for it beside this file."""

import os
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
for folder in (here / "venv", here):
    python = folder / "bin" / "python"
    if python.is_file() and Path(sys.prefix).resolve() != folder:
        os.execv(python, [str(python), str(here), *sys.argv[1:]])

from sweepstack.provider.__main__ import main  # noqa: E402

sys.exit(main())
'''


def archives(wheel: Path, extras: Sequence[str], version: str, epoch: int, into: Path) -> list[Path]:
    """Writes the archive for each system. The same wheel and second give the same bytes. `extras`: what is installed
    with it, since a program in another language has no pip to add one by."""
    requirements = f"./{wheel.name}[{','.join(extras)}]\n"
    files = {
        "PulumiPlugin.yaml": PROJECT.encode(),
        "pulumi-resource-sweepstack": COMMAND.encode(),
        "__main__.py": PROGRAM.encode(),
        "requirements.txt": requirements.encode(),
        wheel.name: wheel.read_bytes(),
    }
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), epoch
            info.mode = 0o755 if data.startswith(b"#!") else 0o644
            tar.addfile(info, io.BytesIO(data))
    paths = [into / f"pulumi-resource-sweepstack-v{version}-{system}.tar.gz" for system in SYSTEMS]
    for path in paths:
        path.write_bytes(packed.getvalue())
    return paths
