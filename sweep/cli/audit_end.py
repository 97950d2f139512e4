"""`sweepctl audit --end PLATFORM:ID`: ends one thing that bills and that no state and no record knows.

The gate guards what a sweep rented. This is for what nobody can name a sweep for: a create whose records were lost. It
is refused for everything that a state or a record has, and asks for the id to be typed again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from provider.platforms.base import Phase, Platform
from provider.platforms.registry import load_platform
from sweep.cli.audit import Finding, look, read_known
from sweep.cli.output import YES, No, Out, Unsure
from sweep.cli.progress import Progress
from sweep.errors import NotYetGone, OutcomeUnknown, PlatformError

WAIT_SECONDS = 300.0
POLL_SECONDS = 2.0
AUDIT = "sweepctl audit"


def end(root: Path, what: str, out: Out, *, typed: str | None) -> int:
    """`what`: `platform:id`; `typed`: the id again, None to ask for it. Irreversible; idempotent; blocks for minutes at
    most. Exit code 0 only when the platform proves that it is gone; raises No where it is known to somebody."""
    adapter, colon, native_id = what.rpartition(":")  # a host's address has colons of its own
    if not colon or not native_id:
        raise Unsure(f"{what!r} names no platform and id", [AUDIT])
    with Progress("reading every state of this backend"):
        known = read_known(root)
    if known.problems:
        raise No(
            f"not every state could be read, so {native_id} may be known to one: {'; '.join(known.problems)}", [AUDIT]
        )
    platform = load_platform(adapter)
    finding = next((found for found in look(adapter, platform, known) if found.native_id == native_id), None)
    if finding is None or finding.standing == "vanished":
        raise No(f"{adapter} lists no {native_id} with a tag of ours; nothing was ended", [AUDIT])
    if finding.whose:
        raise No(
            f"{native_id} is known to {', '.join(finding.whose)}, so it ends through its gate and not here",
            [finding.next or f"pulumi destroy --stack {finding.whose[0]}"],
        )
    _confirm(finding, typed)
    account = platform.account()
    _issue(platform, finding, account)
    out.document({"platform": adapter, "native_id": native_id, "kind": finding.kind, "gone": True})
    out.line(f"{finding.kind} {native_id} is gone from {adapter}; what was on it is lost")
    out.next([AUDIT])
    return YES


def _confirm(finding: Finding, typed: str | None) -> None:
    words = f"{finding.kind} {finding.native_id} on {finding.platform} ({finding.tag or 'no readable tag'})"
    if typed is None:
        if not sys.stdin.isatty():
            raise No(f"ending {words} can't be undone: --yes {finding.native_id} says that you mean it")
        print(f"This ends {words}, with all that is on it. It can't be undone.", file=sys.stderr)
        typed = input("Type its id to go on: ").strip()
    if typed != finding.native_id:
        raise No(f"{typed!r} is not {finding.native_id}; nothing was ended", [AUDIT])


def _issue(platform: Platform, finding: Finding, account: str) -> None:
    """Ends it, and returns when that is proved. Raises No, with what may still bill, at the deadline."""
    begun, problem = time.monotonic(), "the platform still lists it"
    with Progress(f"ending {finding.native_id}"):
        while time.monotonic() - begun < WAIT_SECONDS:
            try:
                if finding.kind == "volume":
                    platform.delete_volume(finding.native_id, account)
                    if platform.get_volume(finding.native_id) is None:
                        return
                else:
                    platform.destroy(finding.native_id, account)
                    if platform.get(finding.native_id, account).phase is Phase.GONE:
                        return
            except (NotYetGone, OutcomeUnknown) as error:
                problem = str(error)
            except PlatformError as error:
                problem = str(error)
                break
            time.sleep(POLL_SECONDS)
    raise No(f"that {finding.native_id} is gone is not proved: {problem}. It may still bill", [AUDIT])
