"""The simulated vast.ai's routes that are about the customer: an instance's keys, volumes, account, charges."""

from __future__ import annotations

from tests.simulators.core import Reply, Request
from tests.simulators.vastai.gate import V0, Gate, who
from tests.simulators.vastai.meter import Meter
from tests.simulators.vastai.paging import page_of
from tests.simulators.vastai.query import Row
from tests.simulators.vastai.replies import Strange, invalid_args, refusal
from tests.simulators.vastai.requests import Key, RentVolume, read

CHARGES_A_PAGE = 500
NEEDS_DAYS = "Must provide both 'day' gte and lte filters for instance charges"
VOLUME_TYPES = ("all_volume", "local_volume", "network_volume")


class CustomerRoutes(Gate):
    """The simulator with the routes that are about the customer."""

    def register_customer(self) -> None:
        attached = f"{V0}/instances/{{id}}/ssh/"
        self.serve(f"GET {attached}", self.show_attached)
        self.serve(f"POST {attached}", self.attach)
        for slash in ("", "/"):  # the SDK leaves it out where the API page has it
            self.serve(f"GET {V0}/volumes{slash}", self.show_volumes)
            self.serve(f"DELETE {V0}/volumes{slash}", self.delete_volume)
            self.serve(f"GET {V0}/users/current{slash}", self.show_user)
        self.serve(f"PUT {V0}/volumes/", self.create_volume)
        self.serve(f"POST {V0}/volumes/search/", self.search_volumes)
        self.serve(f"GET {V0}/charges/", self.show_charges)

    # Keys

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
        return Reply(body={"success": True, "volume_name": f"V.{volume.id}"})

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
                "ssh_key": None,
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


def _public_key(body: Key) -> str:
    if not body.ssh_key or not body.ssh_key.strip():
        raise refusal(400, "no_ssh_key", "No ssh key provided")
    return body.ssh_key.strip()
