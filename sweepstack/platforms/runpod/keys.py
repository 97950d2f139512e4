"""The key at hand for RunPod, the address of its API, and whose account is meant.

The SDK reads its key once, at import, into a module variable, and knows nothing of `RUNPOD_API_KEY`. So the key is
handed to it with each call, and its variable is neither set nor read.
"""

from __future__ import annotations

import os

from sweepstack.onbox.common.errors import NotAuthorized, WrongAccount
from sweepstack.platforms.common import redact
from sweepstack.platforms.runpod import sdk
from sweepstack.platforms.runpod.sdk import KEY_FILE

BASE_VARIABLE = "RUNPOD_API_BASE_URL"
BASE_URL = "https://api.runpod.io"
KEY_VARIABLE = "RUNPOD_API_KEY"
KEY_HINT = f"{KEY_VARIABLE}, or api_key under [default] in {KEY_FILE}"


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


def require(account: str, at_hand: str, what: str) -> None:
    """Raises WrongAccount, with both names, unless they are the same."""
    if account != at_hand:
        raise WrongAccount(
            f"{what} belongs to the RunPod account {account}, and the key at hand is of {at_hand}: "
            f"`export {KEY_VARIABLE}=…` with the key of {account}"
        )


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
