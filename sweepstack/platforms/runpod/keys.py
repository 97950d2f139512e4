"""Whose RunPod account this is: the key, the address, and the account's id, which the official SDK asks for.

The SDK reads its key once, at import, into a module variable, and knows nothing of `RUNPOD_API_KEY`. So the key is
handed to it with each call, and its variable is neither set nor read. Its errors can carry the whole query they were
raised by: only the message is taken.
"""

from __future__ import annotations

import hashlib
import os
import threading
from types import ModuleType
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, Unreachable, WrongAccount
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import retried
from sweepstack.platforms.runpod import sdk
from sweepstack.platforms.runpod.sdk import KEY_FILE

BASE_VARIABLE = "RUNPOD_API_BASE_URL"
BASE_URL = "https://api.runpod.io"
KEY_VARIABLE = "RUNPOD_API_KEY"
KEY_HINT = f"{KEY_VARIABLE}, or api_key under [default] in {KEY_FILE}"
ASK_SECONDS = 60.0
"""For one question through the SDK, with all its retries."""

_lock = threading.Lock()
_accounts: dict[tuple[str, str], str] = {}


def base_url() -> str:
    """The address of the API; blank means the real one, as it does for RunPod's own tools."""
    return os.environ.get(BASE_VARIABLE, "").strip().rstrip("/") or BASE_URL


def api_key() -> str:
    """The user's key, from the environment or the vendor's own file. Raises NotAuthorized when there is none."""
    key = os.environ.get(KEY_VARIABLE, "").strip() or _key_in_file()
    if not key:
        raise NotAuthorized(f"there is no key for RunPod: `export {KEY_VARIABLE}=…` or `runpod config` ({KEY_HINT})")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise NotAuthorized(f"the key for RunPod is not one: it holds blanks or other signs. Check {KEY_HINT}")
    redact.learn({KEY_VARIABLE: key})
    return key


def known_account(base: str, key: str) -> str:
    """The id of the account that the key is of, as this process learnt it; "" when it has not asked yet."""
    with _lock:
        return _accounts.get((base, _digest(key)), "")


def ask_account(base: str, key: str) -> str:
    """The same, asked for now. Raises NotAuthorized, Unreachable."""
    user = ask("account", lambda sdk: sdk.get_user(api_key=key))
    identifier = user.get("id") if isinstance(user, dict) else None
    if not isinstance(identifier, str) or not identifier:
        raise Unreachable("RunPod does not say whose key this is, so nothing is known. Try again")
    with _lock:
        _accounts[base, _digest(key)] = identifier
    return identifier


def forget() -> None:
    """The next who asks for an account asks RunPod."""
    with _lock:
        _accounts.clear()


def require(account: str, at_hand: str, what: str) -> None:
    """Raises WrongAccount, with both names, unless they are the same."""
    if account != at_hand:
        raise WrongAccount(
            f"{what} belongs to the RunPod account {account}, and the key at hand is of {at_hand}: "
            f"`export {KEY_VARIABLE}=…` with the key of {account}"
        )


def ask(what: str, question: Any) -> Any:
    """The SDK's answer to a read-only `question`, which gets `runpod.api.ctl_commands`. Repeated when it gets none.

    Raises NotAuthorized, Unreachable; never an error of the SDK, and none that holds a query.
    """
    commands, error = sdk.module(), sdk.module("error")

    def once() -> Any:
        answer, failure = _answer(what, question, commands, error)
        if failure:
            raise failure
        return answer

    return retried(once, Deadline(ASK_SECONDS), f"RunPod to tell the {what}")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _answer(what: str, question: Any, commands: ModuleType, error: ModuleType) -> tuple[Any, PlatformError | None]:
    """The answer, or our error for what the SDK raised; raised outside of here, so that nothing is chained to it."""
    import requests

    try:
        return question(commands), None
    except error.AuthenticationError:
        return None, NotAuthorized(f"RunPod does not accept the key (asked for the {what}): check {KEY_HINT}")
    except error.QueryError as refused:
        text = redact.redact(str(refused.message or ""))[:200]
        return None, Unreachable(f"RunPod did not tell the {what}: {text}")
    except requests.RequestException as broken:
        return None, Unreachable(f"RunPod does not answer (asked for the {what}: {type(broken).__name__})")
    except (ValueError, KeyError, TypeError, AttributeError):  # a page instead of JSON, a 429, a retired API
        return None, Unreachable(f"RunPod gave no usable answer when asked for the {what}. Try again")


def _key_in_file() -> str:
    if not os.path.exists(os.path.expanduser(KEY_FILE)):
        return ""  # what the SDK would say, without its import
    try:
        found = sdk.module("cli.groups.config.functions").get_credentials("default")
    except OSError as error:
        raise NotAuthorized(
            f"RunPod's key file {KEY_FILE} can't be read ({error.strerror}): fix it, or `export {KEY_VARIABLE}=…`"
        ) from None
    key = found.get("api_key") if isinstance(found, dict) else None
    return key.strip() if isinstance(key, str) else ""
