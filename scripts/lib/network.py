"""Short questions to hosts that may not be there, and downloads that say how far they are."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.lib.errors import Cancelled, SetupError

PROBE_SECONDS = 3.0
READ_SECONDS = 30.0
CHUNK = 1 << 20


def first_answering(urls: Sequence[str], *, seconds: float = PROBE_SECONDS) -> str | None:
    """The first of `urls` that can be had, all asked at once. Blocks for at most `seconds`, or a little more."""
    results: dict[str, bool] = {}

    def ask(url: str) -> None:
        results[url] = answers(url, seconds=seconds)

    threads = [threading.Thread(target=ask, args=(url,), daemon=True) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 1)
    return next((url for url in urls if results.get(url)), None)


def answers(url: str, *, seconds: float = PROBE_SECONDS) -> bool:
    """Whether `url` can be had at all. Blocks for at most `seconds`, whatever name resolution does."""
    result: list[bool] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=seconds) as reply:
                result.append(200 <= reply.status < 400)
        except (OSError, http.client.HTTPException, ValueError):
            result.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return result == [True]


def fetch_text(url: str) -> str | None:
    """A small text file, or None when the server says that it does not exist.

    Raises:
        SetupError: no answer.
    """
    try:
        with urllib.request.urlopen(url, timeout=READ_SECONDS) as reply:
            body: bytes = reply.read(CHUNK)
            return body.decode(errors="replace")
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):
            return None
        raise SetupError(f"{url}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(f"{url}: {error}") from error


def download(
    url: str, target: Path, *, deadline: float, cancel: threading.Event, progress: Callable[[str], None]
) -> None:
    """Downloads `url` into `target`. A short read is an error, never a short file under that name.

    Raises:
        SetupError: no answer, a cut, or the deadline.
        Cancelled: `cancel` was set.
    """
    ends = time.monotonic() + deadline
    part = target.with_name(target.name + ".partial")
    try:
        with urllib.request.urlopen(url, timeout=READ_SECONDS) as reply, part.open("wb") as file:
            total = int(reply.headers.get("Content-Length") or 0)
            done = 0
            while chunk := reply.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(f"{done >> 20} of {total >> 20} MB" if total else f"{done >> 20} MB")
                if cancel.is_set():
                    raise Cancelled(f"{url}: ended early")
                if time.monotonic() > ends:
                    raise SetupError(f"{url}: still downloading after {deadline:.0f} s")
        if total and done != total:
            raise SetupError(f"{url}: cut off after {done} of {total} bytes")
        part.rename(target)
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(f"{url}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
