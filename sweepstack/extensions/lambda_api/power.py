"""Terminates an instance; what Lambda shows afterwards proves its end.

There is no stop.
"""

from __future__ import annotations

from sweepstack.extensions.lambda_api.api import POLL_SECONDS, Session
from sweepstack.onbox.common.errors import NotYetGone, OutcomeUnknown
from sweepstack.onbox.host.platform import Phase
from sweepstack.platforms.common.http_client import HttpAnswer

GONE_SECONDS = 30.0
"""For so long a terminate waits for the end of an instance; then its caller polls."""


def destroy(session: Session, native_id: str, account: str) -> None:
    """See `Platform.destroy`. A terminate that hangs is cut off by the client's deadline; what Lambda shows then says
    whether it is sent once more, and no more than once."""
    phase = session.get(native_id, account, now=True).phase
    if phase is Phase.GONE:
        return
    if phase is not Phase.ENDING or session.is_ending(native_id):
        answer = _terminated(session, native_id, account)
        if answer is None:
            return
        if not answer.ok and answer.status != 404:
            if phase is Phase.CREATING:  # "vm-has-not-launched": for some seconds after a launch there is no end
                raise NotYetGone(
                    f"Lambda does not end {native_id} yet, since it boots, and it may bill: {answer.text}. Next: the "
                    "same command again"
                )
            raise session.refused(answer, f"the end of {native_id} (it still exists and bills)")
    seen = session.watched(native_id, account, Phase.GONE, GONE_SECONDS, POLL_SECONDS)
    if seen.phase is not Phase.GONE:
        raise NotYetGone(f"Lambda still has {native_id} ({seen.phase}): it may bill until it is proved gone")


def _terminated(session: Session, native_id: str, account: str) -> HttpAnswer | None:
    """Lambda's answer; None when the instance is gone although the answer was lost. Raises NotYetGone when two answers
    were lost, or when the end has begun after the first."""
    for last in (False, True):
        try:
            return session.terminate(native_id)
        except OutcomeUnknown as error:
            seen = session.get(native_id, account, now=True).phase
            if seen is Phase.GONE:
                return None
            if last or seen is Phase.ENDING:
                raise NotYetGone(
                    f"{native_id} is {seen}: {error}. Destroy it again: a second time does no harm"
                ) from error
    raise AssertionError("the second try returns or raises")
