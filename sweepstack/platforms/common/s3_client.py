"""The S3 client: one a process, with bounds on every wait; and what its errors mean for a person.

Keys and server come from where the AWS tools take them (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE,
AWS_ENDPOINT_URL, ~/.aws); they travel in signed headers only and stand in no message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sweepstack.core.extras import lacks
from sweepstack.onbox.common.errors import EvidenceError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

CONNECT_SECONDS = 5
READ_SECONDS = 60
TRIES = 3
DOWN_SECONDS = 5.0
"""Seconds for which nothing is asked after no answer: a preview asks much, and its waits must not add up."""
PARALLEL = 16

_lock = threading.Lock()
_client: Any = None
_down: tuple[float, str] | None = None

_NO_KEYS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (and AWS_ENDPOINT_URL where the server is not AWS)"
)


class Precondition(EvidenceError):
    """A request with a condition was refused: another one had changed the object before it, or the object is gone."""


class NotThere(EvidenceError):
    """The server proves that the bucket exists and holds no such key."""


def client() -> Any:
    """The process's S3 client, made on first use (a quarter of a second). Raises EvidenceError without settings, and
    where the extra `s3` is not installed."""
    global _client
    with _lock:
        if _client is None:
            if missing := lacks("s3"):
                raise EvidenceError(f"object storage can't be asked: {missing}")
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError

            settings: dict[str, Any] = {
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": READ_SECONDS,
                "retries": {"mode": "standard", "total_max_attempts": TRIES},
                "max_pool_connections": 2 * PARALLEL,
                "user_agent_extra": "sweepstack",
            }
            try:
                session = boto3.session.Session()
                made = session.client("s3", config=Config(**settings))
                style = (session._session.get_scoped_config().get("s3") or {}).get("addressing_style")
                if not style and not urlsplit(made.meta.endpoint_url).hostname.endswith(
                    (".amazonaws.com", ".amazonaws.com.cn")
                ):
                    # Few servers besides AWS have a host name for each bucket.
                    made = session.client("s3", config=Config(**settings, s3={"addressing_style": "path"}))
            except (BotoCoreError, ValueError) as error:
                raise EvidenceError(f"the AWS settings of this machine can't be used: {error}") from error
            _client = made
        return _client


def forget() -> None:
    """Drops the client: the next one is made from the settings as they are then."""
    global _client, _down
    with _lock:
        _client, _down = None, None


@contextmanager
def asking(where: str) -> Iterator[Any]:
    """Gives the client, and turns what it raises into errors for people. `where`: what was asked for.

    Raises NotThere, Precondition, EvidenceError. Only NotThere says that a key is absent.
    """
    global _down
    down = _down
    if down is not None and time.monotonic() < down[0]:
        raise EvidenceError(f"{where}: {down[1]}")
    s3 = client()
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
    from botocore.exceptions import ConnectionError as NoConnection

    try:
        yield s3
    except ClientError as error:
        raise explained(error, where) from error
    except NoCredentialsError as error:
        raise EvidenceError(f"{where}: this machine has no keys for object storage: {_NO_KEYS}") from error
    except (HTTPClientError, NoConnection) as error:
        host = urlsplit(client().meta.endpoint_url).netloc
        why = f"{host} does not answer ({type(error).__name__}), so nothing is known of it: is the server up, and "
        why += "AWS_ENDPOINT_URL right? Then run the command again"
        _down = (time.monotonic() + DOWN_SECONDS, why)
        raise EvidenceError(f"{where}: {why}") from error
    except BotoCoreError as error:
        raise EvidenceError(f"{where}: what came was not whole ({type(error).__name__}); run it again") from error
    _down = None


def explained(error: ClientError, where: str) -> EvidenceError:
    """The error for a person: what it means, and what to do. The server's own words may quote a request: left out."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchKey":
        return NotThere(f"{where} is not there")
    if code == "NoSuchBucket":
        return EvidenceError(f"{where}: the bucket is not there. Make it, or correct its name (or AWS_ENDPOINT_URL)")
    if status in (409, 412) or code in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchUpload"):
        return Precondition(f"{where} is not what it was")
    if status == 403 or code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        return EvidenceError(
            f"{where}: the server refused these keys ({code}), so nothing is known of it. Check that they are right, "
            f"and what they may do in this bucket: {_NO_KEYS}"
        )
    if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
        return EvidenceError(f"{where}: the bucket is in another region; set AWS_REGION ({code})")
    if status == 501 or code == "NotImplemented":
        return EvidenceError(f"{where}: this server can't do what evidence needs (conditional writes): {code}")
    return EvidenceError(f"{where}: the server answered {status} {code}, so nothing is known of it; run it again later")
