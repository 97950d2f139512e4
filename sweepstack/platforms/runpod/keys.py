"""Finds the user's RunPod key and the address of RunPod's API, and checks the account.

Of RunPod's official SDK we use what reads its key file. What else it can do goes over GraphQL, which RunPod ends in
early 2027: REST v2 is asked without it (ADR 9).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from sweepstack.core.extras import fix
from sweepstack.onbox.common.errors import NotAuthorized, NotInstalled, WrongAccount
from sweepstack.platforms.common import redact, sessions

KEY_FILE = "~/.runpod/config.toml"
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
        return ""  # the SDK would say the same
    reads = _sdk_file("cli/groups/config/functions.py")
    try:
        found = reads.get_credentials("default")
    except OSError as error:
        raise NotAuthorized(
            f"RunPod's key file {KEY_FILE} can't be read ({error.strerror}): fix it, or `export {KEY_VARIABLE}=…`"
        ) from None
    key = found.get("api_key") if isinstance(found, dict) else None
    return key.strip() if isinstance(key, str) else ""


def _sdk_file(name: str) -> Any:
    """One file of the SDK, as a module. Its packages are not imported: that takes 1.4 s of CPU, and they change the
    root logger and write to stdout, which the engine reads. Raises NotInstalled when the SDK is not there."""
    package = importlib.util.find_spec("runpod")
    places = package.submodule_search_locations if package is not None else None
    spec = importlib.util.spec_from_file_location("runpod_sdk_file", Path(places[0]) / name) if places else None
    try:
        if spec is None or spec.loader is None:
            raise ImportError("it is not there")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, FileNotFoundError) as missing:
        raise NotInstalled(f"RunPod's SDK is not installed ({missing}). Next: {fix('runpod')}") from None
    return module
