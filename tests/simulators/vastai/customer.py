"""The simulated vast.ai's routes that are about the customer: keys, volumes, account, charges, price increases."""

from __future__ import annotations

from tests.simulators.core import Reply, Request
from tests.simulators.vastai.gate import V0, V1, Gate, who
from tests.simulators.vastai.meter import Meter
from tests.simulators.vastai.paging import page_of
from tests.simulators.vastai.query import Row
from tests.simulators.vastai.replies import Strange, invalid_args, refusal
from tests.simulators.vastai.requests import Fetch, Key, Pending, RentVolume, read
from tests.simulators.vastai.settings import VastAccount

CHARGES_A_PAGE = 500
NEEDS_DAYS = "Must provide both 'day' gte and lte filters for instance charges"
VOLUME_TYPES = ("all_volume", "local_volume", "network_volume")


class CustomerRoutes(Gate):
    """The simulator with the routes that are about the customer."""

    def register_customer(self) -> None:
        attached = f"{V0}/instances/{{id}}/ssh/"
        self.serve(f"GET {V0}/ssh/", "user_read", self.show_keys)
        self.serve(f"POST {V0}/ssh/", "user_write", self.create_key)
        self.serve(f"PUT {V0}/ssh/{{id}}/", "user_write", self.update_key)
        self.serve(f"DELETE {V0}/ssh/{{id}}/", "user_write", self.delete_key)
        self.serve(f"GET {attached}", "instance_read", self.show_attached)
        self.serve(f"POST {attached}", "instance_write", self.attach)
        self.serve(f"DELETE {attached}{{key}}/", "instance_write", self.detach)
        for slash in ("", "/"):  # the SDK leaves it out where the API page has it
            self.serve(f"GET {V0}/volumes{slash}", "instance_read", self.show_volumes)
            self.serve(f"DELETE {V0}/volumes{slash}", "instance_write", self.delete_volume)
            self.serve(f"GET {V0}/users/current{slash}", "user_read", self.show_user)
        self.serve(f"PUT {V0}/volumes/", "instance_write", self.create_volume)
        self.serve(f"POST {V0}/volumes/search/", "misc", self.search_volumes)
        self.serve(f"GET {V0}/charges/", "billing_read", self.show_charges)
        self.serve(f"GET {V1}/invoices/", "billing_read", self.show_invoices)
        self.serve(f"POST {V0}/contracts/fetch/", "instance_read", self.fetch)

    # Keys

    def show_keys(self, request: Request) -> Reply:
        account = who(request)
        if not account.ssh_keys:
            return Reply(404, {"success": False, "error": "not_found", "msg": "No ssh keys found"})
        return Reply(body=[self._key(account, number, "key") for number in account.ssh_keys])

    def _key(self, account: VastAccount, number: int, name: str) -> Row:
        at = "2026-01-01T12:00:00Z"
        told = {"id": number, "user_id": int(account.id), name: account.ssh_keys[number]}
        return {**told, "created_at": at, "deleted_at": None}

    def create_key(self, request: Request) -> Reply:
        account, number = who(request), next(self.world.ids)
        account.ssh_keys[number] = _public_key(read(Key, request))
        return Reply(body={"success": True, "key": self._key(account, number, "public_key")})

    def update_key(self, request: Request) -> Reply:
        account, number = who(request), _own_key(request)
        account.ssh_keys[number] = _public_key(read(Key, request))
        return Reply(body={"success": True, "key": self._key(account, number, "public_key")})

    def delete_key(self, request: Request) -> Reply:
        del who(request).ssh_keys[_own_key(request)]
        return Reply(body={"success": True})

    def show_attached(self, request: Request) -> Reply:
        instance = self.world.need(who(request), number_of(request, "id"))
        keys = [{"id": n, "name": None, "public_key": key} for n, key in enumerate(instance.keys, 1)]
        return Reply(body={"success": True, "ssh_keys": keys})

    def attach(self, request: Request) -> Reply:
        instance = self.world.need(who(request), number_of(request, "id"))
        key = _public_key(read(Key, request))
        if key not in instance.keys:
            instance.keys.append(key)
            self.world.boxes.authorize(instance)
        return Reply(body={"success": True, "msg": "SSH key attached successfully"})

    def detach(self, request: Request) -> Reply:
        instance = self.world.need(who(request), number_of(request, "id"))
        place = number_of(request, "key") - 1
        if not 0 <= place < len(instance.keys):
            raise refusal(404, "no_such_ssh_key", "SSH key not found.")
        del instance.keys[place]
        self.world.boxes.authorize(instance)
        return Reply(body={"success": True, "msg": "SSH key removed from instance."})

    # Volumes

    def search_volumes(self, request: Request) -> Reply:
        try:
            body = request.json() or {}
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise refusal(400, "invalid_request", f"Invalid query: {body}, must be dict of conditions")
        return Reply(body={"offers": self.world.market.search_volumes(body, self.world.now)})

    def create_volume(self, request: Request) -> Reply:
        volume = self.world.volumes.create(who(request), read(RentVolume, request))
        told = {"volume_id": volume.id} if self.world.settings.volume_id_told else {}
        return Reply(body={"success": True, "volume_name": f"V.{volume.id}", **told})

    def show_volumes(self, request: Request) -> Reply:
        self._only(request, "owner", "type")
        kind = (request.query.get("type") or ["all_volume"])[0]
        if kind not in VOLUME_TYPES:
            raise Strange(f"type of volume {kind!r}")
        volumes = self.world.volumes
        rows = [volumes.row(volume) for volume in volumes.own(who(request))] if kind != "network_volume" else []
        return Reply(body={"volumes": rows})

    def delete_volume(self, request: Request) -> Reply:
        self._only(request, "id")
        body = request.json() or {}
        told = {**{name: values[0] for name, values in request.query.items() if name == "id"}, **body}
        if set(told) != {"id"}:
            raise Strange(f"delete of a volume by {sorted(told)}")
        try:
            number = int(told["id"])
        except (TypeError, ValueError):
            raise refusal(400, "invalid_args", "Please provide a valid volume ID.") from None
        self.world.volumes.delete(who(request), number)
        return Reply(body={"success": True})

    # Money

    def show_user(self, request: Request) -> Reply:
        account = who(request)
        left = self.ledger.balance(account)
        return Reply(
            body={
                "id": int(account.id),
                "key_id": int(account.id) * 10,
                "username": account.email.partition("@")[0],
                "email": account.email,
                "credit": left,
                "balance": 0.0,  # another thing than the prepaid credit
                "api_key": account.key,  # the SDK takes it out, so it does come
                "ssh_key": next(iter(account.ssh_keys.values()), None),
                "sid": "s" * 32,
            }
        )

    def show_charges(self, request: Request) -> Reply:
        self._only(request, "select_filters", "format", "latest_first", "limit", "after_token")
        filters = self._told(request, "select_filters", {})
        days = filters.get("day") or {}
        if not {"gte", "lte"} <= set(days):
            raise refusal(400, None, NEEDS_DAYS)
        kinds = filters.get("type", {}).get("in", ["instance", "volume"])
        world, account = self.world, who(request)
        meters: list[tuple[str, int, str, Meter]] = [
            ("instance", i.id, i.label or "", i.meter) for i in world.instances.values() if i.account == account.id
        ]
        meters += [("volume", v.id, v.name, v.meter) for v in world.volumes.all.values() if v.account == account.id]
        rows = []
        for kind, number, label, meter in meters:
            begin, end = max(days["gte"], meter.began()), min(days["lte"], world.now)
            amounts = {what: usd for what, usd in meter.amounts(begin, end).items() if usd > 0}
            if kind in kinds and amounts:
                rows.append(_charge(kind, number, label, int(begin), int(end), amounts))
        page, token = page_of(
            rows,
            order=[{"col": "id", "dir": "desc" if self._told(request, "latest_first", True) else "asc"}],
            limit=self._told(request, "limit", 100),
            cap=CHARGES_A_PAGE,
            after=(request.query.get("after_token") or [""])[0],
        )
        results = [{name: value for name, value in row.items() if name != "id"} for row in page]
        told = {"count": len(page), "total": len(rows), "next_token": token, "results": results}
        return Reply(body={"success": True, **told})

    def show_invoices(self, request: Request) -> Reply:
        self._only(request, "select_filters", "latest_first", "limit", "after_token")
        when = self._told(request, "select_filters", {}).get("when") or {}
        if not {"gte", "lte"} <= set(when) or when["gte"] > when["lte"]:
            return Reply(body={"success": False, "msg": "Invalid date range"})
        account = who(request)
        paid = {"type": "invoice", "source": "stripe_payments", "amount": account.credit, "items": []}
        return Reply(body={"success": True, "count": 1, "total": 1, "next_token": None, "results": [paid]})

    def fetch(self, request: Request) -> Reply:
        body = read(Fetch, request)
        rows = [
            instance.row(newline=self.world.settings.newline)
            for instance in self.world.own(who(request))
            if body.label in (None, instance.label) and (body.contract_ids is None or instance.id in body.contract_ids)
        ]
        return Reply(body={"contracts": rows})

    # Price increases: rows of `World.increases`, by their id

    def price_increases(self, request: Request) -> Reply:
        account = who(request)
        mine = {instance.id for instance in self.world.own(account)}
        rows = [row for row in self.world.increases.values() if row["contract_id"] in mine]
        told = {"count": len(rows), "truncated": False, "pending_price_increases": rows}
        return Reply(body={"success": True, **told})

    def accept_increase(self, request: Request) -> Reply:
        row = self._pending(request)
        return Reply(
            body={"success": True, **{name: row[name] for name in ("pending_price_increase_id", "contract_id")}}
        )

    reject_increase = accept_increase

    def _pending(self, request: Request) -> Row:
        number = read(Pending, request).pending_price_increase_id
        row = self.world.increases.get(number)
        if row is None or self.world.find(who(request), row["contract_id"]) is None:
            raise refusal(404, "no_pending_price_increase", "No such pending price increase.")
        return self.world.increases.pop(number)


def _charge(kind: str, number: int, label: str, begin: int, end: int, amounts: dict[str, float]) -> Row:
    span = {"start": begin, "end": end}
    items: list[Row] = [
        {**span, "type": what, "source": None, "description": "", "amount": usd, "metadata": {}, "items": []}
        for what, usd in sorted(amounts.items())
    ]
    return {
        "id": number,
        **span,
        "type": kind,
        "source": f"{kind}-{number}",
        "description": f"{kind.capitalize()} {number} Charges",
        "amount": sum(amounts.values()),
        "metadata": {"label": label},
        "items": items,
    }


def number_of(request: Request, name: str) -> int:
    """A number of the path."""
    try:
        return int(request.params[name])
    except ValueError:
        raise invalid_args("invalid instance_id") from None


def _own_key(request: Request) -> int:
    number = number_of(request, "id")
    if number not in who(request).ssh_keys:
        raise refusal(400, "no_ssh_key", "No ssh key provided")
    return number


def _public_key(body: Key) -> str:
    if not body.ssh_key or not body.ssh_key.strip():
        raise refusal(400, "no_ssh_key", "No ssh key provided")
    return body.ssh_key.strip()
