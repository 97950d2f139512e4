"""The lease of a box from the first second of its container, until a runner has taken over.

A platform's start command runs this text alone (`platforms.common.renting`): with `home`, the folder that a runner
would work in, and `seconds`, the lease. While nothing was ever launched there, it stops the box once no command has
looked for so long (the file `looked`): it sends `requests` to the vendor, with the key that the vendor put into the
container (`key`, a variable; `here`: that of the box's id). It tries again, after longer and longer pauses, and never
gives up; `lease.lock` has why it still runs. From a launch on it only sees to it that a watcher is at work
(`runner.lease`), whose rules then hold alone.

The hand-over has one lock, `runner.lock`. A runner holds it for as long as it lives. This holds it from the look that
finds no launch until what it asked for has had `gone` seconds to happen, so it never stops a box that trains. Time is
counted as the watcher counts it. Python 3.8 and the standard library; short, since vendors limit the length of a start
command. It stands in the process list, and has no secret.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import time
import urllib.request
from typing import Any, Callable, Tuple

HERE = "@here@"


def boot_time() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        pass  # it would carry the key to another address


class Timer:
    def __init__(self, **asked: Any) -> None:
        self.asked = asked
        os.makedirs(asked["home"], exist_ok=True)
        self.watched = 0.0
        self.renew(self.looked())

    def renew(self, mark: Tuple[int, int]) -> None:
        self.mark, self.since, self.again, self.tries = mark, boot_time(), 0.0, 0
        self.note("")

    def note(self, why: str) -> None:
        self.alone("lease.lock", lambda file: os.pwrite(file, why.encode()[:256].ljust(256), 0))

    def look(self) -> None:
        if self.there("on-start"):
            if boot_time() >= self.watched and self.alone("lease.lock"):
                self.watched = boot_time() + 60
                subprocess.call([self.path("on-start")])
        elif self.due():
            self.alone("runner.lock", self.stop)

    def due(self) -> bool:
        mark, now = self.looked(), boot_time()
        if mark != self.mark:
            self.renew(mark)
        begun = self.there("on-start") or self.there("runner.pid")
        return not begun and now >= self.again and now - self.since >= self.asked["seconds"]

    def stop(self, _: int) -> None:
        if not self.due():
            return
        why = self.ask()
        self.again, self.tries = boot_time() + min(60 << self.tries, 1800), self.tries + 1
        self.note("nothing was launched on it: " + why)
        time.sleep(self.asked["gone"])

    def ask(self) -> str:
        key, here = (os.environ.get(self.asked[name], "") for name in ("key", "here"))
        headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json", "User-Agent": "sweepstack"}
        why = []
        for method, url, body in self.asked["requests"]:
            url, data = (text.replace(HERE, here) for text in (url, json.dumps(body)))
            request = urllib.request.Request(url, data.encode(), headers, method=method)
            try:
                told = json.load(urllib.request.build_opener(Stay).open(request, timeout=60))
                if told.get("success", True) and not told.get("errors"):
                    return "it was asked to stop, and still runs"
                why.append("refused")
            except Exception as error:
                why.append(str(error).replace(key or " ", "*"))
        return "; then ".join(why)

    def alone(self, lock: str, then: Callable[[int], Any] = bool) -> bool:
        file = self.open(lock)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            then(file)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(file)

    def looked(self) -> Tuple[int, int]:
        os.close(self.open("looked"))
        status = os.stat(self.path("looked"))
        return status.st_mtime_ns, status.st_ino

    def open(self, name: str) -> int:
        return os.open(self.path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def there(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def path(self, name: str) -> str:
        return os.path.join(self.asked["home"], name)


def hold(**asked: Any) -> None:
    timer = Timer(**asked)
    while True:
        time.sleep(asked["pause"])
        with contextlib.suppress(Exception):  # a full disk, say: it looks again
            timer.look()
