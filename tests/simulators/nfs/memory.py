"""What a small machine has in its memory when it starts: an archive (initramfs) of kernel modules, busybox, a Python
and the files of a test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

MODULES = ("virtio_pci", "virtio_net", "virtio_blk", "nfsv3", "nfsv4", "nfsd")
FOLDERS = ("bin", "dev", "etc", "export", "mnt", "proc", "sys", "tmp", "var/run")
WHOLE = ("encodings", "collections", "json")
"""Packages of Python's library whose modules are imported late."""


def modules_in_order(kernel: Path) -> dict[str, Path]:
    """The kernel modules that a machine loads, each after those that it needs. `kernel`: the unpacked package."""
    there = {path.stem.replace("-", "_"): path for path in (kernel / "lib" / "modules").rglob("*.ko")}
    wanted: dict[str, Path] = {}

    def want(name: str) -> None:
        if name not in there or name in wanted:  # not there: it is part of the kernel
            return
        data = there[name].read_bytes()
        begin = data.index(b"\0depends=") + len(b"\0depends=")
        for needed in filter(None, data[begin : data.index(b"\0", begin)].decode("ascii").split(",")):
            want(needed.replace("-", "_"))
        wanted[name] = there[name]

    for name in MODULES:
        want(name)
    return wanted


def python_files(python: str, root: Path, programs: Iterable[str]) -> dict[str, Path]:
    """A Python that can run these programs of the checkout `root`: path in the machine → path here. Its real path is
    the first."""
    lines = ["import sys, os, encodings.idna, tempfile", f"sys.path.insert(0, {str(root)!r})"]
    lines += [f"import {program[:-3].replace('/', '.')}" for program in programs]
    lines += [
        "print(os.path.realpath(sys.executable)); print(os.path.dirname(os.__file__))",
        "for one in list(sys.modules.values()):",
        "    for path in (getattr(one, '__file__', None), getattr(one, '__cached__', None)):",
        "        if path and os.path.exists(path): print(path)",
    ]
    said = subprocess.run([python, "-S", "-E", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    executable, library, *files = said.stdout.split("\n")[:-1]
    found = [executable, *files]
    for package in WHOLE:
        found += [str(path) for path in (Path(library) / package).rglob("*") if path.is_file()]
    compiled = [path for path in found if path == executable or path.endswith(".so")]
    listed = subprocess.run(["ldd", *compiled], capture_output=True, text=True, check=True).stdout
    words = (word for line in listed.splitlines() if not line.endswith(":") for word in line.split())
    libraries = [word for word in words if word.startswith("/")]
    beside = {Path(library).with_name("libgcc_s.so.1") for library in libraries}  # glibc loads it when a thread ends
    found += [*libraries, *(str(path) for path in beside if path.is_file())]
    placed = {path: Path(path) for path in dict.fromkeys(found)}
    for path in [path for path in placed if path.startswith(f"{root}/")]:
        placed["/code" + path[len(str(root)) :]] = placed.pop(path)
    return placed


def archive(files: Mapping[str, Path | bytes]) -> bytes:
    """The files as the kernel unpacks them (cpio, newc), each with its folder. Bytes are a file's content."""
    out, seen = bytearray(), set[str]()

    def entry(name: str, mode: int, data: bytes = b"", mtime: int = 0, device: tuple[int, int] = (0, 0)) -> None:
        seen.add(name)
        plain = name.encode() + b"\0"
        fields = (len(seen), mode, 0, 0, 1, mtime, len(data), 0, 0, *device, len(plain), 0)
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + plain)
        out.extend(b"\0" * (-len(out) % 4) + data)
        out.extend(b"\0" * (-len(out) % 4))

    def folder(name: str) -> None:
        if name and name not in seen:
            folder(os.path.dirname(name))
            entry(name, 0o40755)

    for name in FOLDERS:
        folder(name)
    entry("dev/console", 0o20600, device=(5, 1))
    for path, content in files.items():
        name = path.lstrip("/")
        folder(os.path.dirname(name))
        if isinstance(content, bytes):
            entry(name, 0o100755, content)
        else:  # the time counts: Python compares it with what its compiled file says
            entry(name, 0o100755, content.read_bytes(), int(content.stat().st_mtime))
    entry("TRAILER!!!", 0)
    return bytes(out)


def memory(kernel: Path, busybox: Path, python: str, root: Path, programs: Iterable[str]) -> bytes:
    """All of it. `programs`: modules of the checkout `root` that run there, by their paths."""
    modules = modules_in_order(kernel)
    placed = python_files(python, root, programs)
    files: dict[str, Path | bytes] = {
        "/init": Path(__file__).with_name("init.sh"),
        "/bin/busybox": busybox,
        "/python-path": next(iter(placed)).encode(),
        "/etc/machine-id": b"5" * 32 + b"\n",
        "/modules/order": "\n".join(modules).encode() + b"\n",
    }
    files.update({f"/modules/{name}.ko": path for name, path in modules.items()})
    files.update(placed)
    return archive(files)
