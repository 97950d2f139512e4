"""The simulated vast.ai with all its routes: those of offers and instances are here."""

from __future__ import annotations

from typing import Any

from tests.simulators.core import (
    Reply,
    Request,
)
from tests.simulators.vastai import replies
from tests.simulators.vastai.acts import Acts
from tests.simulators.vastai.customer import CustomerRoutes, number_of
from tests.simulators.vastai.gate import SEARCH, V0, V1, who
from tests.simulators.vastai.instance import STORED, Instance
from tests.simulators.vastai.paging import page_of
from tests.simulators.vastai.query import Row, matches
from tests.simulators.vastai.replies import refusal
from tests.simulators.vastai.requests import (
    Bid,
    Create,
    Manage,
    Nothing,
    check,
    read,
)


class VastSimulator(Acts, CustomerRoutes):
    """See the module. `machines`: instances are real machines with their disks below `state`; else they refuse."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._register()

    def outline(self) -> dict[str, Any]:
        self.world.settle()
        return self.world.outline()

    def problem(self, status: int, detail: str) -> Reply:
        return Reply(status, {"success": False, "error": "internal_error", "msg": detail})

    # Routes

    def _register(self) -> None:
        one = f"{V0}/instances/{{id}}/"
        self.serve(SEARCH, self.search)
        self.serve(f"PUT {V0}/asks/{{id}}/", self.create)
        self.serve(f"GET {one}", self.show)
        self.serve(f"GET {V1}/instances/", self.show_all)
        self.serve(f"PUT {one}", self.manage)
        self.serve(f"DELETE {one}", self.destroy)
        self.serve(f"PUT {V0}/instances/bid_price/{{id}}/", self.change_bid)
        self.register_customer()

    def search(self, request: Request) -> Reply:
        try:
            body = request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise refusal(400, "invalid_request", "Invalid json body")
        if "search_quota" in request.faults:
            raise replies.quota_exceeded()
        world = self.world
        bid = float("inf") if body.get("type") == "bid" else None
        free = {machine.id: world.free(machine, bid) for machine in world.market.machines.values()}
        return Reply(body={"offers": world.market.search(body, free, world.now)})

    def create(self, request: Request) -> Reply:
        ask, account, body = number_of(request, "id"), who(request), read(Create, request)
        check(body, ask)
        if "spend_limit" in request.faults:
            status = request.faults["spend_limit"].get("status", 400)
            raise refusal(status, "spend_rate_limit", "New accounts may only spend so much an hour.")
        if "lacks_credit" in request.faults:
            raise replies.lacks_credit()
        offer = self.world.market.offers.get(ask)
        if offer is not None and "snatched" in request.faults:
            offer.machine.taken += min(offer.gpus, self.world.free(offer.machine, None))
            if not request.faults["snatched"].get("gpus", False):
                self.world.market.consume(offer)
        if offer is not None and body.price is not None and "bid_refused" in request.faults:
            offer.machine.min_bid = max(offer.machine.min_bid, body.price / offer.gpus + 0.01)
        trouble = next((kind for kind in ("stuck", "oci", "dies") if kind in request.faults), "")
        reply = self.world.create(account, ask, body, trouble=trouble, keyless="no_key" in request.faults)
        self.book(request, str(reply.body["new_contract"]), "create")
        return reply

    def show(self, request: Request) -> Reply:
        self._only(request, "owner")
        found = self.world.find(who(request), number_of(request, "id"))
        self._strike(request, [found] if found else [])
        found = self.world.find(who(request), number_of(request, "id"))
        if found is None or "null_read" in request.faults:
            return Reply(body={"instances": None})
        return Reply(body={"instances": self._said(request, self._row(found))})

    def _strike(self, request: Request, instances: list[Instance]) -> None:
        """What a fault says has just happened to these."""
        for instance in instances:
            if "preempted" in request.faults and instance.holds:
                self.world.halt(instance)
            if "vanished" in request.faults:
                self.world.destroy(instance, 0)

    def _said(self, request: Request, row: Row) -> Row:
        odd = request.faults.get("odd_status")
        return row if odd is None else {**row, "actual_status": odd.get("word", "migrating")}

    def _row(self, instance: Instance, *, listed: bool = False) -> Row:
        row = instance.row()
        if listed:  # seen live: only the list has it
            volume = self.world.volumes.all.get(instance.volume or 0)
            row["volume_info"] = (
                [{"id": volume.id, "name": volume.name, "size": volume.size, "mount_path": instance.mount_path}]
                if volume
                else []
            )
        self.world.looked_at(instance)
        return row

    def show_all(self, request: Request) -> Reply:
        self._only(request, "limit", "after_token", "order_by", "select_cols", "select_filters")
        filters = self._told(request, "select_filters", {})
        if computed := sorted(set(filters) - STORED):
            raise refusal(400, "invalid_args", f"Can't filter on computed column {computed[0]}")
        self._strike(request, self.world.own(who(request)))
        named = {
            name: filters[name] for name in filters if name in ("id", "label")
        }  # before thousands of rows are made
        mine = [one for one in self._listed(request) if matches({"id": one.id, "label": one.label}, named)]
        by_id = {instance.id: instance for instance in mine}
        rows = [instance.row() for instance in mine]
        rows = [row for row in rows if matches(row, filters)]
        page, token = page_of(
            rows,
            order=self._told(request, "order_by", [{"col": "id", "dir": "asc"}]),
            limit=self._told(request, "limit", self.world.settings.page),
            cap=self.world.settings.page,
            after=(request.query.get("after_token") or [""])[0],
        )
        labels: dict[str, int] = {}
        for row in rows:
            labels[row["label"] or ""] = labels.get(row["label"] or "", 0) + 1
        shown = [self._said(request, self._row(by_id[row["id"]], listed=True)) for row in page]
        columns = self._told(request, "select_cols", ["*"])
        if columns != ["*"]:
            shown = [{name: row.get(name) for name in columns} for row in shown]
        empty = request.faults.get("empty_list")
        if empty is not None and (filters or not empty.get("filtered", False)):
            shown, rows, labels, token = [], [], {}, None
        return Reply(
            body={
                "success": True,
                "instances_found": len(shown),
                "total_instances": len(rows),
                "label_counts": labels,
                "next_token": token,
                "instances": shown,
            }
        )

    def _listed(self, request: Request) -> list[Instance]:
        account, stale = who(request), request.faults.get("stale_list")
        if stale is None:
            return self.world.own(account)
        then = self.world.now - stale.get("seconds", 60.0)
        return [
            i
            for i in self.world.instances.values()
            if i.account == account.id and i.started <= then and (i.destroyed_at is None or i.destroyed_at > then)
        ]

    def manage(self, request: Request) -> Reply:
        instance = self.world.need(who(request), number_of(request, "id"))
        body = read(Manage, request)
        if body.state == "running":
            if (fault := request.faults.get("start_queued")) is not None:
                self.take_gpus(instance.machine, fault.get("seconds", 60.0))
            self.book(request, str(instance.id), "start")
            return self.world.start(instance)
        ignored = "stop_ignored" in request.faults
        self.book(request, str(instance.id), "stop", done=not ignored)
        if ignored:
            return Reply(body={"success": True, "msg": "stopping"})
        return self.world.stop(instance, grace=bool(request.box))

    def destroy(self, request: Request) -> Reply:
        read(Nothing, request)
        number = number_of(request, "id")
        found = self.world.find(who(request), number)
        self._strike(request, [found] if found else [])
        found = self.world.find(who(request), number)
        if found is None:
            raise refusal(404, "not_found", "Instance not found")
        if "destroy_ignored" not in request.faults:
            self.book(request, str(found.id), "destroy")
            slow = request.faults.get("destroy_slow")
            self.world.destroy(found, None if slow is None else slow.get("reads", 5))
        return Reply(body={"success": True, "msg": "Instance destroyed successfully"})

    def change_bid(self, request: Request) -> Reply:
        body = read(Bid, request)
        instance = self.world.need(who(request), number_of(request, "id"), replies.no_such_bid())
        self.world.change_bid(instance, body.price or 0.0)
        return Reply(body={"success": True})
