"""What a platform's API says of a silent host that a person is about to confirm as ended."""

from __future__ import annotations

from sweepstack.cli.output import No, Out, Unsure
from sweepstack.cli.target import Target
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.onbox.host.capabilities import ListedHost, ListsHosts
from sweepstack.platforms.registry import has_wallet, load_wallet
from sweepstack.status.engine.state import BoxEntry


def look(target: Target, box: BoxEntry, *, power_off: bool, out: Out) -> None:
    """Raises No where the API shows that the host runs, unless it is to be turned off (`power_off`) and was. What the
    API does not show, or could not be asked, stays what the person saw; then `power_off` raises Unsure. Blocks for
    seconds, with `power_off` for minutes."""
    again = f'sweepctl confirm-gone --stack {target.stack} {box.name} --saw "what the console shows"'
    try:
        account, found = _find(box)
    except SweepstackError as error:
        words = f"what {box.platform} says of the host of box {box.name} is not known: {error}"
        if power_off:
            raise Unsure(f"{words}. Nothing was written", [f"turn it off in its console, then {again}"]) from error
        out.line(words)
        return
    if account is None or found is None:
        if power_off:
            words = f"the host of box {box.name} can't be turned off from here: no API shows it. Nothing was written"
            raise Unsure(words, [f"turn it off in its console, then {again}"])
        return
    named = f"{box.platform} shows {found.id} at the address of box {box.name}: {found.state}"
    if found.off:
        return
    if not power_off:
        raise No(f"{named}, and it bills. Nothing was written", [f"{again} --power-off    (its disks stay)"])
    try:
        account.power_off_host(found.id)
    except PlatformError as error:
        raise Unsure(f"{named}, and it could not be turned off: {error}. Nothing was written", [again]) from error
    out.line(f"{found.id} was turned off; its disks stay, and bill until it is released")


def _find(box: BoxEntry) -> tuple[ListsHosts | None, ListedHost | None]:
    """The account that may show its host, and the host as it shows it. Raises SweepstackError."""
    account = load_wallet(box.platform) if box.platform and has_wallet(box.platform) else None
    endpoint = getattr(box.context().platform, "endpoint", None)
    if not isinstance(account, ListsHosts) or endpoint is None:
        return None, None
    return account, account.host_at(endpoint.host, endpoint.port)
