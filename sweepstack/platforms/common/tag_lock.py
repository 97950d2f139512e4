"""A file lock for each tag: this machine runs one create of a tag at a time.

No rental platform refuses a second box with the same name. Two commands of one person that run at once would both
look, find nothing, and both rent. The lock is a file in the user's data folder; the kernel releases it when the process
that holds it ends, in whatever way. The platform's list may be out of date for the second command, so the first leaves
a note of what it made beside the lock. The lease in the evidence protects against other machines.

The note says that a create was sent, and which box it made. The process that holds the tag's lock writes it: before the
request goes out, and as soon as its answer is known. So the next holder need not rely on a list, which may be from
before the request: it asks for the box by its id. If the box is there, it is adopted. If it is proved gone, the note is
removed. If neither is known, nothing is rented.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.onbox.common.canonical import canonical_json, write_atomically
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import NotAuthorized, OutcomeUnknown, PlatformError, Unreachable, WrongAccount
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.platforms.common.rate_limit import paced


@contextlib.contextmanager
def hold_tag_lock(
    platform: str, account: str, tag: str, wait: Wait, tell: Callable[[bool], None] = lambda asked: None
) -> Iterator[Memory]:
    """Holds the lock of this tag, and gives the `Memory` that earlier holders on this machine left. `tell`: as in
    `Memory`.

    Blocks while another process holds the lock. Raises PlatformError upon the deadline or a cancel of `wait`, and when
    the folder can't be written: nothing was rented then."""
    name = hashlib.sha256("\0".join((platform, account, tag)).encode()).hexdigest()[:32]
    path = _folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PlatformError(
            f"nothing was rented: two creates of {tag} at once can't be kept apart, since {path.parent} can't be "
            f"written ({error.strerror}): `export XDG_DATA_HOME=…`, a folder that is yours"
        ) from error
    try:
        if why := wait.until(lambda: take(handle), f"another create of {tag} on this machine to end"):
            raise PlatformError(f"nothing was rented: {why}")
        first = os.fstat(handle).st_size == 0
        os.write(handle, b"held\n")
        yield Memory(path.with_suffix(".json"), platform, tag, wait, first=first, tell=tell)
    finally:
        os.close(handle)


def _folder() -> Path:
    return data_folder() / "locks"


LAG_SECONDS = 60.0
"""For so long a box that was just made may not be found by its id, and still be there."""
LOOKS = 3
"""A box counts as gone after so many looks that did not find it, the last one `LAG_SECONDS` after the request."""
LOOK_SECONDS = 2.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Look = Callable[[], BoxRecord | None]


class Unanswered(OutcomeUnknown):
    """The answer to the last create was lost, and no list shows what it may have made. `sent`: when it was sent."""

    def __init__(self, words: str, sent: datetime) -> None:
        super().__init__(words)
        self.sent = sent


def _nothing_told(_asked: bool) -> None:
    """The default of `tell`: keeps no record of the requests."""


@dataclass(frozen=True)
class _Last:
    """The last create that was sent. `made`: the id of its box; "" when its answer never came."""

    sent: datetime
    made: str


class Memory:
    """The note of one tag, for the process that holds its lock. `first`: the lock was never held here before. `tell`:
    called with True before each request that may make a box, and with False once it is proved that it made none."""

    def __init__(
        self,
        path: Path,
        platform: str,
        tag: str,
        wait: Wait,
        *,
        first: bool,
        tell: Callable[[bool], None] = _nothing_told,
    ) -> None:
        self.first = first
        self._tell = tell
        self._path, self._platform, self._tag, self._wait = path, platform, tag, wait

    def sending(self) -> None:
        """Notes that a request is about to be sent. Call it before every request that may make a box. Raises
        PlatformError when it can't be noted: then no request may be sent."""
        try:
            self._write("")
        except OSError as error:
            raise PlatformError(
                f"nothing was rented for {self._tag}: that it was asked for can't be written to {self._path} "
                f"({error.strerror}). Make room there, or `export XDG_DATA_HOME=…`, a folder that is yours"
            ) from error
        try:
            self._tell(True)
        except BaseException:
            self._forget()  # nothing is sent
            raise

    @contextlib.contextmanager
    def renting(self) -> Iterator[None]:
        """A context around the requests of one create: any PlatformError but OutcomeUnknown proves that they made
        nothing, and removes the note."""
        try:
            yield
        except OutcomeUnknown:
            raise
        except PlatformError:
            self.nothing()
            raise

    def made(self, native_id: str) -> None:
        """Notes the id of this tag's box. Never raises: the box bills, and the caller must not lose its id."""
        with contextlib.suppress(PlatformError):
            last = self._read()
            if last is not None and last.made == native_id:
                return
        try:
            self._write(native_id)
        except OSError as error:
            self._wait.progress(
                f"{native_id} of {self._platform} is there, and {self._path} can't be written ({error.strerror}): "
                "run no second command for this stack before this one has ended"
            )

    def nothing(self) -> None:
        """Removes the note: it is proved that the last request made nothing, or that what it made is gone."""
        self._tell(False)
        self._forget()

    def _forget(self) -> None:
        with contextlib.suppress(OSError):  # if it stays, the next holder looks for the box again
            self._path.unlink(missing_ok=True)

    def find(self, by_id: Callable[[str], BoxRecord | None], listed: Look, by_tag: Look) -> BoxRecord | None:
        """The box of this tag: as `listed` shows it, else as `box` finds it. Raises what they raise."""
        found = listed()
        return found if found is not None else self.box(by_id, by_tag)

    def box(self, by_id: Callable[[str], BoxRecord | None], by_tag: Look) -> BoxRecord | None:
        """The box that an earlier holder made and that a complete list lacks; None when it is proved that there is
        none. `by_id` and `by_tag` return None only for a box that is proved absent.

        Sends no request when there is no note. Blocks until `LAG_SECONDS` after the noted request when the note has an
        id and no box is found under it. Raises Unanswered when the answer was lost and no list shows a box: a list
        alone proves no absence. Raises Unreachable when the platform can't tell; PlatformError when the note can't be
        read, or when the box carries another tag by now.
        """
        last = self._read()
        if last is None:
            return None
        what = f"{last.made} of {self._platform}" if last.made else "what an earlier command may have rented"
        look: Look = (lambda: by_id(last.made)) if last.made else by_tag
        try:
            found, why = self._looked(look, what, last)
        except Unreachable as error:
            raise Unreachable(self._unknown(what, str(error))) from error
        except (NotAuthorized, WrongAccount) as error:
            raise type(error)(self._unknown(what, str(error))) from error
        except PlatformError as error:
            raise self._unreadable(str(error)) from error
        if why:
            raise Unreachable(self._unknown(what, why))
        if found is None and not last.made:
            raise Unanswered(f"whether {what} ({self._tag}) is there is not known, and no list shows it", last.sent)
        if found is None:
            self.nothing()
            return None
        if found.tag != self._tag:
            raise PlatformError(
                f"{what} was rented for {self._tag} and carries the tag {found.tag!r} by now: it bills, and no second "
                "box is rented. Give it its tag back in the platform's console, or end it there, then run the "
                f"command again. If it is yours for something else: `rm {self._path}`"
            )
        return found

    def _looked(self, look: Look, what: str, last: _Last) -> tuple[BoxRecord | None, str]:
        """The box, if found; and why the looking ended without a proof, "" when there is one (found or proved gone)."""
        lag = paced(LAG_SECONDS) if last.made else 0.0
        # `min`: the clock may have been set back.
        rest = min(lag, lag - (datetime.now(UTC) - last.sent).total_seconds())
        begin, looks = time.monotonic(), 0
        found: BoxRecord | None = None

        def settled() -> bool:
            nonlocal found, looks
            if time.monotonic() - begin < looks * paced(LOOK_SECONDS):
                return False
            found = look()
            looks += 1
            if found is not None and found.phase is Phase.GONE:
                found = None
            return found is not None or (looks >= LOOKS and time.monotonic() - begin >= rest)

        why = self._wait.until(settled, f"{what} ({self._tag}) to show, or to be proved gone")
        return found, "" if found is not None else why

    def _unknown(self, what: str, why: str) -> str:
        return f"whether {what} ({self._tag}) is there is not known: it may bill, and no second box is rented: {why}"

    def _read(self) -> _Last | None:
        """The note, None when there is none. Raises PlatformError when it can't be read."""
        try:
            told = json.loads(self._path.read_bytes())
            sent, made, tag = datetime.fromisoformat(told["sent"]), told["made"], told["tag"]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._unreadable(f"{type(error).__name__}: it is not what was written there") from error
        if (
            sent.tzinfo is None
            or tag != self._tag
            or not (made == "" or (isinstance(made, str) and _ID.fullmatch(made)))
        ):
            raise self._unreadable("it is not what was written there")
        return _Last(sent, made)

    def _unreadable(self, why: str) -> PlatformError:
        return PlatformError(
            f"{self._path} remembers what this machine last rented for {self._tag}, and can't be used ({why}): that "
            f"box may bill, and no second one is rented. Next: `sweepctl audit` shows what bills; when nothing of "
            f"{self._tag} does, `rm {self._path}` and run the command again"
        )

    def _write(self, made: str) -> None:
        value = {"tag": self._tag, "platform": self._platform, "sent": datetime.now(UTC).isoformat(), "made": made}
        write_atomically(self._path, canonical_json(value) + b"\n", mode=0o600)
