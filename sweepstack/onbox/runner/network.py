"""The network settings of a box's processes, as variables: mirrors, caches and the platform's proxy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.runner.records import say

HOOK_SECONDS = 20.0
OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that a shell sets by itself."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
DOMAIN = "_DOMAIN"
"""ModelScope takes a host and puts the scheme before it by itself."""
NEAR = ("127.0.0.1", "localhost", "::1")
OFF = "Next: mend it on the box, or switch it off in the stack file (overrides: <platform>: network: {proxy: false})"

_said: dict[str, dict[str, str]] = {}  # the proxy's shell line → the variables that it set


class NetworkRefused(SweepstackError, OSError):
    """The box's proxy can't be turned on. The message says why and what to do."""


def network(spec: Mapping[str, Any], base: Mapping[str, str], box: Path) -> dict[str, str]:
    """The network settings in spec.json as variables. `base`: the variables before; `box`: the box's folder. Raises
    NetworkRefused.

    With the proxy on, local addresses and mirrors do not go through it: a proxy for addresses abroad slows or breaks
    them. `SWEEPSTACK_PROXY_ON` and `…_OFF` hold its shell lines, for a set-up or job that uses it for a single call.
    """
    said = spec.get("network") or {}
    found = {name: _at_home(str(value)) for name, value in (said.get("env") or {}).items()}
    found.update((name, str(box / str(path))) for name, path in (said.get("folders") or {}).items())
    mirrors = [host for name, value in found.items() if (host := _host(name, value))]
    line = str(said.get("proxy_on") or "")
    if line and said.get("proxy_always"):
        set_by_it = _turned_on(line, base)
        found.update(set_by_it)
        if any(found.get(name) for name in PROXIES):
            before = f"{found.get('no_proxy', '')},{found.get('NO_PROXY', '')}".split(",")
            past = ",".join(dict.fromkeys(host.strip() for host in [*before, *NEAR, *mirrors] if host.strip()))
            found.update(no_proxy=past, NO_PROXY=past)
    for name, text in (("SWEEPSTACK_PROXY_ON", line), ("SWEEPSTACK_PROXY_OFF", str(said.get("proxy_off") or ""))):
        if text:
            found[name] = text
    return found


def _turned_on(line: str, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that the proxy's shell line sets. The line is run once, and its result kept."""
    if line not in _said:
        # bash, since such lines use `source`, which a plain sh does not have. Their output is ignored.
        script = f"{{ {line}\n}} >&2 || exit\nexec env -0"
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                env=dict(base),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=HOOK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise NetworkRefused(f"the proxy's line did not end within {HOOK_SECONDS:g} s ({line}). {OFF}") from None
        except OSError as error:
            raise NetworkRefused(f"the proxy's line needs bash, and that can't be run ({error}). {OFF}") from error
        if done.returncode:
            last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise NetworkRefused(f"the proxy's line failed with {done.returncode}: {last[:200]} ({line}). {OFF}")
        pairs = (one.decode("utf-8", "surrogateescape").partition("=") for one in done.stdout.split(b"\0") if one)
        _said[line] = {
            name: value for name, _, value in pairs if name not in OWN and base.get(name) != value and "\n" not in name
        }
        if not _said[line]:
            say(f"the proxy's line set nothing, so there is none: {line}")
    return dict(_said[line])


def _at_home(value: str) -> str:
    return os.path.expanduser(value) if value.startswith("~/") else value


def _host(name: str, value: str) -> str:
    """The host of a mirror: of a URL, or of a `…_DOMAIN` with all hosts below it; "" for another variable."""
    if name.endswith(DOMAIN) and "://" not in value:
        return value[4:] if value.startswith("www.") else value
    try:
        return (urlsplit(value).hostname or "") if "://" in value else ""
    except ValueError:
        return ""
