"""The simulated AutoDL: one wallet an account, and its Pro instances.

Sources: the vendor's pages on its developer API (www.autodl.com/docs/common_api/: host, raw token, envelope, wallet;
/docs/instance_pro_api/: the instances), and what users of the real one wrote down in public in 2026-09: the frozen part
of a balance, that a refusal comes with status 200, and that a gateway may drop the body of a GET. What no page says is
answered in the way that costs a careless client most: a balance may be below zero, vouchers are beside it and not in
it, a power-off is answered before anything has happened, and no code of an error is promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.simulators.clock import VirtualClock
from tests.simulators.ledger import Account
from tests.simulators.simulator import Refusal, Reply, Request, Simulator

API = "/api/v1/dev"
WALLET = f"POST {API}/wallet/balance"
LIST, SNAPSHOT, STATUS = (
    f"POST {API}/instance/pro/list",
    f"GET {API}/instance/pro/snapshot",
    f"GET {API}/instance/pro/status",
)
OFF = f"POST {API}/instance/pro/power_off"
TOKEN, OTHER_TOKEN = "simulated-developer-token-of-ann", "simulated-developer-token-of-bob"
YUAN = 1000
"""Amounts are thousandths of a yuan, all of them."""
OFF_SECONDS = 20.0
"""From the answer to a power-off until the instance is off."""
MOST_A_PAGE = 100
KINDS = {
    "refused_200": "any call: status 200 with `code` (InternalError), and data null",
    "bad_token_200": "any call: a token that is not known is answered with status 200 and another code than Success",
    "no_frozen": "wallet: without `blocked_asset`",
    "odd_amount": "wallet: `assets` is a text",
    "drops_get_body": "status, snapshot: the gateway drops the body of a GET",
    "odd_status": "status, list: `status` (migrating)",
    "off_ignored": "power_off: answered as done, and it runs on",
    "page_short": "list: one page says that it is the last, and is not",
}


@dataclass
class Instance:
    """A Pro instance. `price`: yuan an hour; `off_at`: when a power-off that was taken will have happened."""

    id: str
    account: str
    name: str
    price: float
    status: str = "running"
    spec: str = "v-48g"
    region: str = "west-D1"
    begun: float = 0.0
    status_at: float = 0.0
    off_at: float | None = None
    port: int = 10001


class AutodlSim(Simulator):
    """Two customers: `ann` with 100 yuan, and `bob`."""

    name = "autodl"
    kinds = KINDS

    def __init__(self, *, clock: VirtualClock | None = None, verified: bool = True) -> None:
        """`verified`: the customers have proved their names; without that the instances are refused."""
        super().__init__(clock=clock)
        self.verified = verified
        self.accounts = {
            "ann": Account("ann", TOKEN, credit=100.0),
            "bob": Account("bob", OTHER_TOKEN, credit=7.0),
        }
        self.vouchers = {"ann": 25.0, "bob": 0.0}
        self.frozen = {"ann": 0.0, "bob": 0.0}
        self.instances: dict[str, Instance] = {}
        self.requests = 0
        self.route(WALLET, self._wallet)
        self.route(LIST, self._list)
        self.route(SNAPSHOT, self._snapshot)
        self.route(STATUS, self._status)
        self.route(OFF, self._off)

    # Admission and the envelope

    def key_of(self, request: Request) -> str:
        return request.headers.get("authorization", "")

    def admit(self, request: Request) -> None:
        token = self.key_of(request)
        if token.startswith("Bearer "):
            self.violate("the token is sent as it is, without `Bearer`")
        account = self.customer(token)
        if account is None:
            if "bad_token_200" in request.faults:
                raise Refusal(self._said("AuthorizeFailed", "登录超时"))
            raise Refusal(self._said("AuthorizeFailed", "登录超时", status=401))
        request.account = account
        if rule := request.faults.get("refused_200"):
            raise Refusal(self._said(rule.get("code", "InternalError"), "内部错误"))

    def problem(self, status: int, detail: str) -> Reply:
        return self._said("InternalError", detail, status=status)

    def _said(self, code: str, msg: str = "", data: Any = None, status: int = 200) -> Reply:
        self.requests += 1
        return Reply(status, {"code": code, "msg": msg, "data": data, "request_id": f"sim-{self.requests}"})

    def _refuse(self, code: str, msg: str) -> Refusal:
        return Refusal(self._said(code, msg))

    # Routes

    def _wallet(self, request: Request) -> Reply:
        if request.body not in (b"", b"{}"):
            self.violate(f"the wallet takes no parameters: {request.body[:80]!r}")
        mine = request.who
        spent = self.ledger.spent(mine.id)
        found: dict[str, Any] = {
            "assets": round((mine.credit - spent) * YUAN),
            "accumulate": round(spent * YUAN),
            "voucher_balance": round(self.vouchers[mine.id] * YUAN),
            "blocked_asset": round(self.frozen[mine.id] * YUAN),
        }
        if "no_frozen" in request.faults:
            del found["blocked_asset"]
        if "odd_amount" in request.faults:
            found["assets"] = f"{found['assets'] / YUAN:.2f}"
        return self._said("Success", data=found)

    def _list(self, request: Request) -> Reply:
        asked = self._body(request, {"page_index", "page_size"})
        index, size = asked.get("page_index"), asked.get("page_size")
        if not (isinstance(index, int) and isinstance(size, int) and index > 0 and 0 < size <= MOST_A_PAGE):
            raise self._refuse("RequestParameterIsWrong", "参数错误")
        self.settle()
        mine = [one for one in self.instances.values() if one.account == request.who.id]
        pages = max(1, -(-len(mine) // size))
        page = mine[(index - 1) * size : index * size]
        last = index if "page_short" in request.faults else pages
        odd = request.faults.get("odd_status")
        rows = [self._row(one) | ({"status": odd.get("status", "migrating")} if odd else {}) for one in page]
        more = {"page_index": index, "page_size": size, "offset": (index - 1) * size, "max_page": last}
        return self._said("Success", data={"list": rows, **more, "result_total": len(mine), "page": index})

    def _snapshot(self, request: Request) -> Reply:
        one = self._asked_for(request)
        price = round(one.price * YUAN)
        secrets = {"root_password": "simulated", "jupyter_token": "simulated"}
        reached = {"ssh_command": f"ssh -p {one.port} root@127.0.0.1", "proxy_host": "127.0.0.1", "ssh_port": one.port}
        return self._said("Success", data={"payg_price": price, "origin_pay_price": price, **reached, **secrets})

    def _status(self, request: Request) -> Reply:
        one = self._asked_for(request)
        odd = request.faults.get("odd_status")
        return self._said("Success", data=odd.get("status", "migrating") if odd else one.status)

    def _off(self, request: Request) -> Reply:
        one = self._named(request, self._body(request, {"instance_uuid"}).get("instance_uuid"))
        ignored = "off_ignored" in request.faults
        self.book(request, one.id, "power_off", done=not ignored)
        if one.status == "running" and not ignored:
            one.off_at = self.clock.now() + OFF_SECONDS
        return self._said("Success")

    def _body(self, request: Request, known: set[str]) -> dict[str, Any]:
        try:
            body = request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise self._refuse("RequestParameterIsWrong", "参数错误")
        for name in sorted(set(body) - known):
            self.violate(f"{request.method} {request.route}: unknown field {name!r}")
        return body

    def _asked_for(self, request: Request) -> Instance:
        """By a JSON body, as the page says, or by the query, which reaches a gateway that drops the body of a GET."""
        body = request.json() if request.body and "drops_get_body" not in request.faults else None
        asked = body.get("instance_uuid") if isinstance(body, dict) else None
        return self._named(request, asked or next(iter(request.query.get("instance_uuid", [])), None))

    def _named(self, request: Request, id: Any) -> Instance:
        self.settle()
        if not self.verified:
            raise self._refuse("TORealName", "请先完成实名认证")
        found = self.instances.get(str(id))
        if found is None or found.account != request.who.id:
            raise self._refuse("RecordNotFoundError", "记录不存在")
        return found

    def _row(self, one: Instance) -> dict[str, Any]:
        def moment(seconds: float | None) -> dict[str, Any]:
            at = datetime.fromtimestamp(seconds or 0, UTC).isoformat()
            return {"Time": at, "Valid": seconds is not None}

        off = one.status_at if one.status == "shutdown" else None
        return {
            "uuid": one.id,
            "name": one.name,
            "created_at": moment(one.begun)["Time"],
            "machine_id": "m-1",
            "machine_alias": "1机",
            "region_sign": one.region,
            "region_name": "西北",
            "status": one.status,
            "sub_status": "",
            "status_at": moment(one.status_at)["Time"],
            "start_mode": "gpu",
            "charge_type": "payg",
            "req_gpu_amount": 1,
            "expired_at": moment(None),
            "started_at": moment(one.begun),
            "stopped_at": moment(off),
            "timed_shutdown_at": moment(None),
            "gpu_spec_uuid": one.spec,
        }

    # Behind the client's back

    def _turn(self, one: Instance, status: str, rate: float) -> None:
        one.status, one.status_at, one.off_at = status, self.clock.now(), None
        self.ledger.turn(one.id, status, rate)

    def settle(self) -> None:
        for one in self.instances.values():
            if one.off_at is not None and self.clock.now() >= one.off_at:
                self._turn(one, "shutdown", 0.0)

    def act_rent(self, id: str, account: str = "ann", name: str = "", price: float = 2.0, port: int = 10001) -> str:
        """A customer rents an instance in the console; `price` in yuan an hour, `port` of 127.0.0.1, where its SSH is.
        Ids begin with `pro-`."""
        now = self.clock.now()
        self.ledger.begin(id, account=account, tag=name, kind="instance", state="running", rate=price)
        self.instances[id] = Instance(id, account, name, price, begun=now, status_at=now, port=port)
        return id

    def act_shut_down(self, id: str) -> None:
        """Its system is powered off from inside, or by hand in the console."""
        self._turn(self.instances[id], "shutdown", 0.0)

    def act_pay_in(self, account: str, yuan: float) -> None:
        """A customer pays in; below zero: the balance is made smaller, also to a debt."""
        self.accounts[account].credit += yuan

    def act_freeze(self, account: str, yuan: float) -> None:
        """A part of the balance is frozen."""
        self.frozen[account] = yuan

    def outline(self) -> dict[str, Any]:
        self.settle()
        return {
            "instances": {one.id: {"status": one.status, "account": one.account} for one in self.instances.values()}
        }
