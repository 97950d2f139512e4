"""A role of AWS for the commands of a job, by the forge's own token: no key is stored.

The engine, sweepctl and rclone take AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE from the environment, as every SDK of
AWS does: they get keys of an hour, and read the file again when these end. A token of GitHub holds for minutes, so the
file is written anew as long as commands run; one of GitLab holds as long as its job.

Sources: docs.github.com/actions/reference/security/oidc, docs.gitlab.com/ci/cloud_services/aws (id_tokens),
docs.aws.amazon.com/sdkref/latest/guide/feature-assume-role-credentials.html.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import No, SweepstackError, Unsure
from sweepstack.platforms.common.http_client import HttpClient

ROLE = "AWS_ROLE_ARN"
AUDIENCE = "sts.amazonaws.com"
ASKED_AT, ASKED_WITH = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
GIVEN = "SWEEPS_ID_TOKEN"
"""GitLab: the variable that the job's `id_tokens` names."""
HIDDEN = (ASKED_AT, ASKED_WITH, GIVEN)
"""What can be made a token for another role. No command that a job starts inherits it."""
FRESH = 180.0
"""Seconds: GitHub's tokens hold for five minutes."""


@contextmanager
def role(folder: Path) -> Iterator[dict[str, str]]:
    """The variables for commands until this ends, with the token in a file of this folder; none without AWS_ROLE_ARN.

    Raises No where a key is set as well, which the SDKs would take instead; Unsure where the forge gives no token.
    """
    if not os.environ.get(ROLE):
        yield {}
        return
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        raise No(f"{ROLE} and AWS_ACCESS_KEY_ID are both set, and the key would be taken: remove one of these secrets")
    file, done = folder / "id-token", threading.Event()
    _write(file, _token())

    def keep_fresh() -> None:
        while not done.wait(FRESH):
            with suppress(
                SweepstackError, OSError
            ):  # the one before may hold still; else AWS refuses it, in its own words
                _write(file, _token())

    keeper = threading.Thread(target=keep_fresh, daemon=True)
    if not os.environ.get(GIVEN):
        keeper.start()
    try:
        yield {"AWS_WEB_IDENTITY_TOKEN_FILE": str(file), "AWS_ROLE_SESSION_NAME": "sweepctl-ci"}
    finally:
        done.set()
        if keeper.is_alive():
            keeper.join(5)


def _write(file: Path, token: str) -> None:
    write_atomically(file, token.encode(), mode=0o600)


def _token() -> str:
    """The forge's token for this job. Blocks for a minute and a half at most. Raises Unsure, PlatformError."""
    if given := os.environ.get(GIVEN):
        return given
    address, bearer = os.environ.get(ASKED_AT, ""), os.environ.get(ASKED_WITH, "")
    if not address or not bearer:
        raise Unsure(
            f"{ROLE} is set, and this job gets no token to take that role with: GitHub's needs `id-token: write`, "
            f"GitLab's `id_tokens: {{{GIVEN}: {{aud: {AUDIENCE}}}}}`. sweepctl ci github (or gitlab) --force writes it"
        )
    parts = urlsplit(address)
    http = HttpClient("GitHub", f"{parts.scheme}://{parts.netloc}", bearer, key_hint="the job's right id-token: write")
    answer = http.read(parts.path, {**dict(parse_qsl(parts.query)), "audience": AUDIENCE})
    value = answer.data.get("value") if answer.ok and isinstance(answer.data, dict) else None
    if not isinstance(value, str) or not value:
        raise Unsure(f"GitHub gave no token for {ROLE} (HTTP {answer.status}): does the job have `id-token: write`?")
    return value
