"""Pins the host key of a box: at first contact, or after a person compared it."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from pathlib import Path

from sweepstack.channel.pinned_keys import fingerprint, keys_of
from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.channel.ssh.link import SECONDS, said_last
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.common.errors import Unreachable


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


def trust(way: Way, wanted: str) -> bool:
    """Pins the key with the fingerprint `wanted` (`SHA256:…`) instead of what is pinned, if the box shows it now. Only
    after a person compared it. Raises Unreachable."""
    matching = [key for key in offered(way) if fingerprint(key).endswith(f" {wanted}")]
    if not matching:
        return False
    way.pin.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(way.pin.path.with_name(".lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        way.pin.forget()
        way.pin.keep(matching, way.endpoint, compared=True)
    return True
