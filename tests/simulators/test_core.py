"""The parts that simulators are made of, on a platform that rents umbrellas."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import MappingProxyType

import httpx
import pytest
from pydantic import BaseModel, ConfigDict

from tests.simulators.core import (
    TRANSPORT,
    Account,
    Choice,
    Fault,
    FaultPlan,
    Refusal,
    RentalLedger,
    Reply,
    Request,
    SimServer,
    Simulator,
    VirtualClock,
    draw,
    parse,
)

START = 1_790_000_000.0


class Umbrella(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    color: str
    size: int = 1


class Kiosk(Simulator):
    """Rents umbrellas at 1 USD an hour."""

    name = "kiosk"
    kinds = MappingProxyType({"rain": "all umbrellas are out"})

    def __init__(self) -> None:
        super().__init__(clock=VirtualClock(START))
        self.accounts["ann"] = Account("ann", "key-ann")
        self.route("POST /umbrellas", self.rent)
        self.route("GET /umbrellas/{id}", self.show)
        self.route("* /old{rest*}", lambda _: Reply(410, {"error": "gone"}))

    def admit(self, request: Request) -> None:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        request.account = next((one for one in self.accounts.values() if one.key == key), None)
        if request.account is None:
            raise Refusal(self.problem(401, "who are you"))

    def rent(self, request: Request) -> Reply:
        if "rain" in request.faults:
            raise Refusal(self.problem(400, request.faults["rain"].get("text", "all out")))
        wanted = parse(Umbrella, request.json())
        if isinstance(wanted, list):
            for text, unknown in wanted:
                if unknown:
                    self.violate(text)
            raise Refusal(self.problem(422, wanted[0][0]))
        id = f"u{len(self.ledger.all())}"
        self.ledger.begin(id, account=request.who.id, tag=wanted.color, kind="umbrella", state="out", rate=1.0)
        return Reply(201, {"id": id})

    def show(self, request: Request) -> Reply:
        try:
            rental = self.ledger.get(request.params["id"])
        except KeyError:
            raise Refusal(self.problem(404, "no such umbrella")) from None
        return Reply(body={"id": rental.id, "state": rental.state})

    def act_lose(self, id: str) -> None:
        self.ledger.end(id, "lost")


@pytest.fixture
def kiosk() -> Iterator[Kiosk]:
    kiosk = Kiosk()
    with SimServer(kiosk):
        yield kiosk
        kiosk.check()


@pytest.fixture
def customer(kiosk: Kiosk) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=kiosk.url, headers={"Authorization": "Bearer key-ann"}, timeout=60) as client:
        yield client


def rent(client: httpx.Client, color: str = "red") -> httpx.Response:
    return client.post("/umbrellas", json={"color": color})


def test_the_clock_moves_when_told_and_never_back() -> None:
    clock = VirtualClock(START)
    assert (clock.now(), clock.advance(60), clock.now()) == (START, START + 60, START + 60)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_the_ledger_accrues_by_state_and_stops_at_the_end() -> None:
    clock = VirtualClock(START)
    ledger = RentalLedger(clock)
    ledger.begin("a", account="ann", tag="t", kind="box", state="running", rate=2.0)
    clock.advance(1800)
    ledger.turn("a", "stopped", 0.5)
    clock.advance(7200)
    ledger.end("a")
    clock.advance(9999)
    ledger.turn("a", "running", 100.0)
    rental = ledger.get("a")
    assert rental.usd_by_state == pytest.approx({"running": 1.0, "stopped": 1.0})
    assert (rental.usd, rental.ended) == (pytest.approx(2.0), START + 9000)
    assert ledger.balance(Account("ann", "k", credit=10.0)) == pytest.approx(8.0)


def test_the_ledger_tells_what_nobody_knows_and_what_was_rented_twice() -> None:
    clock = VirtualClock(START)
    ledger = RentalLedger(clock)
    for id, tag in (("a", "t1"), ("b", "t2"), ("c", "t1")):
        clock.advance(1)
        ledger.begin(id, account="ann", tag=tag, kind="box", state="running", rate=1.0)
    assert [r.id for r in ledger.leaked(["a"])] == ["b", "c"]
    assert ledger.doubled("box") == {"t1": ["a", "c"]}
    with pytest.raises(ValueError, match="before"):
        ledger.begin("a", account="ann", tag="t1", kind="box", state="running", rate=1.0)


def test_a_rule_fires_from_the_nth_call_so_many_times() -> None:
    plan = FaultPlan()
    rule = plan.add("error_before", "GET /a/*", nth=2, times=2)
    fired = [bool(plan.fire("GET /a/{id}")) for _ in range(5)]
    assert fired == [False, True, True, False, False]
    assert plan.fire("POST /a/{id}") == {}
    assert (rule.seen, rule.fired, plan.unfired()) == (5, 2, [])


def test_one_call_ends_early_once_and_the_other_rule_keeps_its_turn() -> None:
    plan = FaultPlan([Fault("error_before"), Fault("lost_answer")])
    assert [list(plan.fire("GET /")) for _ in range(3)] == [["error_before"], ["lost_answer"], []]


@pytest.mark.parametrize("bad", [{"kind": "eror"}, {"kind": "slow", "nth": 0}, {"kind": "slow", "times": 0}])
def test_a_rule_that_can_never_fire_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no fault|count from 1"):
        FaultPlan().append(Fault(**bad))  # type: ignore[arg-type]


def test_a_seed_gives_the_same_faults_again_and_another_gives_others() -> None:
    menu = [Choice(kind, "*", {"status": [500, 503]}) for kind in TRANSPORT]
    plans = [[vars(rule) for rule in draw(seed, menu)] for seed in [*range(50), *range(50)]]
    assert plans[:50] == plans[50:]
    assert len({str(plan) for plan in plans}) > 45
    assert all(1 <= len(plan) <= 6 for plan in plans)


@pytest.mark.parametrize(
    ("ask", "status", "said"),
    [
        (lambda c: c.get("/parasols"), 404, "unknown route: GET /parasols"),
        (lambda c: c.delete("/umbrellas/u0"), 404, "unknown route"),
        (lambda c: c.post("/umbrellas", json={"color": "red", "colour": "red"}), 422, "'colour' not allowed"),
        (lambda c: c.get("/umbrellas/u0", headers={"X-Odd": "1"}), 404, "unknown header 'x-odd'"),
    ],
)
def test_what_the_platform_does_not_know_fails_the_test(
    kiosk: Kiosk, customer: httpx.Client, ask: object, status: int, said: str
) -> None:
    assert ask(customer).status_code == status  # type: ignore[operator]
    with pytest.raises(AssertionError, match="kiosk"):
        kiosk.check()
    (violation,) = kiosk.pardon()
    assert said in violation
    assert kiosk.ledger.all() == []


def test_a_defect_of_the_simulator_is_not_taken_for_the_platform(kiosk: Kiosk, customer: httpx.Client) -> None:
    assert customer.post("/umbrellas", content=b"{").status_code == 500
    assert "the simulator broke" in kiosk.pardon()[0]


@pytest.mark.parametrize(
    ("kind", "params", "rented"),
    [
        ("too_many", {"retry_after": 3}, 0),
        ("too_many", {}, 0),
        ("error_before", {"status": 503}, 0),
        ("error_after", {}, 1),
        ("lost_request", {}, 0),
        ("lost_request", {"reset": True}, 0),
        ("lost_answer", {}, 1),
        ("lost_answer", {"reset": True}, 1),
        ("hang_before", {}, 0),
        ("hang_after", {"seconds": 600}, 1),
        ("truncated", {}, 1),
        ("html_before", {"status": 403}, 0),
        ("html_after", {}, 1),
        ("html_ok", {}, 0),
        ("not_json", {}, 1),
        ("slow", {"seconds": 0.05}, 1),
    ],
)
def test_every_fault_of_transport(
    kiosk: Kiosk, customer: httpx.Client, kind: str, params: dict[str, object], rented: int
) -> None:
    rule = kiosk.faults.add(kind, "POST /umbrellas", **params)
    customer.timeout = 0.5
    closed = (httpx.RemoteProtocolError, httpx.ReadError)
    silent = {"lost_request": closed, "lost_answer": closed, "truncated": httpx.RemoteProtocolError}
    silent |= {"hang_before": httpx.ReadTimeout, "hang_after": httpx.ReadTimeout}
    if kind in silent:
        with pytest.raises(silent[kind]):
            rent(customer)
    else:
        reply = rent(customer)
        status = {"too_many": 429, "error_after": 500, "html_after": 502, "html_ok": 200, "not_json": 201, "slow": 201}
        assert reply.status_code == params.get("status", status.get(kind))
        assert reply.headers.get("Retry-After") == ("3" if "retry_after" in params else None)
        assert reply.headers["Content-Type"].startswith("text/html" if kind.startswith("html") else "application/json")
    end = time.monotonic() + 120
    while len(kiosk.ledger.live()) != rented:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert rule.fired == 1
    customer.timeout = 5
    assert rent(customer).status_code == 201, "the next call is as usual"


def test_a_server_that_closes_lets_nobody_hang() -> None:
    kiosk = Kiosk()
    server = SimServer(kiosk)
    kiosk.faults.add("hang_before")
    with httpx.Client(headers={"Authorization": "Bearer key-ann"}, timeout=120) as client:
        threading.Timer(0.2, server.close).start()
        with pytest.raises(httpx.TransportError):
            client.get(f"{kiosk.url}/umbrellas/u0")
    server.close()


def test_everything_can_be_steered_over_http(kiosk: Kiosk, customer: httpx.Client) -> None:
    rent(customer)
    control = httpx.Client(base_url=f"{kiosk.url}/__sim__")
    assert control.post("/advance", json={"seconds": 3600}).json() == {"now": START + 3600}
    state = control.get("/state").json()
    assert (state["simulator"], state["rentals"][0]["usd"]) == ("kiosk", pytest.approx(1.0))
    assert state["accounts"]["ann"]["balance"] == pytest.approx(99.0)
    assert "key-ann" not in str(state)
    assert control.post("/faults", json={"kind": "error_before", "status": 503, "match": "GET *"}).status_code == 200
    assert customer.get("/umbrellas/u0").status_code == 503
    assert control.delete("/faults").json() == []
    assert control.post("/act", json={"act": "lose", "id": "u0"}).json() == {"result": None}
    assert customer.get("/umbrellas/u0").json()["state"] == "lost"
    assert [c["route"] for c in control.get("/calls").json()] == ["/umbrellas", *["/umbrellas/{id}"] * 2]
    assert control.post("/config", json={"latency": {"GET *": 0.01}}).json() == {"latency": {"GET *": 0.01}}
