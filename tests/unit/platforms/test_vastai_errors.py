"""Every refusal that the facts know of has its error; and any other answer has one, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Unreachable,
)
from sweepstack.platforms.vastai.states import NoSuchThing, Refusal, RentedAnyway, StartQueued, error_for


def envelope(error: str, msg: str = "") -> str:
    return json.dumps({"success": False, "error": error, "msg": msg})


ROWS: list[tuple[str, int, str, type[PlatformError]]] = [
    ("search, bad key", 404, json.dumps({"msg": "Invalid user key"}), NotAuthorized),
    ("search, bad body", 400, envelope("invalid_request", "Invalid json body"), RequestRefused),
    (
        "offer never existed",
        404,
        envelope("invalid_args", "error 404/3603: no_such_ask Instance type by id 7 is not available."),
        NoCapacity,
    ),
    (
        "offer just rented",
        410,
        envelope("no_such_ask", "error 410/3907: no_such_ask Instance type 7 is no longer available."),
        NoCapacity,
    ),
    (
        "a host's account",
        403,
        envelope("invalid_args", "error 403/3586: Offer 7 is not your own. Hosts can only rent their own machines."),
        RequestRefused,
    ),
    ("bad arguments", 400, envelope("invalid_args", "error 400/3467: Invalid args"), RequestRefused),
    ("bad price", 400, envelope("invalid_price", "price"), RequestRefused),
    ("no key for a VM", 400, envelope("no_ssh_key_for_vm", "no key"), RequestRefused),
    ("no credit", 400, json.dumps({"success": False, "msg": "Your account lacks credit"}), InsufficientFunds),
    ("no credit, prepay", 411, envelope("", "Insufficient credit"), InsufficientFunds),
    ("new account's limit", 400, envelope("spend_rate_limit", "too much"), InsufficientFunds),
    ("new account's limit, as 403", 403, envelope("spend_rate_limit", "too much"), InsufficientFunds),
    ("new account's limit, as 429", 429, envelope("spend_rate_limit", "too much"), InsufficientFunds),
    (
        "start queued",
        200,
        json.dumps({"success": False, "msg": "Required resources are currently unavailable, state change queued."}),
        StartQueued,
    ),
    ("instance missing, PUT", 404, envelope("no_such_instance", "Instance 12345 not found."), NoSuchThing),
    ("instance missing, DELETE", 404, envelope("not_found", "Instance not found"), NoSuchThing),
    ("instance missing, bid", 404, envelope("no_such_instance", "Instance with that ID does not exist."), NoSuchThing),
    ("bid below the floor", 400, envelope("invalid_args", "Please set a bid price >= 0.001."), RequestRefused),
    ("bad id", 400, envelope("invalid_id", "Invalid instance id."), RequestRefused),
    (
        "label too long",
        400,
        envelope("label_too_long", "Please limit label length to 1024 characters"),
        RequestRefused,
    ),
    ("no card", 404, envelope("missing_billing", "add a card"), InsufficientFunds),
    ("bad key", 401, "", NotAuthorized),
    ("bad key as seen live", 404, envelope("auth_error", "Invalid user key"), NotAuthorized),
    ("no auth header", 403, envelope("auth_error", "This action requires login."), NotAuthorized),
    ("missing scope", 403, "", NotAuthorized),
    ("bad page token", 400, envelope("invalid_token", "Invalid pagination token"), RequestRefused),
    ("charges without days", 400, json.dumps({"msg": "Must provide both 'day' gte and lte"}), RequestRefused),
    ("invoices, bad range", 200, json.dumps({"success": False, "msg": "Invalid date range"}), RequestRefused),
    ("computed column", 400, json.dumps({"detail": "only real columns"}), RequestRefused),
    ("volume missing", 404, envelope("no_such_volume", "no such volume"), NoSuchThing),
    ("volume in use", 400, envelope("", "Volume is in use"), RequestRefused),
    ("volume's name", 422, "", RequestRefused),
    ("no key given", 400, envelope("no_ssh_key", "No ssh key provided"), RequestRefused),
    ("too fast, plain", 429, "API requests too frequent", RateLimited),
    ("too fast, plain with figure", 429, "API requests too frequent: endpoint threshold=4.5", RateLimited),
    (
        "too fast, JSON",
        429,
        json.dumps({"detail": "API requests too frequent endpoint threshold=4.5"}),
        RateLimited,
    ),
    ("too fast, destroy", 429, envelope("rate_limit_exceeded", "slow down"), RateLimited),
    ("searches used up", 429, envelope("search_quota_exceeded", "tomorrow"), RateLimited),
]


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(("status", "body", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_refusal_has_its_error(status: int, body: str, expected: type[PlatformError], writes: bool) -> None:
    refusal = Refusal.of(status, body, {})
    if status == 200:
        found = Refusal.in_success(json.loads(body))
        assert found is not None
        refusal = found
    error = error_for(refusal, "do it", writes=writes)
    assert type(error) is expected
    assert "do it" in str(error)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, ""),
        (404, "<html><body>404 Not Found</body></html>"),
        (404, json.dumps({"msg": "Instance 7 not found."})),
        (404, "[]"),
        (408, ""),
        (500, ""),
        (502, "<html>Bad Gateway</html>"),
        (503, envelope("", "down")),
        (504, ""),
        (301, ""),
        (418, "tea"),
    ],
)
def test_what_may_be_anything_is_nothing_known(status: int, body: str) -> None:
    """A bare 404 above all: never "gone", and after a write not even "not carried out"."""
    refusal = Refusal.of(status, body, {})
    read, write = (error_for(refusal, "do it", writes=writes) for writes in (False, True))
    assert isinstance(read, Unreachable)
    assert not isinstance(read, RateLimited)
    assert type(write) is OutcomeUnknown
    assert "<html>" not in str(write)


@pytest.mark.parametrize("status", [400, 403, 410, 429, 500, 502])
def test_an_instance_that_was_made_all_the_same_is_never_overlooked(status: int) -> None:
    body = json.dumps({"success": False, "error": "x", "msg": "bid too low", "new_contract": 4711})
    error = error_for(Refusal.of(status, body, {}), "rent offer 7", writes=True)
    if status == 429:
        assert isinstance(error, RentedAnyway)
    assert isinstance(error, RentedAnyway)
    assert error.contract == 4711
    assert not isinstance(error.why, RentedAnyway)


def test_the_reason_of_a_refusal_with_an_instance_is_kept() -> None:
    body = json.dumps({"success": False, "msg": "Your account lacks credit", "new_contract": 4711})
    found = Refusal.in_success(json.loads(body))
    assert found is not None
    error = error_for(found, "rent offer 7", writes=True)
    assert isinstance(error, RentedAnyway)
    assert isinstance(error.why, InsufficientFunds)
    assert "cloud.vast.ai/billing" in str(error)


@pytest.mark.parametrize(
    ("body", "headers", "after"),
    [
        ("API requests too frequent: endpoint threshold=4.5", {}, 4.5),
        ("API requests too frequent: endpoint threshold=4.5", {"Retry-After": "9"}, 9.0),
        ("API requests too frequent", {}, None),
        ("API requests too frequent", {"Retry-After": "Fri, 31 Dec 1999"}, None),
        (json.dumps({"detail": "API requests too frequent endpoint threshold=2"}), {}, 2.0),
    ],
)
def test_how_long_to_wait_is_read(body: str, headers: dict[str, str], after: float | None) -> None:
    error = error_for(Refusal.of(429, body, headers), "do it", writes=True)
    assert isinstance(error, RateLimited)
    assert error.retry_after == after


def test_searches_that_are_used_up_say_until_when() -> None:
    error = error_for(Refusal.of(429, envelope("search_quota_exceeded"), {}), "list offers", writes=False)
    assert isinstance(error, RateLimited)
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 86_400
    assert "midnight UTC" in str(error)


@pytest.mark.parametrize("data", [{"success": True}, {}, {"offers": []}, [], None, 7, {"success": True, "error": "x"}])
def test_a_success_is_no_refusal(data: Any) -> None:
    assert Refusal.in_success(data) is None


def test_no_key_gets_through_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", "k3y-0123456789abcdef")
    body = envelope("auth_error", "key k3y-0123456789abcdef, Authorization: Bearer k3y-0123456789abcdef")
    assert "k3y-" not in str(error_for(Refusal.of(401, body, {}), "do it", writes=False))


@given(status=st.integers(200, 599), body=st.text(max_size=60), writes=st.booleans())
def test_every_answer_has_an_error(status: int, body: str, writes: bool) -> None:
    error = error_for(Refusal.of(status, body, {}), "do it", writes=writes)
    assert isinstance(error, PlatformError)
    if status >= 500:
        assert type(error) is OutcomeUnknown if writes else isinstance(error, Unreachable)


@given(
    st.integers(200, 599),
    st.fixed_dictionaries(
        {},
        optional={
            "success": st.booleans(),
            "error": st.one_of(st.none(), st.text(max_size=20), st.integers(), st.lists(st.integers())),
            "msg": st.one_of(st.none(), st.text(max_size=20), st.dictionaries(st.text(), st.text())),
            "new_contract": st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
        },
    ),
)
def test_every_json_answer_has_an_error(status: int, body: dict[str, Any]) -> None:
    assert isinstance(error_for(Refusal.of(status, json.dumps(body), {}), "do it", writes=True), PlatformError)
