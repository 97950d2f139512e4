"""Asks a box for its host key, at first contact and when a person compares it."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from pathlib import Path

from sweepstack.channel.host_keys import HostKeyChanged, changed, fingerprint, keys_of
from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.common.errors import Unreachable

SECONDS = 45.0


def first(way: Way) -> None:
    """Pins the host key that the box shows, where none is pinned. Commands that do so at once wait for each other.

    Raises Unreachable; HostKeyChanged when another command pinned another one meanwhile.
    """
    if way.via is not None:
        first(way.via)
    pin = way.pin
    if pin.pinned:
        return
    pin.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(pin.path.with_name(".lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not pin.pinned:
            pin.keep(offered(way), way.endpoint)


def shown(way: Way) -> list[str]:
    """The fingerprints of what the box shows now, pinned or not. Trusts nothing. Raises Unreachable."""
    return [fingerprint(key) for key in offered(way)]


def offered(way: Way) -> list[str]:
    """The host keys (type, base64) that the box shows now. Raises Unreachable.

    A box shows its own before anyone is let in: our key need not be known there yet. Hosts on the way are pinned.
    """
    silent = "it shows no host key"
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        known = Path(folder) / "known"
        said = silent
        try:
            done = subprocess.run(
                [*way.command("-T", known=known), "exit"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                start_new_session=True,
            )
            said = done.stderr[-4000:].decode("utf-8", "replace").strip() or said
        except subprocess.TimeoutExpired:
            said = f"no answer within {SECONDS:g} s"
        found = keys_of(known)
    if not found:
        where = f"{way.pin.native_id} at {way.endpoint.host}:{way.endpoint.port}"
        more = ssh_mtu.advice(way) if said == silent else ""
        raise Unreachable(f"{where} can't be reached: {said_last(way, said)}{more}")
    return found


def explained(way: Way, said: str) -> str:
    """What was said, and on a way through other hosts what they say: over a connection that is to stay, ssh throws that
    away. So it is asked once more, alone. Never raises; blocks for the time that a connection takes."""
    if (way.via is None and not way.proxy) or wrong_key(way, said) or turned_away(way, said):
        return said
    command = [*way.command("-T", shared=False), "exit"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return said
    return done.stderr[-4000:].decode("utf-8", "replace").strip() or said


def said_last(way: Way, said: str) -> str:
    """What ssh said at its end; on a way through other hosts, which of them said it, too."""
    lines = said.splitlines() or [""]
    return lines[-1] if way.via is None and not way.proxy else "; ".join(lines[-2:])


def wrong_key(way: Way, said: str) -> HostKeyChanged | None:
    """The error where ssh said that a host key is not the pinned one: the box's, or that of a host on the way to it."""
    if "HOST IDENTIFICATION HAS CHANGED" not in said and "Host key verification failed" not in said:
        return None
    named = (one for one in way.chain if str(one.pin.path) in said or one.pin.alias in said)
    where = next(named, way)
    return changed(where.pin, where.endpoint)


def turned_away(way: Way, said: str) -> Way | None:
    """Whose sshd did not take the key, where ssh said that one did not."""
    if "Permission denied (" not in said:
        return None
    named = (one for one in way.chain if f"{one.endpoint.user}@{one.endpoint.host}: Permission denied" in said)
    return next(named, way)


def trust(way: Way, wanted: str) -> bool:
    """Pins the key with the fingerprint `wanted` (`SHA256:…`) instead of what is pinned, if the box shows it now. Only
    on a person's word, who compared it. Raises Unreachable."""
    matching = [key for key in offered(way) if fingerprint(key).endswith(f" {wanted}")]
    if not matching:
        return False
    way.pin.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(way.pin.path.with_name(".lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        way.pin.forget()
        way.pin.keep(matching, way.endpoint, compared=True)
    return True
