"""`sweepctl confirm host BOX`: pins another SSH host key of a box, after a person has compared it."""

from __future__ import annotations

from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.pinned_keys import Pin
from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.channel.ssh import pin_host_key
from sweepstack.channel.ssh.options import Way
from sweepstack.channel.ssh.route import way_to
from sweepstack.cli.box_access import find_box
from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.output import NO, YES, Out
from sweepstack.onbox.common.errors import No, SweepstackError, Unsure
from sweepstack.operations.sweep.target import Target

ON_THE_BOX = "for f in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $f; done"


USES = ("which", "saw")


def confirm(target: Target, statement: Statement, out: Out) -> int:
    """Compares the key, and pins the one whose fingerprint the person saw on the box itself."""
    return trust_host(target, statement.box, statement.saw, out, host=statement.which)


def trust_host(target: Target, name: str, fingerprint: str, out: Out, *, host: str = "") -> int:
    """Exit 0: the box now shows the pinned key; 1: it does not, and nothing was changed. `host`: the address of the
    user's own host, which need not be in a state yet."""
    way = _way_to(target, name, host)
    again = f"sweepctl confirm host --stack {target.stack} {name}{f' {host}' if host else ''}"
    known = way.pin.fingerprints()
    try:
        if fingerprint:
            if not pin_host_key.trust(way, fingerprint.strip()):
                seen = ", ".join(pin_host_key.shown(way))
                raise No(
                    f"box {name} does not show {fingerprint}, but {seen}: nothing was pinned",
                    [again],
                )
            known = way.pin.fingerprints()
        shown = pin_host_key.shown(way)
    except No:
        raise
    except SweepstackError as error:
        raise Unsure(f"box {name}: {error}", [f"sweepctl status --stack {target.stack}"]) from error
    same = bool(set(known) & set(shown))
    out.document({"stack": target.stack, "box": name, "pinned": known, "shown": shown, "same": same})
    if same:
        out.line(f"box {name} shows the pinned host key: {', '.join(known)}")
        out.next([f"sweepctl status --stack {target.stack}"])
        return YES
    out.line(f"pinned   {', '.join(known) or 'nothing yet: the first command that reaches the box pins what it shows'}")
    out.line(f"shown    {', '.join(shown)}")
    out.line("Open the box in its platform's own console, not over SSH, and compare what it says of itself:")
    out.line(f"  {ON_THE_BOX}")
    wanted = shown[0].split()[-1]
    out.next([f"{again} --saw {wanted}    (where the box says the same)"])
    return NO


def _way_to(target: Target, name: str, host: str) -> Way:
    again = [f"sweepctl status --stack {target.stack}"]
    if host:
        try:
            return way_to(HostAddress.parse(host))
        except SweepstackError as error:
            raise Unsure(str(error), again) from error
    box = find_box(target, name)
    try:
        platform = box.context().platform
        way: Way | None = getattr(platform, "way", None)  # a host has its own address; no platform has to be asked
        if way is not None:
            return way
        endpoint = platform.get(box.native_id, box.account).endpoint
        if endpoint is None:
            raise No(f"box {name} has no SSH address now: there is no host key to compare", again)
        return Way(endpoint, ssh_keys.choose(), Pin(endpoint.known_as or box.native_id, endpoint.start))
    except No:
        raise
    except SweepstackError as error:
        raise Unsure(f"box {name}: {error}", again) from error
