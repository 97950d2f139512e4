"""The checkout's `.venv`, from uv.lock; and torch and the Trainer, which only tests need."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.lib.console import Console, Step
from scripts.lib.errors import SetupError
from scripts.lib.network import answers
from scripts.lib.places import Places
from scripts.lib.processes import run
from scripts.lib.wheels import uv_environment

TRAINER = (
    "accelerate", "docstring-parser", "flax", "jsonargparse", "keras", "lightning", "orbax-checkpoint", "peft",
    "transformers", "typeshed-client",
)  # fmt: skip
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
DEADLINE = 3600.0
TORCH_DISK_GB = 7  # 5.3 installed, 2.9 of archives, less what the cache shares by hard links


def environment(places: Places, env: Mapping[str, str]) -> dict[str, str]:
    """uv's environment for this checkout's venv and no other."""
    return {**uv_environment(env), "UV_PROJECT_ENVIRONMENT": str(places.venv)}


def usable(places: Places) -> bool:
    """Whether `.venv` has a Python that exists; a link to one that was upgraded away does not count."""
    return os.access(places.python, os.X_OK)


def sync(
    places: Places, uv: Path, groups: Sequence[str], env: Mapping[str, str], cancel: threading.Event, step: Step
) -> None:
    """Brings `.venv` to what uv.lock says for these dependency groups, and for extras (`[vastai]`). Takes nothing away:
    torch may be there already.

    Raises:
        SetupError: with uv's own words.
    """
    # Four Pythons start in each pulumi command; without bytecode, which a read-only or PYTHONDONTWRITEBYTECODE machine
    # never gets by itself, that is 0.9 s more (2.1 against 1.3 s for the smallest preview).
    words: list[object] = [uv, "sync", "--frozen", "--inexact", "--compile-bytecode", "--no-default-groups"]
    for group in groups:
        words += ["--extra", group.strip("[]")] if group.startswith("[") else ["--group", group]
    if not usable(places):
        words += ["--python", sys.executable]
    count = 0

    def each(line: str) -> None:
        nonlocal count
        count += line.startswith(" + ")
        step.note = f"{count} packages installed" if count else line.strip()[:80]

    run(words, what="uv sync", deadline=DEADLINE, cancel=cancel, cwd=places.root, env=environment(places, env),
        on_line=each)  # fmt: skip
    step.note = f"{count} packages installed" if count else "nothing to change"


def compile_own(places: Places, cancel: threading.Event | None = None) -> None:
    """Compiles what of the checkout itself runs in a pulumi command, where it changed since. 0.1 s when it did not.

    Python does that by itself but where PYTHONDONTWRITEBYTECODE says not to, as in many containers. There it would
    compile them anew at every start: 0.1 s of sweepctl's, and again in each Python of a pulumi command.

    Raises:
        SetupError: with Python's own words; also for a file with a syntax error.
    """
    pyproject = tomllib.loads((places.root / "pyproject.toml").read_text(encoding="utf-8"))
    folders = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    words = [places.python, "-m", "compileall", "-q", *folders]
    run(words, what="compiling our own modules", deadline=DEADLINE, cancel=cancel, cwd=places.root)


def locked_version(root: Path, package: str) -> str:
    """The version of a package in uv.lock."""
    with (root / "uv.lock").open("rb") as file:
        lock = tomllib.load(file)
    for entry in lock["package"]:
        if entry["name"] == package:
            return str(entry["version"])
    raise SetupError(f"uv.lock has no {package}")


def installed_version(places: Places, package: str) -> str | None:
    """What `.venv` has of a package, without its local part (`2.15.0+cpu` → `2.15.0`)."""
    for folder in places.venv.glob(f"lib/python*/site-packages/{package}-*.dist-info"):
        return folder.name.removeprefix(package + "-").removesuffix(".dist-info").partition("+")[0]
    return None


def install_torch(
    places: Places, uv: Path, env: Mapping[str, str], console: Console, cancel: threading.Event, groups: Sequence[str]
) -> None:
    """torch in the version of the lock: from PyTorch's CPU index when it answers, else from PyPI with all of CUDA.

    Raises:
        SetupError: no room for it, or uv's own words.
    """
    wanted = locked_version(places.root, "torch")
    if installed_version(places, "torch") == wanted:
        return
    index = f"{CPU_INDEX}/torch/"
    if sys.platform != "darwin" and answers(index):
        with console.step(f"torch {wanted}", "for the tests; CPU build from PyTorch's index, about 200 MB"):
            words = ["pip", "install", "--quiet", "--python", places.python, f"torch=={wanted}"]
            run([uv, *words, "--index-url", CPU_INDEX], what="installing torch", deadline=DEADLINE, cancel=cancel,
                cwd=places.root, env=environment(places, env))  # fmt: skip
        return
    free = shutil.disk_usage(places.root).free >> 30
    if free < TORCH_DISK_GB:
        raise SetupError(
            f"torch from PyPI needs {TORCH_DISK_GB} GB of disk and {places.root} has {free} GB left. "
            "PyTorch's CPU index, which needs 1 GB, does not answer from here."
        )
    size = "about 200 MB" if sys.platform == "darwin" else "2.9 GB to download, 5.3 GB on disk: no CPU index in reach"
    with console.step(f"torch {wanted}", f"for the tests; from PyPI, {size}") as step:
        sync(places, uv, [*groups, "torch"], env, cancel, step)


def has_trainer(places: Places) -> bool:
    """Whether Hugging Face's Trainer is there, in the versions of the lock."""
    return all(installed_version(places, name) == locked_version(places.root, name) for name in TRAINER)


def install_trainer(
    places: Places, uv: Path, env: Mapping[str, str], console: Console, cancel: threading.Event
) -> None:
    """Hugging Face's Trainer in the versions of the lock, beside the torch that is there: 60 MB.

    Raises:
        SetupError: uv's own words.
    """
    if has_trainer(places):
        return
    wanted = [f"{name}=={locked_version(places.root, name)}" for name in TRAINER]
    with console.step(", ".join(wanted), "for the page docs/your-own-train-py.md; from PyPI"):
        run([uv, "pip", "install", "--quiet", "--python", places.python, *wanted], what="installing the Trainer",
            deadline=DEADLINE, cancel=cancel, cwd=places.root, env=environment(places, env))  # fmt: skip
