"""One POST to an address that a person named. It is a secret: in no message, no record and no log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib3 import PoolManager

CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
TRIES = 3
BACKOFF = 0.3
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Sends `body`. Returns "" when a server took it (2xx), else why not, without the URL. Raises nothing.

    Tries again on refused and broken connections, timeouts and the server's own trouble. Blocks for at most
    `TRIES + 1` timeouts and the pauses between them (half a minute); call it from a thread.
    """
    import urllib3

    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        host = None
    if not host:
        return "what it holds is no http(s) URL"
    # The library logs each request and each retry with the path, and the path is where such URLs keep their secret.
    for logger in ("urllib3.connectionpool", "urllib3.util.retry"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    retries = urllib3.Retry(
        total=TRIES,
        redirect=0,
        status_forcelist=_AGAIN,
        allowed_methods=None,
        backoff_factor=BACKOFF,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    try:
        with _pool(parts.scheme, host) as pool:
            answer = pool.request(
                "POST",
                url,
                body=body,
                headers={"User-Agent": "sweepstack", **headers},
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
                retries=retries,
                redirect=False,
            )
    except urllib3.exceptions.MaxRetryError as error:
        return f"{_kind(error.reason)} ({TRIES + 1} tries)"
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return _kind(error)
    return "" if 200 <= answer.status < 300 else f"its server answered {answer.status}"


def _pool(scheme: str, host: str) -> PoolManager:
    from urllib.request import getproxies, proxy_bypass

    import urllib3

    proxy = getproxies().get(scheme)
    if proxy and not proxy_bypass(host):
        return urllib3.ProxyManager(proxy)
    return urllib3.PoolManager()


def _kind(error: BaseException | None) -> str:
    """An error by its kind alone: the words of these errors hold host and path."""
    name = type(error).__name__ if error is not None else ""
    return {
        "NewConnectionError": "the connection was refused",
        "ConnectTimeoutError": "no connection in time",
        "ReadTimeoutError": "no answer in time",
        "NameResolutionError": "its host has no address",
        "SSLError": "its certificate does not hold",
        "ProtocolError": "the connection broke",
        "ResponseError": "its server is in trouble",
    }.get(name, name or "no answer")
