"""The provider's own configuration: the keys of platforms, and whose each is (docs/adr/026).

The engine hands the default provider every value of a stack config under `sweepstack:`, as text: the sweep itself, too.
What is no key is passed on as it is, and means nothing here. The process that answers this alone imports nothing of
resources, and of an adapter no more than its package, unless a key is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sweepstack.core.extensions import module_of
from sweepstack.core.suggest import closest
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.platforms.common import keys
from sweepstack.platforms.common.keys import Key
from sweepstack.provider.session import Failure, Session
from sweepstack.provider.wire import Secret, Unknown

ACCOUNTS: Final = "accounts"
"""The input that Check adds: adapter → the account of its key. A program gives none."""
_ENGINES: Final = frozenset({"version", "pluginDownloadURL", "envVarMappings"})
"""Inputs that the engine itself adds."""


def check(urn: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[dict[str, Any], list[Failure]]:
    """The inputs with each key as a secret and with the accounts, and what is refused. Asks a platform whose a key is
    when the key is new to this provider, and refuses a key of another account than that of the key before."""
    provider = urn.rsplit("::", 1)[-1]
    inputs = {name: value for name, value in news.items() if name != ACCOUNTS}
    failures = _misnamed(provider, inputs)
    before: dict[str, str] = olds.get(ACCOUNTS) or {}
    accounts: dict[str, str] = {}
    for adapter, key in keys.declared().items():
        value, known = inputs.pop(key.option, None), before.get(adapter, "")
        if isinstance(value, Unknown):  # of an output, in a preview
            inputs[key.option] = value
            accounts |= {adapter: known} if known else {}
            continue
        if value is not None and not isinstance(value, str):
            failures.append(_failure(f"{key.path} is to be a text"))
            continue
        if value and value.strip():
            keys.give(key, value)
            inputs[key.option] = Secret(value)
            if known and value == olds.get(key.option):
                accounts[adapter] = known
                continue
        elif not (known and keys.find(key)):  # the key of the environment takes over, or none does
            continue
        try:
            account = _account(adapter)
        except SweepstackError as error:
            failures.append(_failure(f"whose key {key.path} is can't be told, and nothing was changed: {error}"))
            continue
        if keys.tells(known) and keys.tells(account) and account != known:
            failures.append(_failure(_another(provider, key, known, account)))
        if key.option in inputs and account:
            accounts[adapter] = account
    return inputs | ({ACCOUNTS: accounts} if accounts else {}), failures


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys that are others now. None replaces the provider: that would replace each box."""
    return [key.option for key in keys.declared().values() if old.get(key.option) != new.get(key.option)]


def configure(session: Session, inputs: Mapping[str, Any]) -> None:
    """Takes the keys of these inputs for all that this process does."""
    for key in keys.declared().values():
        if isinstance(value := inputs.get(key.option), str) and value.strip():
            keys.give(key, value)
    session.accounts.update(inputs.get(ACCOUNTS) or {})


def wrong_account(session: Session, properties: Mapping[str, Any]) -> str:
    """Why this provider may not go on with a resource that has these properties; "" where it may. A resource can be
    given to another provider, which the engine takes for no change of it."""
    adapter = str(properties.get("adapter") or "").partition(":")[0]
    known, at_hand = str(properties.get("account") or ""), session.accounts.get(adapter, "")
    if known == at_hand or not (keys.tells(known) and keys.tells(at_hand)):
        return ""
    return (
        f"it is of the {keys.declared()[adapter].opens} account {known}, and this provider's key is of {at_hand}: "
        f"nothing was changed. Next: give it the provider that it had, whose key is of {known}"
    )


def _account(adapter: str) -> str:
    """The account of the key that counts now; "" where a platform has no adapter that could be asked."""
    if module_of(adapter) is None:
        return ""
    from sweepstack.platforms.registry import load_platform

    return load_platform(adapter).account()


def _misnamed(provider: str, inputs: Mapping[str, Any]) -> list[Failure]:
    """What looks like the name of a key and is none. What else the default provider is handed is the program's."""
    known = [key.option for key in keys.declared().values()]
    failures = []
    for name in inputs.keys() - known - _ENGINES:
        near = closest(name.replace("_", ""), known, cutoff=0.8)
        if near or not provider.startswith("default"):
            meant = f"; {near}?" if near else f". It has: {', '.join(sorted(known))}"
            failures.append(_failure(f"sweepstack:{name} is no key of the provider{meant}"))
    return failures


def _another(provider: str, key: Key, known: str, account: str) -> str:
    of_default = provider.startswith("default")
    shown = "the provider of this stack" if of_default else f"the provider {provider}"
    return (
        f"{key.path} is a key of the {key.opens} account {account}, and {shown} has worked with {known}: nothing was "
        f"changed. What it rented there can't be seen or ended with this key. Next: a key of {known}; or, for boxes of "
        f"{account}, a provider of their own beside it"
    )


def _failure(reason: str) -> Failure:
    """Names no property: the engine would print its value."""
    return Failure("", reason)
