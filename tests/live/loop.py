"""`make live PLATFORM=runpod USD=1`: plays the whole loop on a real account, asks the box for the profile's facts, and
proposes new stamps. Rents one box and costs real money. docs/testing-live.md

Exit code: 0 the loop was played and nothing is left; 1 a step failed, and nothing is left; 2 it did not begin, and
rented nothing; 3 something is left, or that is not known; 130 interrupted, and nothing is left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from sweepstack.channel.ssh.keys import KEY_VARIABLE, choose
from sweepstack.extensions.authoring.stamp_patch import NoStamps, propose, stamped
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.profiles import dates
from sweepstack.profiles.load import FOLDER, load_profile
from tests.engine.harness import ROOT, Stack
from tests.live.books import MOST_PER_HOUR, loop_books
from tests.live.journey import Failed, Journey
from tests.live.purse import RESERVE_SECONDS, OverBudget
from tests.live.run import LiveRun, busy, new_identity
from tests.live.transcript import Transcript
from tests.simulators.rental import stack_of

PLAYED, FAILED, NOT_BEGUN, LEFT, INTERRUPTED = 0, 1, 2, 3, 130
HOURS = 0.75
"""About how long the box bills."""
PASSED_ON = (
    *("SWEEPSTACK_API_PACE", "SWEEPSTACK_API_TIMEOUT", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"),
)


class NotBegun(Exception):
    """Why the loop does not begin; nothing was rented."""


def main(argv: Sequence[str] | None = None) -> int:
    """Blocks for half an hour or more, and rents one box."""
    told = _arguments(argv)
    try:
        _check(told)
        run = LiveRun(told.platform, told.spend, f"sweepstack-{new_identity()}-")
        return _play(told, run)
    except NotBegun as error:
        print(f"the live loop did not begin, and rented nothing: {error}", file=sys.stderr)
        return NOT_BEGUN


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.live.loop", description="Costs money: docs/testing-live.md")
    parser.add_argument("platform", nargs="?", default="", help=", ".join(loop_books()))
    parser.add_argument("--spend", default="", metavar="USD", help="what it may cost at most: 0.15 to 100")
    parser.add_argument("--stack", type=Path, metavar="FILE", help="instead of the stack file that ships")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="instead of profiles/: which are to get stamps")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="instead of .cache/live/NAME")
    return parser.parse_args(argv)


def _check(told: argparse.Namespace) -> None:
    """Raises NotBegun. Asks nothing of any platform."""
    books = loop_books()
    if told.platform not in books:
        known = " or ".join(books)
        raise NotBegun(f"which platform? {known}: make live PLATFORM={next(iter(books))} USD=1")
    least = MOST_PER_HOUR * RESERVE_SECONDS / 3600
    try:
        told.spend = float(told.spend)
    except ValueError:
        told.spend = 0.0
    if not least <= told.spend <= 100:
        raise NotBegun(
            f"it costs money: say how much at most, from {least:.2f} to 100 USD: "
            f"make live PLATFORM={told.platform} USD=1"
        )
    if not os.environ.get(books[told.platform].key, "").strip():
        raise NotBegun(f"it needs a key: export {books[told.platform].key}=…")
    try:
        choose()
    except SweepstackError as error:
        raise NotBegun(str(error)) from error


def _play(told: argparse.Namespace, run: LiveRun) -> int:
    identity = run.prefix.removeprefix("sweepstack-").rstrip("-")
    before = run.balance()
    if before is None or before < told.spend:
        held = "can't be read" if before is None else f"is ${before:.2f}"
        raise NotBegun(f"the balance {held}, and USD is {told.spend:g}: {run.books.console}")
    out = (told.out or ROOT / ".cache" / "live" / identity).resolve()
    transcript = Transcript(out / "transcript.txt", {run.books.key: os.environ[run.books.key].strip()})
    journey, code, left = None, FAILED, ["not looked at"]
    with _interrupts(run):
        try:
            try:
                _opening(transcript, run, before)
                journey = _journey(told, run, transcript, out / "work")
                run.watch()
                journey.play()
            finally:
                run.interrupted.set()  # from here on a signal says that the end is under way, and cuts nothing short
            code = FAILED if journey.flaws else PLAYED
        except OverBudget as error:
            transcript.say(f"STOPPED: {error}", red=True)
        except KeyboardInterrupt:
            code = INTERRUPTED if not run.purse.over else FAILED
            transcript.say(f"STOPPED: {run.purse.over or 'interrupted'}", red=True)
        except (Failed, SweepstackError, httpx.HTTPError) as error:
            transcript.say(f"FAILED: {error}", red=True)
        except Exception:
            transcript.say(f"FAILED: {traceback.format_exc()}", red=True)
        finally:
            left = _end(run, transcript)
    for flaw in journey.flaws if journey else ():
        transcript.say(f"NOT AS IT MUST BE: {flaw}", red=True)
    if journey is not None:
        _facts(told, run, journey, out, proved=code == PLAYED and not left)
    _closing(transcript, run, before, left)
    transcript.say(f"the transcript: {transcript.path}")
    transcript.close()
    if left:
        return LEFT
    if code == PLAYED:
        shutil.rmtree(out / "work", ignore_errors=True)
    return code


def _end(run: LiveRun, transcript: Transcript) -> list[str]:
    """Ends all of the run. What is left, or why that is not known."""
    transcript.say(f"ending what is called {run.prefix}…, and looking until that is proved")
    try:
        return run.close()
    except Exception as error:
        return [f"what is left is not known: {type(error).__name__}: {error}"]


@contextmanager
def _interrupts(run: LiveRun) -> Iterator[None]:
    def handler(*_: object) -> None:
        if run.interrupted.is_set():
            busy()
        else:
            run.as_interrupt()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _opening(transcript: Transcript, run: LiveRun, balance: float) -> None:
    version = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    transcript.say(
        f"live loop on {run.platform_name}, {dates.today()}, commit {version.strip() or 'unknown'}: real money, at "
        f"most ${run.purse.ceiling:g} (balance ${balance:.2f})"
    )
    transcript.say(
        f"one box at ${MOST_PER_HOUR:.2f}/h at most for 30 to 60 minutes: about ${0.2 * HOURS:.2f} to "
        f"${MOST_PER_HOUR * HOURS:.2f}. Ctrl-C ends it, and what it rented"
    )
    transcript.say(f"all that is rented is called {run.prefix}…")
    transcript.say(f"if this process is killed: python -m tests.live {run.platform_name} {run.prefix}")


def _journey(told: argparse.Namespace, run: LiveRun, transcript: Transcript, work: Path) -> Journey:
    stack = Stack(work, name=run.prefix.removeprefix("sweepstack-").rstrip("-"))
    key = choose()
    books = run.books
    passed = (books.key, books.url, *PASSED_ON)
    stack.env |= {name: os.environ[name] for name in passed if name in os.environ}
    if key.identity is not None:
        stack.env[KEY_VARIABLE] = str(key.identity)
    elif KEY_VARIABLE in os.environ:
        stack.env[KEY_VARIABLE] = os.environ[KEY_VARIABLE]
    profile = load_profile(told.platform, (told.profiles or FOLDER).resolve())
    journey = Journey(run, profile, stack, transcript)
    journey.prepare(told.stack or ROOT / "stacks" / f"Pulumi.{stack_of(told.platform)}.yaml")
    return journey


def _facts(told: argparse.Namespace, run: LiveRun, journey: Journey, out: Path, *, proved: bool) -> None:
    """Shows what the box answered, and writes the patch where there is something to propose."""
    say, answers = journey.transcript.say, journey.facts()
    if not answers:
        return
    say("what the box says of the profile:")
    for answer in answers:
        say(answer.line(), red=answer.verdict == "contradicted")
    own = os.environ.get(run.books.url, "").strip().rstrip("/") or run.books.base
    if told.profiles is None and own != run.books.base:
        say(f"no stamps are proposed: {own} is not {run.platform_name}'s own address ({run.books.base})")
        return
    if not proved:
        say("proved_live gets no new month: the loop was not played to its end")
    profile = (told.profiles or FOLDER).resolve() / f"{told.platform}.md"
    try:
        patch = propose(profile, answers, dates.today(), proved_live=proved)
    except NoStamps as error:
        say(f"no stamps are proposed: {error}", red=True)
        return
    if not patch:
        say("no stamps to propose: they are of this month already, or the box answered nothing")
        return
    path = out / "stamps.patch"
    path.write_text(patch, "utf-8")
    say(f"new stamps for {', '.join([*(['proved_live'] if proved else []), *stamped(answers)])}, not applied. Next:")
    say(f"  git apply {path} && .venv/bin/python docs/generate.py    (read it first; the prose may say unproved yet)")


def _closing(transcript: Transcript, run: LiveRun, before: float, left: list[str]) -> None:
    after = run.balance()
    moved = "unknown" if after is None else f"${after:.4f} (platforms book some minutes late)"
    transcript.say(
        f"spent about ${run.purse.spent():.4f} of ${run.purse.ceiling:g}, by prices and time; the balance went from "
        f"${before:.4f} to {moved}"
    )
    if not left:
        transcript.say(f"nothing called {run.prefix}… is left, by {run.platform_name}'s own list")
        return
    transcript.say("STILL THERE, AND BILLING (or that is not known):", red=True)
    for line in left:
        transcript.say(f"  {line}", red=True)
    transcript.say(
        f"Next: python -m tests.live {run.platform_name} {run.prefix}    and look at {run.books.console}", red=True
    )


if __name__ == "__main__":
    sys.exit(main())
