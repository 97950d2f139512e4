"""Proves that a host at a new address is the same machine: its port or address changed.

Two things have to agree: the host key is the one that was pinned, and the boxes' folder there belongs to the box's
account. Either alone proves nothing: a host key may be part of an image, and any machine can claim any account.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.host_keys import Pin, fingerprint
from sweepstack.channel.ssh import pin_host_key
from sweepstack.channel.ssh import route as ssh_route
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.common.errors import RequestRefused, WrongAccount
from sweepstack.platforms.ssh.api import Caller


def prove_same(
    new: HostAddress,
    former: HostAddress,
    native_id: str,
    account: str,
    known: Sequence[str] | None,
    calling: Callable[[HostAddress], Caller] = Caller,
) -> None:
    """See `sweepstack.platforms.registry.prove_same`. Pins the host key at its new address. `calling`: who asks it."""
    way = ssh_route.way_to(new)
    pinned = set(Pin(former.login, former.endpoint.start).fingerprints()) | set(known or ())
    compared = way.pin.pinned and way.pin.compared
    if new.login != former.login and not compared:  # else the key is pinned for this login, or a person compared it
        if not pinned and known is None:
            return
        _show(way, new, former, pinned)
    caller = calling(new)
    try:
        caller.ask("get", native_id=native_id, account=account)
    except WrongAccount as error:
        raise RequestRefused(
            f"{new} is not the host that was at {former}: {error}. {_ways_out(new, former)}"
        ) from error
    finally:
        caller.close()


def _show(way: Way, new: HostAddress, former: HostAddress, pinned: set[str]) -> None:
    if way.via is not None:
        pin_host_key.first(way.via)
    shown = pin_host_key.offered(way)
    same = [key for key in shown if fingerprint(key) in pinned]
    seen = ", ".join(fingerprint(key) for key in shown)
    if not pinned:
        raise RequestRefused(
            f"the host key of {former} is not on record here: that {new} is the same host is not proved (it "
            f"shows {seen}). Run the command where the box was made, or compare that key on the host itself. "
            f"{_ways_out(new, former)}"
        )
    if not same:
        raise RequestRefused(
            f"another machine answers at {new}: it shows {seen}, and {former} had {', '.join(sorted(pinned))}. Nothing "
            f"was sent to it. {_ways_out(new, former)}"
        )
    if not pinned & set(way.pin.fingerprints()):
        way.pin.forget()  # the pinned key is of another host, which had this address before
    way.pin.keep(same, way.endpoint)


def _ways_out(new: HostAddress, former: HostAddress) -> str:
    return (
        f"A box does not move to another machine: write host: {former} back, and end the box there, or give the new "
        f"machine a box of its own under a new name. If it is the same machine with a new key: compare it there, then "
        f"`sweepctl trust-host BOX --host {new} --fingerprint SHA256:…`"
    )
