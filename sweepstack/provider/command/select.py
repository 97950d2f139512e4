"""Chooses the plugin of the `command` package, and the SSH key that it is started with.

It is the official plugin if it is installed in the very version of the Python package; else the stand-in. Either is
started with an SSH agent that holds the person's key, the same that our own connections use. So no key, and no path of
one, is an input of a command or in the state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.core.paths import engine_home
from sweepstack.onbox.common.errors import ConfigError, NotAuthorized
from sweepstack.onbox.common.xdg import user_folder

VARIABLE = "SWEEPSTACK_COMMAND_PLUGIN"
"""Environment variable: the path of a `pulumi-resource-command` to use, whatever is installed."""
VERSION = "1.2.1"
"""The version of the `pulumi-command` package in pyproject.toml."""

KEY_SECONDS = 12 * 3600
"""For so long the agent holds the key. The official plugin outlives an engine that was killed, and the agent lives as
long as the plugin. No command of the engine takes that long to come to its last dial."""


def official(env: Mapping[str, str]) -> Path | None:
    """The path of the official plugin: the one that `VARIABLE` names, that set-up fetched, or that the engine has; None
    without one.

    Raises ConfigError if the named one can't be run.
    """
    named = env.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not path.is_file() or not os.access(path, os.X_OK):
            raise ConfigError(f"{VARIABLE} names {path}, which can't be run. Next: unset {VARIABLE}, or correct it")
        return path.absolute()
    cache = user_folder("XDG_CACHE_HOME", ".cache", env)
    plugins = engine_home(env) / "plugins"
    folders = [cache / "sweepstack" / "command" / VERSION, plugins / f"resource-command-v{VERSION}"]
    paths = [folder / "pulumi-resource-command" for folder in folders]
    return next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)


def with_key(argv: list[str], env: Mapping[str, str]) -> list[str]:
    """`argv`, wrapped so that it runs with an SSH agent that holds the key. Not wrapped if the person's own agent holds
    it, if there is no key, or if ssh-agent is not installed.

    ssh-agent becomes `argv` itself. The agent stays behind as a child, and ends with it.
    """
    if shutil.which("ssh-agent") is None or shutil.which("ssh-add") is None:
        return argv
    try:
        key = ssh_keys.choose(env)
    except NotAuthorized:
        return argv  # the first dial will say that there is no key; most commands of the engine dial nowhere
    if key.identity is None:
        return argv
    load = f'ssh-add -q -t {KEY_SECONDS} "$0" </dev/null >/dev/null 2>&1; exec "$@"'
    return ["ssh-agent", "sh", "-c", load, str(key.identity), *argv]
