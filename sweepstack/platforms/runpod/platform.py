"""RunPod: boxes are pods of its Secure Cloud, rented through REST v2; volumes are network volumes.

A pod's name and a variable in its environment hold its tag. Without a volume the box lives on the pod's volume disk,
which a stop keeps and a destroy does not; with one it lives on the container disk, which a stop wipes, and the network
volume hangs in it. Why REST v2, and the SDK for reads only: docs/adr/009.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.common.errors import (
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Unreachable,
    Unsupported,
)
from sweepstack.onbox.host.offers import Balance, Capability, Constraints, Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, VolumeRecord, Wait
from sweepstack.platforms.common import tag_lock
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.runpod import create as renting
from sweepstack.platforms.runpod import balance as account_balance
from sweepstack.platforms.runpod import volumes
from sweepstack.platforms.runpod import offers as market
from sweepstack.platforms.runpod.api import NEW_TAG_SECONDS, Session, checked_id, session
from sweepstack.platforms.runpod.bodies import ROOT, catalog_params
from sweepstack.platforms.runpod.errors import refused
from sweepstack.platforms.runpod.legacy_query import StillListed
from sweepstack.platforms.runpod.lookup import by_number, by_tag, listed, recorded

if TYPE_CHECKING:
    from sweepstack.channel.ssh import SshChannel
    from sweepstack.onbox.agent.channel import Channel
    from sweepstack.platforms.common.tag_memory import Memory

STOP_SECONDS = 20.0
PROBE_SECONDS = 10.0
LOCK_SECONDS = 60.0
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,190}")
_MOUNT = re.compile(r"mnt/[A-Za-z0-9][A-Za-z0-9._-]*")


def connect() -> RunpodPlatform:
    """RunPod as the account of `RUNPOD_API_KEY`, or of the vendor's own key file, sees it."""
    return RunpodPlatform()


class RunpodPlatform:
    """See `sweepstack.onbox.host.platform.Platform`."""

    name = "runpod"
    capabilities = frozenset(
        {Capability.OFFERS, Capability.STOP, Capability.VOLUMES, Capability.BALANCE, Capability.SSH}
    )

    def account(self) -> str:
        return session().account(now=True)

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        at_hand = session()
        if account:
            at_hand.require(account, f"the box {tag}")
        return by_tag(at_hand, tag)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        wanted = request.constraints
        market.must_be_possible(wanted)
        if not _TAG.fullmatch(request.tag):
            raise RequestRefused(f"the tag {request.tag!r} can't be a pod's name: letters, digits, '.', '_' and '-'")
        at_hand, begin = session(), time.monotonic()
        account = at_hand.account()
        volume = self._volume(at_hand, request)
        with self._locked(account, request.tag, wait, request.asked) as memory:
            # Nobody here ever asked for this tag: a list that others have just read will do.
            age, known = paced(NEW_TAG_SECONDS) if memory.first else 0, request.known
            record = by_tag(at_hand, request.tag, max_age=age, known=known)
            if record is None:
                record = memory.box(
                    lambda native_id: by_number(at_hand, native_id),
                    lambda: by_tag(at_hand, request.tag, max_age=0, known=known),
                )
            made = record is None
            if record is None:
                if wait.cancelled.is_set():
                    raise PlatformError(f"cancelled before {request.name} was rented: nothing exists, nothing bills")
                record = renting.rent(at_hand, self._with_key(request), volume, wait, memory)
            else:
                memory.made(record.native_id)
                renting.must_fit(record, renting.mounts_of(at_hand, record), request, volume)
        note = f" ({record.note})" if record.note else ""
        wait.progress(f"{request.name}: {'rented' if made else 'adopted'} {record.location}{note}")
        renting.must_not_be_too_dear(record, request.name, request.max_price)
        if record.phase is Phase.STOPPED and not made:
            return record
        rest = Wait(max(0.0, wait.deadline - (time.monotonic() - begin)), wait.progress, wait.cancelled)
        return renting.until_ready(at_hand, request.name, record, rest, self._answers, max_price=request.max_price)

    def get(self, native_id: str, account: str) -> BoxRecord:
        checked_id(native_id)
        at_hand = session()
        at_hand.require(account, f"the box {native_id}")
        try:
            pod = at_hand.pod(native_id)
        except StillListed as error:
            if not at_hand.is_ending(native_id):
                raise
            place = f"RunPod, pod {native_id}"
            return BoxRecord(native_id, "", account, Phase.ENDING, None, None, place, str(error))
        if pod is None:
            at_hand.require(
                account, f"the box {native_id}", now=True
            )  # nothing is gone for having been looked for there
            return BoxRecord(native_id, "", account, Phase.GONE, None, None, f"RunPod, pod {native_id}")
        return recorded(at_hand, pod)

    def destroy(self, native_id: str, account: str) -> None:
        checked_id(native_id)
        at_hand = session()
        at_hand.require(account, f"the box {native_id}")
        try:
            answer = at_hand.delete_pod(native_id)
        except OutcomeUnknown as error:
            if self.get(native_id, account).phase is Phase.GONE:
                return
            raise NotYetGone(f"{native_id}: {error}. Destroy it again: a second time does no harm") from error
        if not answer.ok and answer.status != 404:
            lock = ", and is locked in RunPod's console" if self._is_locked(at_hand, native_id) else ""
            raise refused(at_hand.http, answer, f"the end of {native_id} (it still exists and bills{lock})")
        record = self.get(native_id, account)
        if record.phase is not Phase.GONE:
            raise NotYetGone(f"RunPod still has {native_id} ({record.phase}): it may bill until it is proved gone")

    def stop(self, native_id: str, account: str) -> None:
        at_hand, record = self._living(native_id, account, "stop")
        if record.phase is Phase.STOPPED:
            return
        if self._is_locked(at_hand, native_id):
            raise RequestRefused(f"{native_id} is locked in RunPod, so it can't be stopped: unlock it in the console")
        try:
            answer = at_hand.act(native_id, "stop")
        except OutcomeUnknown as error:
            if self.get(native_id, account).phase is Phase.STOPPED:
                return
            raise NotYetStopped(f"{native_id}: {error}. Stop it again: a second time does no harm") from error
        if not answer.ok:
            seen = self.get(native_id, account)
            if seen.phase is Phase.STOPPED:
                return
            if answer.status == 404:
                raise NotYetStopped(f"RunPod does not find {native_id} to stop it, and lists it as {seen.phase}")
            raise refused(at_hand.http, answer, f"a stop of {native_id} (it is {seen.phase}, and bills)")
        end = time.monotonic() + paced(STOP_SECONDS)
        while (phase := self.get(native_id, account).phase) is not Phase.STOPPED:
            if phase in (Phase.GONE, Phase.ENDING):
                raise PlatformError(f"{native_id} is {phase}: somebody ended it while it was being stopped")
            if time.monotonic() > end:
                raise NotYetStopped(f"RunPod accepted the stop of {native_id}, which is {phase} and may bill in full")
            time.sleep(at_hand.poll_seconds())
            at_hand.pods(max_age=at_hand.poll_seconds() / 2)  # what others have just read is too old to see an end in

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        at_hand, record = self._living(native_id, account, "start")
        woken = record.phase is Phase.STOPPED
        if record.phase is Phase.UNKNOWN:
            raise Unreachable(f"{native_id} is not started, since nobody knows what it is doing: {record.note}")
        if woken:
            try:
                answer = at_hand.act(native_id, "start")
            except OutcomeUnknown as error:
                wait.progress(f"{native_id}: {error}; looking what came of it")
            else:
                if not answer.ok:
                    seen = self.get(native_id, account)
                    if seen.phase not in (Phase.RUNNING, Phase.CREATING):
                        raise refused(at_hand.http, answer, f"a start of {native_id} (it stays {seen.phase})")
            wait.progress(f"{native_id} is started again")
        return renting.until_ready(at_hand, native_id, record, wait, self._answers, woken=woken)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        at_hand = session()
        pods = at_hand.pods()
        found = listed(pods, at_hand, prefix)
        if pods.damaged:
            place = f"RunPod, {pods.damaged} pods whose id can't be read: look at the console"
            found.append(BoxRecord("", "", at_hand.account(), Phase.UNKNOWN, None, None, place, place))
        return found

    def offers(self, constraints: Constraints) -> list[Offer]:
        market.must_be_possible(constraints)
        at_hand, center = session(), ""
        if constraints.volume:
            center = self._data_center_of(at_hand, constraints.volume).data_center
        gpus = at_hand.gpus(catalog_params(constraints))
        return [one.offer for one in market.candidates(gpus, constraints, center)]

    def balance(self) -> Balance | None:
        return account_balance.balance(session())

    def change_bid(self, native_id: str, account: str, bid: float) -> None:
        raise Unsupported("RunPod is withdrawing spot pods, so there is no bid to change: its boxes have one price")

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        if not _TAG.fullmatch(tag):
            raise RequestRefused(f"the tag {tag!r} can't be a volume's name: letters, digits, '.', '_' and '-'")
        at_hand = session()
        with self._locked(at_hand.account(), f"volume {tag}", Wait(LOCK_SECONDS)):
            return volumes.ensure(at_hand, tag, size_gb=size_gb, region=region)

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        volumes.data_center(session(), region)
        return None

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        return volumes.tagged(session(), prefix)

    def delete_volume(self, native_id: str, account: str) -> None:
        volumes.delete(session(), native_id, account)

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        return volumes.get(session(), native_id)

    def channel(self, native_id: str, account: str) -> Channel:
        record = self.get(native_id, account)
        if record.phase is Phase.GONE:
            raise Unreachable(f"{native_id} can't be reached: it is gone")
        return self._channel(record)

    def volume_channel(self, native_id: str, mount: str = "") -> Channel:
        if self.get_volume(native_id) is None:
            raise Unreachable(f"the volume {native_id} is not there any more")
        raise Unsupported(
            f"a network volume of RunPod can't be read without a pod that mounts it: rent a box in its data center "
            f"with {native_id} mounted, or read it through RunPod's S3 interface"
        )

    def _channel(self, record: BoxRecord) -> SshChannel:
        if record.phase in (Phase.STOPPED, Phase.STOPPING, Phase.ENDING):
            raise PlatformError(
                f"{record.native_id} is {record.phase}: nothing runs there and RunPod shows no file of it. "
                f"Start it, to read it"
            )
        if record.endpoint is None:
            raise Unreachable(f"{record.native_id} has no address yet ({record.phase}): {record.note or 'wait for it'}")
        if record.endpoint.proxied:
            raise Unreachable(
                f"{record.native_id} is to be reached through RunPod's relay only, which passes a shell and no files: "
                f"wait for its direct address"
            )
        from sweepstack.channel.ssh import SshChannel

        mounts = renting.mounts_of(session(), record)
        below = {path.removeprefix(f"{ROOT}/"): path for path in mounts if path.startswith(f"{ROOT}/")}
        return SshChannel(record.native_id, record.endpoint, root=ROOT, mounts=below)

    def _answers(self, record: BoxRecord) -> str:
        """Why the box can't be worked on yet; "" when it can."""
        try:
            channel = self._channel(record)
            try:
                channel.prepare()
                ended = channel.run(["true"], timeout=PROBE_SECONDS)
            finally:
                channel.close()
        except PlatformError as error:
            return str(error)
        return "" if ended.returncode == 0 else f"`true` ended with {ended.returncode} on it"

    def _living(self, native_id: str, account: str, verb: str) -> tuple[Session, BoxRecord]:
        record = self.get(native_id, account)
        if record.phase in (Phase.GONE, Phase.ENDING):
            raise PlatformError(f"{native_id} is {record.phase}: there is nothing to {verb}")
        return session(), record

    def _is_locked(self, at_hand: Session, native_id: str) -> bool:
        pod: Any = at_hand.pods().by_id.get(native_id, {})
        return pod.get("locked") is True

    def _volume(self, at_hand: Session, request: BoxRequest) -> renting.Volume | None:
        """The volume that the box is to mount, looked up before anything is rented."""
        for mount in request.mounts:
            if not _MOUNT.fullmatch(mount):
                raise RequestRefused(f"the mount {mount!r} is not one: mnt/<name> is what a box has")
        if len(request.mounts) > 1:
            raise RequestRefused(f"a RunPod pod mounts one volume, and {request.name} asks for {len(request.mounts)}")
        return next((self._data_center_of(at_hand, native_id) for native_id in request.mounts.values()), None)

    def _data_center_of(self, at_hand: Session, native_id: str) -> renting.Volume:
        found = volumes.get(at_hand, native_id)
        if found is None:
            raise RequestRefused(f"the volume {native_id} is not there any more: nothing was rented")
        return renting.Volume(volumes.split(native_id)[1], found.region)

    def _with_key(self, request: BoxRequest) -> BoxRequest:
        """The request with a public key, or an error before anything is rented: nobody could ever reach the box."""
        if request.public_key.strip():
            return request
        from sweepstack.channel.ssh_keys import public_key

        return replace(request, public_key=public_key())

    def _locked(
        self, account: str, tag: str, wait: Wait, tell: Callable[[bool], None] = lambda asked: None
    ) -> AbstractContextManager[Memory]:
        return tag_lock.one_at_a_time(self.name, account, tag, wait, tell)
