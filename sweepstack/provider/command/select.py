"""Which plugin answers for the `command` package, and the key that it comes in with.

The official one where it is installed, of the very version that the Python package was made for; else the stand-in.
Either is started with an SSH agent that holds the person's key, the one that our own connections use: so no key, and
no path of one, is an input of a command or in the state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.onbox.common.errors import ConfigError, NotAuthorized

VARIABLE = "SWEEPSTACK_COMMAND_PLUGIN"
"""The path of a `pulumi-resource-command` to use whatever is installed."""
VERSION = "1.2.1"
"""Of the `pulumi-command` package in pyproject.toml."""

KEY_SECONDS = 12 * 3600
"""After that the agent has no key any more: the official plugin outlives an engine that was killed, and with it the
agent. No command of the engine takes that long to come to its last dial."""


def official(env: Mapping[str, str]) -> Path | None:
    """The official plugin: the one that is named, what set-up fetched, or what the engine has; None without one.

    Raises ConfigError when the named one can't be run.
    """
    named = env.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not path.is_file() or not os.access(path, os.X_OK):
            raise ConfigError(f"{VARIABLE} names {path}, which can't be run. Next: unset {VARIABLE}, or correct it")
        return path.absolute()
    home = Path(env.get("HOME") or "~").expanduser()
    cache = Path(env["XDG_CACHE_HOME"]) if env.get("XDG_CACHE_HOME", "").startswith("/") else home / ".cache"
    engine = Path(env.get("PULUMI_HOME") or home / ".pulumi")
    folders = [cache / "sweepstack" / "command" / VERSION, engine / "plugins" / f"resource-command-v{VERSION}"]
    paths = [folder / "pulumi-resource-command" for folder in folders]
    return next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)


def with_key(argv: list[str], env: Mapping[str, str]) -> list[str]:
    """`argv`, below an agent that holds the key; as it is where the person's own agent does, or there is none.

    ssh-agent becomes `argv` itself and leaves the agent behind as a child, which ends with it.
    """
    if shutil.which("ssh-agent") is None or shutil.which("ssh-add") is None:
        return argv
    try:
        key = ssh_keys.choose(env)
    except NotAuthorized:
        return argv  # the first dial will say that nobody is let in; most commands dial nowhere
    if key.identity is None:
        return argv
    load = f'ssh-add -q -t {KEY_SECONDS} "$0" </dev/null >/dev/null 2>&1; exec "$@"'
    return ["ssh-agent", "sh", "-c", load, str(key.identity), *argv]
