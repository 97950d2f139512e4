"""What a platform's API says of a silent host that a person is about to confirm as ended."""

from __future__ import annotations

from sweepstack.cli.output import No, Out, Unsure
from sweepstack.cli.target import Target
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.onbox.host.capabilities import ListsHosts
from sweepstack.platforms.registry import has_wallet, load_wallet
from sweepstack.status.engine.state import BoxEntry


def look(target: Target, box: BoxEntry, *, power_off: bool, out: Out) -> None:
    """Raises No where the API shows that the host runs, unless it is to be turned off (`power_off`) and was. What the
    API does not show stays what the person saw. Blocks for seconds, with `power_off` for minutes."""
    again = f'sweepctl confirm-gone --stack {target.stack} {box.name} --saw "what the console shows"'
    account = _account(box, out)
    try:
        endpoint = getattr(box.context().platform, "endpoint", None) if account is not None else None
        found = account.host_at(endpoint.host, endpoint.port) if account is not None and endpoint is not None else None
    except PlatformError as error:
        out.line(f"what {box.platform} says of its host is not known: {error}")
        found = None
    if account is None or found is None:
        if power_off:
            raise Unsure(
                f"the host of box {box.name} can't be turned off from here: no API shows it. Nothing was written"
            )
        return
    named = f"{box.platform} shows {found.id} at the address of box {box.name}: {found.state}"
    if not found.off and power_off:
        try:
            account.power_off_host(found.id)
        except PlatformError as error:
            raise Unsure(f"{named}, and it could not be turned off: {error}. Nothing was written", [again]) from error
        out.line(f"{found.id} was turned off; its disks stay, and bill until it is released")
    elif not found.off:
        raise No(f"{named}, and it bills. Nothing was written", [f"{again} --power-off    (its disks stay)"])


def _account(box: BoxEntry, out: Out) -> ListsHosts | None:
    if not box.platform or not has_wallet(box.platform):
        return None
    try:
        account = load_wallet(box.platform)
    except SweepstackError as error:
        out.line(f"what {box.platform} says of its host is not known: {error}")
        return None
    return account if isinstance(account, ListsHosts) else None
