"""The provider's own configuration: the keys of platforms, and whose each is (docs/adr/026).

The engine hands the default provider every value of a stack config under `sweepstack:`, as text: the sweep itself, too.
What is no key passes. Imports of an adapter no more than its package, unless a key is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sweepstack.core.extensions import module_of
from sweepstack.core.suggest import closest
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.platforms.common import keys
from sweepstack.provider.next_command import said_of
from sweepstack.provider.session import Failure, Session
from sweepstack.provider.wire import Secret, Unknown

ACCOUNTS: Final = "accounts"
"""The input that Check adds: adapter → the account of its key. A program gives none."""
_OF_THE_ENGINE: Final = frozenset({"version", "pluginDownloadURL", "envVarMappings"})


def check(urn: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[dict[str, Any], list[Failure]]:
    """The inputs with each key as a secret and with the accounts, and what is refused. Asks a platform whose a key is
    when the key is new to this provider, and refuses a key of another account than that of the key before."""
    provider = urn.rsplit("::", 1)[-1]  # "default…" where it is none that a program made
    inputs = {name: value for name, value in news.items() if name != ACCOUNTS}
    failures = _misnamed(provider, inputs)
    before: dict[str, str] = olds.get(ACCOUNTS) or {}
    accounts: dict[str, str] = {}
    for adapter, key in keys.declared().items():
        value, known = inputs.pop(key.option, None), before.get(adapter, "")
        if isinstance(value, Unknown):  # of an output, in a preview
            inputs[key.option], accounts[adapter] = value, known
            continue
        if value := str(value or "").strip():
            keys.give(key, value)
            inputs[key.option] = Secret(value)
            if known and value == olds.get(key.option):
                accounts[adapter] = known
                continue
        elif not (known and keys.find(key)):  # the key of the environment takes over, or none does
            continue
        try:
            from sweepstack.platforms.registry import load_platform

            account = load_platform(adapter).account() if module_of(adapter) else ""
        except SweepstackError as error:
            unchanged = "" if "nothing was changed" in str(error) else ", and nothing was changed"
            failures.append(f"whose key {key.path} is can't be told{unchanged}: {said_of(error)}")
            continue
        if keys.tells(known) and keys.tells(account) and account != known:
            failures.append(
                f"{key.path} is a key of the {key.opens} account {account}, and the provider {provider} has worked "
                f"with {known}: nothing was changed. What it rented there can't be seen or ended with this key. Next: "
                f"a key of {known}; or, for boxes of {account}, a provider of their own beside it"
            )
        if value:
            accounts[adapter] = account
    told = {adapter: account for adapter, account in accounts.items() if account}
    # No failure names its property: the engine would print its value.
    return inputs | ({ACCOUNTS: told} if told else {}), [Failure("", reason) for reason in failures]


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys that are others now. None replaces the provider: that would replace each box."""
    return [key.option for key in keys.declared().values() if old.get(key.option) != new.get(key.option)]


def configure(session: Session, inputs: Mapping[str, Any]) -> None:
    """Takes the keys of these inputs for all that this process does."""
    for key in keys.declared().values():
        if value := inputs.get(key.option):
            keys.give(key, value)
    session.accounts.update(inputs.get(ACCOUNTS) or {})


def wrong_account(session: Session, properties: Mapping[str, Any]) -> str:
    """Why this provider may not go on with a resource that was another's; "" where it may."""
    adapter = str(properties.get("adapter") or "").partition(":")[0]
    known, at_hand = str(properties.get("account") or ""), session.accounts.get(adapter, "")
    if known == at_hand or not (keys.tells(known) and keys.tells(at_hand)):
        return ""
    return (
        f"it is of the {keys.declared()[adapter].opens} account {known}, and this provider's key is of {at_hand}: "
        f"nothing was changed. Next: give it the provider that it had, whose key is of {known}"
    )


def _misnamed(provider: str, inputs: Mapping[str, Any]) -> list[str]:
    """What looks like the name of a key and is none. What else the default provider is handed is the program's."""
    known = [key.option for key in keys.declared().values()]
    failures = []
    for name in inputs.keys() - known - _OF_THE_ENGINE:
        near = closest(name.replace("_", ""), known, cutoff=0.8)
        if near or not provider.startswith("default"):
            meant = f"; {near}?" if near else f". It has: {', '.join(sorted(known))}"
            failures.append(f"sweepstack:{name} is no key of the provider{meant}")
    return failures
