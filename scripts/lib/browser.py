"""Chromium for the tests of pages, from the system's packages.

A user needs none: a page opens in any browser.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping

from scripts.lib.console import Console
from scripts.lib.errors import SetupError
from scripts.lib.processes import run

PACKAGE = "chromium"
PROGRAMS = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
"""Any of them. The last is a snap on Ubuntu; machines of CI have Google's."""
BY_HAND = f"apt-get install -y --no-install-recommends {PACKAGE}"
DEADLINE = 600.0


def found() -> str | None:
    """The browser's program, or None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def install(env: Mapping[str, str], console: Console, cancel: threading.Event) -> None:
    """Installs Debian's Chromium where there is no browser and that is ours to do: root, and apt. 124 MB to download,
    414 MB on disk. Else it says what is missing, and goes on: the tests that need it fail with the same words.
    """
    if found() is not None:
        return
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        console.say(f"  note: tests of pages will fail: there is no {PACKAGE}. As root: {BY_HAND}")
        return
    quiet = {**env, "DEBIAN_FRONTEND": "noninteractive"}
    with console.step("Chromium", "by apt, for the tests of pages: 124 MB"):
        command = [apt, "install", "-y", "--no-install-recommends", PACKAGE]
        try:
            run(command, what="installing chromium", deadline=DEADLINE, cancel=cancel, env=quiet)
        except SetupError:  # lists that are old or absent, as in a fresh container
            run([apt, "update"], what="apt-get update", deadline=DEADLINE, cancel=cancel, env=quiet)
            run(command, what="installing chromium", deadline=DEADLINE, cancel=cancel, env=quiet)
    if found() is None:
        raise SetupError(f"apt-get installed {PACKAGE}, and no browser is on PATH")
