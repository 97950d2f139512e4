"""Checks of a sweep's candidates: an API key that the platform accepts, a balance, and an SSH key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from sweepstack.cli.commands.doctor.finding import Check, Finding, fail, ok, unknown, warn
from sweepstack.config.extras import missing_extras
from sweepstack.config.override import AcceptedFact
from sweepstack.config.stack_config import StackConfig, StoreConfig
from sweepstack.core.parallel import in_parallel
from sweepstack.core.paths import docs_page
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError
from sweepstack.onbox.host.capabilities import HasBalance, HasMarket
from sweepstack.onbox.host.platform import Platform
from sweepstack.operations.balances import left_at
from sweepstack.platforms.registry import has_wallet, load_platform, wallet_key
from sweepstack.profiles import dates
from sweepstack.profiles.dated_facts import facts_of, stale_under
from sweepstack.profiles.load import load_profiles
from sweepstack.profiles.model import Profile

LEAST_HOURS = 1.0
"""Warns if the balance is too small for so many hours of one box at `max_price`."""
SECONDS = 45.0


def extras(config: StackConfig | StoreConfig) -> list[Finding]:
    """What the stack names and can't be done here without a further package."""
    return [fail("extras", *words.split(" Next: ")) for words in missing_extras(config).values()]


def checks(config: StackConfig) -> Iterator[tuple[str, Check]]:
    """A check of the candidates' accounts, and one of the SSH key for boxes. Reads only; rents nothing."""
    yield "extras", lambda: extras(config)
    profiles = list(load_profiles(config.candidates).values())
    # A platform without its adapter is refused with the stack file, and can't be asked.
    day, there = dates.today(), [one for one in profiles if not one.unavailable]
    if dated := [one for one in there if any(set(fact.leans) - {"clock"} for fact in facts_of(one, day))]:
        yield "facts", lambda: [old_facts(one, config.accept_facts) for one in dated]
    for name in (one.platform for one in there if has_wallet(one.platform)):
        yield f"wallet {name}", partial(wallet, name)
    found = {one.platform: load_platform(one.adapter) for one in there}
    rented = {name: found[name] for name in config.candidates if name in found and rents(found[name])}
    if rented:
        yield "accounts", lambda: accounts(rented, config.max_price)
    if any(platform.over_ssh for platform in rented.values()):
        yield "ssh key", ssh_key


def old_facts(profile: Profile, accepted: Mapping[str, AcceptedFact]) -> Finding:
    """Whether an approval will ask for old facts of the profile, and when it was last proved live."""
    name, live = f"facts of {profile.platform}", f"last proved live: {profile.proved_live}"
    old = stale_under(profile, "destroy", accepted, dates.today())
    if not old:
        return ok(name, live)
    options = " ".join(f"fact/{fact.name}" for fact in old)
    words = "; ".join(fact.words for fact in old)
    return warn(name, f"{words}; {live}", f"look them up; then `sweepctl give-up {options}` approves")


def rents(platform: Platform) -> bool:
    """Whether it has an account to ask. The local platform has none, and would create its registry if asked."""
    return isinstance(platform, HasMarket | HasBalance)


def accounts(platforms: dict[str, Platform], max_price: float | None) -> list[Finding]:
    """The account and balance that each platform reports."""
    jobs = {name: partial(account, name, platform, max_price) for name, platform in platforms.items()}
    answers = in_parallel(jobs, SECONDS)
    silent = f"no answer within {SECONDS:.0f} s"
    return [answers.get(name) or unknown(name, silent, "try again") for name in platforms]


def account(name: str, platform: Platform, max_price: float | None) -> Finding:
    """One platform's answer about this shell's key."""
    try:
        who = platform.account()
        left = platform.balance() if isinstance(platform, HasBalance) else None
    except NotAuthorized as error:
        return fail(name, str(error), f"{docs_page('renting.md')} says where each platform's key is looked for")
    except PlatformError as error:
        return unknown(name, str(error), "try again; nothing is rented while it does not answer")
    if left is None:
        return ok(name, f"account {who}; the key may not see its balance")
    known = f"account {who}, ${left.usd:.2f} left"
    if left.usd <= 0 or (max_price is not None and left.usd < max_price * LEAST_HOURS):
        return warn(name, known, f"add money at {name}: a box at max_price would end within the hour")
    return ok(name, known)


def wallet(name: str) -> list[Finding]:
    """What the account has left that pays for hosts which a person rents there, if its key is set. Reads only."""
    left, title = left_at(name), f"balance at {name}"
    if left is None:
        return [ok(title, f"not looked at: there is no {wallet_key(name)}")]
    if left.usd is None:
        return [
            unknown(title, left.why, f"check {wallet_key(name)}; without it nothing says when the money is used up")
        ]
    known = f"${left.usd:.2f}{f' ({left.said})' if left.said else ''} left"
    if left.usd <= 0:
        return [warn(title, known, f"add money at {name}: in arrears it ends what runs there")]
    return [ok(title, known)]


def ssh_key() -> list[Finding]:
    """The SSH key for new boxes. Its private half is not read."""
    from sweepstack.channel.ssh import keys as ssh_keys

    try:
        chosen = ssh_keys.choose()
    except NotAuthorized as error:
        return [fail("ssh key", str(error), "then run this again")]
    return [ok("ssh key", f"{chosen.public.split()[0]} from {chosen.source}")]
