"""`sweepctl confirm peer BOX NAME`: a person says that a box's other node is gone for good.

A box does not end before its other nodes are proved free. One that never answers again would keep it for ever.
"""

from __future__ import annotations

from sweepstack.cli.box_access import find_box
from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.output import YES, Out
from sweepstack.onbox.common.errors import No, RequestRefused, SweepstackError, Unsupported, Unsure
from sweepstack.onbox.host.capabilities import HasPeers
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.registry import need

USES = ("which", "saw", "by")


def confirm(target: Target, statement: Statement, out: Out) -> int:
    """Exit 0: recorded on the box's host, and the box no longer waits for that node; 1: refused, since it answers, or
    is no node of the box; 2: not known."""
    box, peer, person = statement.box, statement.named("peer"), statement.person
    words = statement.words('what became of that machine, such as --saw "given back to the lab"')
    entry = find_box(target, box)
    again = [f"pulumi destroy --stack {target.stack}"]
    try:
        host = need(entry.context().platform, HasPeers)
        host.forget_peer(entry.native_id, entry.account, peer, f"{person}: {words}")
    except (RequestRefused, Unsupported) as error:
        raise No(f"{error}; nothing was written", again) from error
    except SweepstackError as error:
        raise Unsure(f"box {box}: {error}", [f"sweepctl status --stack {target.stack}"]) from error
    out.document({"stack": target.stack, "box": box, "peer": peer, "by": person, "saw": words, "next": again})
    out.line(f"box {box} does not wait for {peer} any more: {person} confirmed that it is gone ({words})")
    out.next(again)
    return YES
