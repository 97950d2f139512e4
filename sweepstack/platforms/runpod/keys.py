"""Finds the user's RunPod key and the address of RunPod's API, and checks the account.

The SDK reads its key once, at import, into a module variable, and does not read `RUNPOD_API_KEY`. So we pass the key
with each call, and neither set nor read that variable.
"""

from __future__ import annotations

import os

from sweepstack.onbox.common.errors import NotAuthorized, WrongAccount
from sweepstack.platforms.common import redact, sessions
from sweepstack.platforms.runpod import sdk
from sweepstack.platforms.runpod.sdk import KEY_FILE

BASE_VARIABLE = "RUNPOD_API_BASE_URL"
BASE_URL = "https://api.runpod.io"
KEY_VARIABLE = "RUNPOD_API_KEY"
KEY_HINT = f"{KEY_VARIABLE}, or api_key under [default] in {KEY_FILE}"


def base_url() -> str:
    """The address of the API, from RUNPOD_API_BASE_URL; without it the real one, as with RunPod's own tools."""
    return sessions.base_url(BASE_VARIABLE, BASE_URL)


def api_key() -> str:
    """The user's key, from RUNPOD_API_KEY or RunPod's own file. Raises NotAuthorized when there is none."""
    key = os.environ.get(KEY_VARIABLE, "").strip() or _key_in_file()
    missing = f"there is no key for RunPod: `export {KEY_VARIABLE}=…` or `runpod config` ({KEY_HINT})"
    sessions.must_be_a_key(key, "RunPod", missing, f". Check {KEY_HINT}")
    redact.learn({KEY_VARIABLE: key}, of="runpod", file=KEY_FILE)
    return key


def require(account: str, at_hand: str, what: str) -> None:
    """Raises WrongAccount, which names both, unless `account` is the account `at_hand` of the current key."""
    if account != at_hand:
        raise WrongAccount(
            f"{what} belongs to the RunPod account {account}, and the key at hand is of {at_hand}: "
            f"`export {KEY_VARIABLE}=…` with the key of {account}"
        )


def _key_in_file() -> str:
    if not os.path.exists(os.path.expanduser(KEY_FILE)):
        return ""  # the SDK would say the same, and takes long to import
    try:
        found = sdk.module("cli.groups.config.functions").get_credentials("default")
    except OSError as error:
        raise NotAuthorized(
            f"RunPod's key file {KEY_FILE} can't be read ({error.strerror}): fix it, or `export {KEY_VARIABLE}=…`"
        ) from None
    key = found.get("api_key") if isinstance(found, dict) else None
    return key.strip() if isinstance(key, str) else ""
