"""RunPod's REST v2 for one key: paths, envelopes, pages; and whose key it is. Nothing here decides.

Callers share lists (single flight). Writes are sent once (`common.http_client`); a read that begins after a write sees
it. Of RunPod's official SDK we use what reads its key file. What else it can do goes over GraphQL, which RunPod ends in
early 2027: REST v2 is asked without it (ADR 9).

REST v2 names the account since November 2026. Its documentation page shows no address, so a 404 proves nothing. Where
it does not say, and the older interface is gone, the same key is the same account (by its digest, as it was on record),
and so is a key that shows the recorded box by its id.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sweepstack.core.extras import fix
from sweepstack.onbox.common.errors import (
    NotAuthorized,
    NotInstalled,
    OutcomeUnknown,
    PlatformError,
    Retired,
    Unproved,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import box_session, keys
from sweepstack.platforms.common.box_session import FRESH_SECONDS, BoxSession, Listed, Names, Row, Sessions
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter, paced
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.runpod import KEY
from sweepstack.platforms.runpod.balance import (
    Bill,
    LastChange,
    LegacyPods,
    StillListed,
    gpu_types,
    last_changes,
    legacy_account,
    legacy_pods,
    myself,
)
from sweepstack.platforms.runpod.states import (
    NO_START,
    NOT_SAID,
    REFUSALS,
    TELLS,
    bid_of,
    carries,
    record_of,
    refused,
    volume_of,
    why_still,
)

Told = TypeVar("Told")
BASE_VARIABLE = "RUNPOD_API_BASE_URL"
BASE_URL = "https://api.runpod.io"
KEY_FILE = "~/.runpod/config.toml"
KEY_VARIABLE = KEY.variable
KEY_HINT = f"{KEY.variable}, or api_key under [default] in {KEY_FILE}"
ACCOUNT_PATH = "/v2/account"
"""Taken from the name of its documentation page, account/get-your-account (2026-11-13), beside /v2/account/ssh-keys."""
QUOTA = Quota(60, 60.0)
"""The specification's example; each reply names the quota that holds."""
ACCOUNT_SECONDS = 30.0
"""For so long the answer to whose key this is may be reused: a key's account never changes, and another key is asked
about on its own."""
NEW_TAG_SECONDS = 30.0
"""The same for a tag that this machine never asked for: only another machine could have rented it, and the lease
protects against that."""
PROVED_SECONDS = 30.0
"""For so long a proof that a pod is gone is reused: a destroy proves it, and its caller asks again."""
LAG_SECONDS = 60.0
"""For so long a pod that we made may be missing from the list and not be found by its id, and still be there."""
LIST_SECONDS = 180.0
"""Limit for a list. A quota that is used up comes back within a minute, and other callers wait for the same list."""
CATALOG_SECONDS = 30.0
MAX_PAGES = 100
AGAIN_SECONDS = 1.0
"""An answer of this age is new enough for all boxes of one list."""
NAMES = Names("RunPod", "runpod", "pods")


def session(account: str = "") -> Session:
    """The session of the key for this account (`keys.find`), one a process. Sends no request. Raises NotAuthorized."""
    return SESSIONS.of(base_url(), api_key(account))


class Session(BoxSession):
    """See `BoxSession`."""

    names = NAMES
    form = re.compile(r"[A-Za-z0-9]{1,64}")
    path = "/v2/pods"
    refusals = REFUSALS

    def __init__(self, base: str, key: str) -> None:
        limiter = RateLimiter(QUOTA, learns=True)
        super().__init__(HttpClient("RunPod", base, key, key_hint=keys.hint(KEY, key, KEY_HINT), limiter=limiter))
        self._account = ""
        self._lock = threading.Lock()
        self.owner = Owner(self.http, key)
        self.bill = Bill(self.http)
        self._retired = ""  # what the older interface said when it answered 410
        self._accounts = SingleFlight[str]()
        self._legacy = SingleFlight[LegacyPods]()
        self._changes = SingleFlight[Mapping[str, LastChange]]()
        self._volumes = SingleFlight[dict[str, Mapping[str, Any]]]()
        self._catalogs: dict[tuple[tuple[str, str], ...], SingleFlight[list[Any]]] = {}
        self._unlisted: dict[str, tuple[float, Mapping[str, Any]]] = {}  # made by us (when, the pod), not yet in a list
        self._gone: dict[str, float] = {}  # id → when it was proved gone (monotonic)
        self._unfound: set[str] = set()  # ending, not found and not listed: only the bill is missing

    @property
    def retired(self) -> bool:
        """Whether the older interface has answered 410 to this process: it is not asked again."""
        return bool(self._retired)

    def older(self, ask: Callable[[], Told]) -> Told:
        """The answer of the older interface. Raises Retired, without a request, once it has answered 410."""
        if self._retired:
            raise Retired(self._retired)
        try:
            return ask()
        except Retired as error:
            self._retired = str(error)
            raise

    def account(self, *, now: bool = False) -> str:
        """The id of the key's account. `now`: from an answer of the last `ACCOUNT_SECONDS`, not from the process's
        beginning. Once the older interface is gone: `Owner.name`. Raises NotAuthorized, Unreachable."""
        if not self.retired:
            with contextlib.suppress(Retired):
                known = "" if now else self._account
                return known or self._accounts.get(self._ask_account, max_age=paced(ACCOUNT_SECONDS))
        return self.owner.name()

    def mine(self, account: str, what: str, *, now: bool = False) -> bool:
        """Whether the key is of `account`. False once the older interface is gone and that is not known: then it is, if
        the key shows what is asked for by its id. `what`: see `require_account`. Raises WrongAccount where the older
        interface names another account."""
        at_hand = self.account(now=now)
        if self.retired:
            return self.owner.is_of(account) is True
        require_account(account, at_hand, what)
        return True

    def require(self, account: str, what: str, *, now: bool = False) -> None:
        """Raises WrongAccount unless the key belongs to `account`; Unproved where that can't be known any more. `what`:
        the thing that was asked for, for the message."""
        if self.mine(account, what, now=now):
            return
        if self.owner.is_of(account) is False:
            require_account(account, self.owner.name(), what)
        raise Unproved(
            f"{what} was asked for with a key of the RunPod account {account}. Whether the key at hand is of it is not "
            "known: RunPod's older interface, which said that, is retired, and this key shows nothing of it. So that "
            "there is nothing proves nothing: use the key that rented it"
        )

    def must_reach(self, account: str, what: str, *, absent: bool) -> None:
        if account:
            self.require(account, what, now=absent)

    def rows(self) -> list[Any]:
        return self._entries(self.path, "pods", {})[::-1]

    def record_of(self, row: Row, account: str, *, ending: bool) -> BoxRecord:
        return record_of(row, account, ending=ending)

    def carries(self, row: Row, tag: str) -> bool:
        return carries(row, tag)

    def recorded(self, row: Row) -> BoxRecord:
        record = super().recorded(row)
        if record.phase is not Phase.STOPPED or bid_of(row) is None:
            return record
        why = self._why_still(record.native_id)
        note = "; ".join(part for part in (why, record.note) if part)
        return replace(record, note=note, told=TELLS.get(why))

    def _why_still(self, native_id: str) -> str:
        """The note of a spot pod that stands still. An answer from before it stopped does not say why, so then it is
        asked for again. Raises nothing."""
        why = NOT_SAID
        with contextlib.suppress(PlatformError):
            for age in (FRESH_SECONDS, AGAIN_SECONDS):
                change = self.last_changes(max_age=paced(age)).get(native_id)
                why = why_still(change.text if change is not None else None)
                if why != NOT_SAID:
                    break
        return NO_START if self.retired else why

    def get(self, native_id: str, account: str, *, now: bool = False) -> BoxRecord:
        """Raises Unproved where only the bill is missing as a proof that it is gone."""
        self.checked_id(native_id)
        what = f"the box {native_id}"
        mine = self.mine(account, what)
        try:
            pod = self.box(native_id)
        except StillListed as error:
            if not self.is_ending(native_id):
                raise
            return replace(self.gone(native_id, account), phase=Phase.ENDING, note=str(error))
        except Unproved as error:
            ours = self.owner.is_of(account)
            if ours is False:  # another account's bill does not know the pod
                self.require(account, what)
            error.same_account = ours is True
            raise
        if pod is None:
            # Under another account's key it would look gone; a bill that knows it proves the account.
            if not self.retired:
                self.require(account, what, now=True)
            return self.gone(native_id, account)
        if not mine:
            self.owner.recall(account)  # the key shows the box that is on record for this account
        return replace(self.recorded(pod), account=account)

    def by_tag(self, tag: str, account: str = "", *, max_age: float | None = None, known: str = "") -> BoxRecord | None:
        """None only when the older interface, while it is there, shows none, too."""
        what = f"the box {tag}"
        mine = not account or self.mine(account, what)
        found = super().by_tag(tag, max_age=max_age, known=known) or self._only_in_legacy(tag, max_age or 0)
        if not mine and (found is None or self.owner.is_of(account) is False):
            self.require(account, what)  # what another account lacks proves nothing
        return found

    def _only_in_legacy(self, tag: str, max_age: float) -> BoxRecord | None:
        """The box that the older interface shows and REST's list lacks, read from REST by its id; None without one, or
        without that interface."""
        try:
            older = self.legacy_pods(self.account(), max_age=max_age).tagged(tag)
        except Retired:
            return None
        for native_id in older:
            if (pod := self.box(native_id)) is not None and carries(pod, tag):
                return self.recorded(pod)
        return None

    def mounts_of(self, record: BoxRecord) -> dict[str, str]:
        """The network volumes of the record's pod: path on the box → volume id."""
        return volume_of(self.pods().by_id.get(record.native_id, {}))

    def legacy_pods(self, account: str, *, max_age: float = 0.0, gather: float = 0.0) -> LegacyPods:
        """The account's pods in RunPod's older query interface. Raises WrongAccount when that names another account for
        the key; Unreachable; Retired."""
        legacy = self.older(lambda: self._legacy.get(self._ask_legacy, max_age=max_age, gather=gather))
        require_account(account, legacy.account, "what was asked for")
        return legacy

    def boxes(self, *, max_age: float = 0.0) -> Listed:
        return self.pods(max_age=max_age)

    def pods(self, *, max_age: float | None = None, gather: float = 0.0) -> Listed:
        """All pods of the account, including those that we made and that the list lacks so far. `max_age`: seconds that
        the list may be old (None: `FRESH_SECONDS`). Raises Unreachable."""
        age = paced(FRESH_SECONDS) if max_age is None else max_age
        listed = self._boxes.get(self._list_pods, max_age=age, gather=gather)
        with self._lock:
            missing = {
                key: pod for key, (_, pod) in self._unlisted.items() if key not in listed.by_id and self._just_made(key)
            }
        return replace(listed, by_id={**listed.by_id, **missing}) if missing else listed

    def box(self, native_id: str) -> Mapping[str, Any] | None:
        """The pod; None only when it is proved that there is none: not found by its id, not in a complete list of that
        moment, and not shown by the older interface for the same account; where that is retired, ended by the bill.
        Raises Unreachable when the answer is not known, StillListed when only the older interface shows it, Unproved
        when only the bill is missing."""
        self.checked_id(native_id)
        if time.monotonic() - self._gone.get(native_id, float("-inf")) < paced(PROVED_SECONDS):
            return None
        if native_id in self._unfound:  # it costs the others' quota to look for it as long as the bill is missing
            self.bill.must_have_ended(native_id)
        # For a pod whose delete was accepted, ask for the pod itself first: a cached list may still show it.
        if not self.is_ending(native_id) and (pod := self.pods().by_id.get(native_id)) is not None:
            return pod
        answer = self.http.read(f"/v2/pods/{native_id}")
        if answer.ok:
            if identifier(answer.data) != native_id:
                raise Unreachable(f"RunPod was asked for the pod {native_id} and answered something else")
            self._seen({native_id})
            return dict(answer.data)
        if answer.status != 404:
            raise refused(self.http, answer, f"a look at the pod {native_id}")
        listed = self.pods(max_age=0, gather=self._gather_seconds())
        if native_id in listed.by_id:
            return listed.by_id[native_id]
        if listed.damaged:
            raise Unreachable(f"whether the pod {native_id} is gone is not known: {listed.unreadable}")
        try:
            older = self.legacy_pods(self.account(), gather=self._gather_seconds()).pods
        except Retired:
            if self.is_ending(native_id):
                self._unfound.add(native_id)
            self.bill.must_have_ended(native_id)
            older = {}
        if native_id in older:
            raise StillListed(
                f"RunPod's REST interface has no pod {native_id}, and its older one shows it: whether it is gone is "
                "not known, and it may bill"
            )
        if self.is_ending(native_id):
            self._gone[native_id] = time.monotonic()
        return None

    def is_unfound(self, native_id: str) -> bool:
        """Whether the pod is ending, and neither found nor listed: only its bill is missing as a proof."""
        return native_id in self._unfound

    def create_pod(self, body: Mapping[str, Any], deadline: Deadline) -> HttpAnswer:
        """POST /v2/pods. Costs money; not idempotent. Raises OutcomeUnknown when the platform may have carried it
        out."""
        answer = self.http.write("POST", "/v2/pods", body, deadline=deadline)
        if answer.ok:
            native_id = identifier(answer.data)
            if not native_id:
                self._boxes.forget()
                raise OutcomeUnknown("RunPod made a pod and did not say which")
            with self._lock:
                self._unlisted[native_id] = (time.monotonic(), dict(answer.data))
        return answer

    def keep_made(self, pod: Mapping[str, Any]) -> None:
        """Notes a pod that was made elsewhere than by `create_pod`: lists may lack it for a while."""
        self._boxes.forget()
        with self._lock:
            self._unlisted[identifier(pod)] = (time.monotonic(), dict(pod))

    def forget_pods(self) -> None:
        """The next list is read anew: a pod was changed elsewhere than by this class."""
        self._boxes.forget()

    def last_changes(self, *, max_age: float = 0.0) -> Mapping[str, LastChange]:
        """What the older interface says of each pod's last change. Raises Unreachable, Retired."""
        return self.older(lambda: self._changes.get(lambda: last_changes(self.http), max_age=max_age))

    def spends(self) -> Mapping[str, Any]:
        """What the older interface says of the account's money. Raises Unreachable, Retired."""
        return self.older(lambda: myself(self.http, "balance", "clientBalance spendLimit currentSpendPerHr"))

    def spot_gpus(self, query: str) -> list[Any]:
        """The GPU types of the older interface, which alone knows bids; `CATALOG_SECONDS` old at most. Raises
        Retired."""
        with self._lock:
            shared = self._catalogs.setdefault((("query", query),), SingleFlight())
        ask = partial(gpu_types, self.http, query)
        return self.older(lambda: shared.get(ask, max_age=paced(CATALOG_SECONDS)))

    def delete_pod(self, native_id: str) -> HttpAnswer:
        """DELETE /v2/pods/{id}. Irreversible. Accepted does not mean gone."""
        try:
            answer = self.http.write("DELETE", f"/v2/pods/{self.checked_id(native_id)}")
        finally:
            self._boxes.forget()
        if answer.ok:
            with self._lock:
                self._unlisted.pop(native_id, None)
        return self.ended(native_id, answer)

    def act(self, native_id: str, action: str) -> HttpAnswer:
        """POST /v2/pods/{id}/action with `start` or `stop`."""
        try:
            return self.http.write("POST", f"/v2/pods/{self.checked_id(native_id)}/action", {"action": action})
        finally:
            self._boxes.forget()

    def volumes(self, *, max_age: float | None = None) -> dict[str, Mapping[str, Any]]:
        """All network volumes of the account, by id. `max_age`: as in `pods`. Raises Unreachable."""
        return self._volumes.get(self._list_volumes, max_age=paced(FRESH_SECONDS) if max_age is None else max_age)

    def volume(self, volume_id: str) -> Mapping[str, Any] | None:
        """The volume; None only when it is proved that there is none: not found by its id, and in no fresh list."""
        self.checked_id(volume_id)
        if (found := self.volumes().get(volume_id)) is not None:
            return found
        answer = self.http.read(f"/v2/network-volumes/{volume_id}")
        if answer.ok and identifier(answer.data) == volume_id:
            return dict(answer.data)
        if answer.ok:
            raise Unreachable(f"RunPod was asked for the volume {volume_id} and answered something else")
        if answer.status != 404:
            raise refused(self.http, answer, f"a look at the volume {volume_id}")
        return self.volumes(max_age=0).get(volume_id)

    def write_volume(self, method: str, volume_id: str = "", body: Mapping[str, Any] | None = None) -> HttpAnswer:
        """POST (no id: costs money), PATCH (a larger size costs more) or DELETE (irreversible) of a network volume."""
        path = f"/v2/network-volumes/{self.checked_id(volume_id)}" if volume_id else "/v2/network-volumes"
        try:
            return self.http.write(method, path, body)
        finally:
            self._volumes.forget()

    def gpus(self, params: Mapping[str, str]) -> list[Any]:
        """The catalog of GPUs with price and stock, `CATALOG_SECONDS` old at most. It reserves nothing."""
        query = tuple(sorted(params.items()))
        with self._lock:
            shared = self._catalogs.setdefault(query, SingleFlight())
        return shared.get(
            lambda: self._entries("/v2/catalog/gpus", "gpus", dict(query)), max_age=paced(CATALOG_SECONDS)
        )

    def data_centers(self) -> list[Any]:
        """The catalog of data centers."""
        return self._entries("/v2/catalog/datacenters", "dataCenters", {})

    def poll_seconds(self) -> float:
        """Seconds between two looks: more when the quota runs short, so that writes get through."""
        if self._is_crowded():
            return paced(8.0)
        return paced(2.0 if self.http.limiter.spare() > 0.8 else 4.0)

    def _gather_seconds(self) -> float:
        """Seconds to wait before a new list is requested, so that more callers share it; 0 while quota is left."""
        return paced(4.0 if self._is_crowded() else 0.0 if self.http.limiter.spare() > 0.8 else 1.0)

    def _is_crowded(self) -> bool:
        """Whether so many requests wait for the quota that requests which can wait should not be sent."""
        return self.http.limiter.waiting() > 2

    def _entries(self, path: str, name: str, params: Mapping[str, str]) -> list[Any]:
        """All entries of a list, from all its pages. Raises Unreachable when the list has no end or can't be read."""
        found: list[Any] = []
        cursor, seen = "", set[str]()
        for _ in range(MAX_PAGES):
            page = {**params, "cursor": cursor} if cursor else dict(params)
            answer = self.http.read(path, page, deadline=Deadline(LIST_SECONDS))
            if not answer.ok:
                error = refused(self.http, answer, f"the list {path}")
                raise Unreachable(f"the next page was refused: {error}") if cursor else error
            entries = answer.data.get(name) if isinstance(answer.data, dict) else None
            if not isinstance(entries, list):
                raise Unreachable(f"RunPod's list {path} is none: it has no {name}, so nothing is known")
            found += entries
            paging = answer.data.get("pagination")
            if not isinstance(paging, dict) or not paging.get("hasNextPage"):
                return found
            following = paging.get("nextCursor")
            if not isinstance(following, str) or not following or following in seen:
                break
            cursor = following
            seen.add(cursor)
        raise Unreachable(f"RunPod's list {path} has no end, so nothing is known")

    def _ask_account(self) -> str:
        self._account = self.older(lambda: legacy_account(self.http))
        self.owner.recall(self._account)
        return self._account

    def _ask_legacy(self) -> LegacyPods:
        """The pods in the older interface. The answer names the account, too: a caller that proves an end by it need
        not ask for the account once more."""
        begun = time.monotonic()
        listed = legacy_pods(self.http)
        self._accounts.keep(begun, listed.account)
        return listed

    def _list_pods(self) -> Listed:
        listed = Listed.of(NAMES, self.rows())
        self._seen(set(listed.by_id))
        return listed

    def _list_volumes(self) -> dict[str, Mapping[str, Any]]:
        entries = self._entries("/v2/network-volumes", "networkVolumes", {})
        if not all(identifier(entry) for entry in entries):
            raise Unreachable("RunPod's list of network volumes has entries without an id, so nothing is known")
        return {identifier(entry): entry for entry in entries}

    def _seen(self, native_ids: set[str]) -> None:
        with self._lock:
            for native_id in native_ids & set(self._unlisted):
                del self._unlisted[native_id]

    def _just_made(self, native_id: str) -> bool:
        return time.monotonic() - self._unlisted[native_id][0] < paced(LAG_SECONDS)


class Owner:
    """The account of one key. `digest`: the key's own, which goes into birth records; no key can be found by it. Safe
    to share between threads."""

    def __init__(self, http: HttpClient, key: str) -> None:
        self.digest = hashlib.sha256(f"sweepstack runpod {key}".encode()).hexdigest()[:16]
        self._http = http
        self._told = SingleFlight[str]()
        self._proved: tuple[str, ...] = (f"key-{self.digest}",)

    def recall(self, account: str) -> None:
        """It is proved, or on record for this very key, that it is of `account`."""
        if account not in self._proved:
            self._proved = (*self._proved, account)

    def name(self) -> str:
        """The account's name: as REST v2 tells it, else as it is on record for this key, else one made of the key's
        digest. Blocks. Raises Unreachable, NotAuthorized."""
        return self._ask() or self._proved[-1]

    def is_of(self, account: str) -> bool | None:
        """Whether the key is of `account`; None where that is not known. Raises what `name` raises."""
        if account in self._proved:
            return True
        told = self._ask()
        return told == account if told else None

    def _ask(self) -> str:
        """The account by REST v2; "" where that does not say. An account never changes, so it is asked for once."""
        return self._told.get(self._asked, max_age=float("inf"))

    def _asked(self) -> str:
        answer = self._http.read(ACCOUNT_PATH)
        return identifier(answer.data) if answer.ok else ""


def require_account(account: str, at_hand: str, what: str) -> None:
    """Raises WrongAccount, which names both, unless `account` is the account `at_hand` of the current key."""
    if account != at_hand:
        raise WrongAccount(
            f"{what} belongs to the RunPod account {account}, and the key at hand is of {at_hand}: "
            f"{keys.way(KEY)} with the key of {account}"
        )


def base_url() -> str:
    """The address of the API, from RUNPOD_API_BASE_URL; without it the real one, as with RunPod's own tools."""
    return box_session.base_url(BASE_VARIABLE, BASE_URL)


def api_key(account: str = "") -> str:
    """The key that counts for this account (`keys.find`), else that in RunPod's own file. Raises NotAuthorized when
    there is none."""
    key = keys.find(KEY, account) or _key_in_file()
    missing = f"there is no key for RunPod: `export {KEY_VARIABLE}=…` or `runpod config` ({KEY_HINT})"
    box_session.must_be_a_key(key, "RunPod", missing, f". Check {KEY_HINT}")
    keys.learn(KEY, key, "runpod", KEY_FILE)
    return key


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


SESSIONS = Sessions(Session)
