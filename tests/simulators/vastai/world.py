"""What customers and hosts do to contracts of the simulated vast.ai: rent, start, stop, bid, destroy.

Every entry settles first: what was due by the clock has then happened.

Source: vast.ai's API reference, create, manage and destroy instance; what it leaves open is a setting.
"""

from __future__ import annotations

from tests.simulators.core import Reply
from tests.simulators.vastai import replies
from tests.simulators.vastai.contracts import STOPPED, Contracts
from tests.simulators.vastai.instance import Instance, Stage
from tests.simulators.vastai.market import Offer
from tests.simulators.vastai.requests import SSH_WORDS, Create
from tests.simulators.vastai.settings import VastAccount

LEAST_BID, MOST_BID, MOST_BID_PER_GPU = 0.001, 128.0, 32.0
QUEUED = "Required resources are currently unavailable, state change queued."


class World(Contracts):
    """See the module. Not thread-safe by itself. What it raises is an answer: `Refusal`."""

    # Renting

    def create(
        self, account: VastAccount, ask: int, body: Create, *, trouble: str = "", keyless: bool = False
    ) -> Reply:
        """PUT /asks/{id}/. `trouble`: how the new instance fails, see `_doom`. `keyless`: its container's environment
        lacks its own key."""
        self.settle()
        offer = self.market.offers.get(ask)
        if offer is None:
            raise replies.ask_gone(ask) if ask in self.market.gone else replies.no_such_ask(ask)
        if self.ledger.balance(account) <= 0:
            raise replies.lacks_credit()
        if body.price is not None and not LEAST_BID <= body.price <= MOST_BID:
            raise replies.invalid_args(f"price {body.price}", error="invalid_price", ask_id=ask)
        machine = offer.machine
        if body.disk > machine.disk_space:
            raise replies.invalid_args(f"disk {body.disk:g} > {machine.disk_space:g}", ask_id=ask)
        volume = self.volumes.for_instance(account, machine, body.volume_info, ask)
        wanted = body.target_state != "stopped"
        outbid = body.price is not None and body.price < machine.min_bid * offer.gpus
        fits = self.free(machine, body.price) >= offer.gpus
        cancel = body.cancel_unavail if body.cancel_unavail is not None else body.price is None and wanted
        if not fits and not outbid and cancel:
            raise replies.ask_gone(ask)
        instance = self._contract(account, offer, body)
        instance.keyless = keyless
        if body.volume_info is not None:
            instance.volume = self.volumes.bind(account, machine, body.volume_info, volume)
            instance.mount_path = body.volume_info.mount_path
        if trouble:
            self._doom(instance, trouble)
        if outbid:
            self._stand_still(instance)
            instance.outbid = True
            self.bill(instance)
            more = {"new_contract": instance.id}
            raise replies.refusal(self.settings.bid_refused_status, None, "Bid is too low to start.", **more)
        self.market.consume(offer)
        if not wanted:
            self._stand_still(instance)
        elif fits:
            self._take(instance)
            self._boot(instance)
        else:
            self._stand_still(instance)
            self._queue(instance)
        self.bill(instance)
        return Reply(body={"success": True, "new_contract": instance.id, "instance_api_key": instance.own_key})

    def _contract(self, account: VastAccount, offer: Offer, body: Create) -> Instance:
        now, machine = self.now, offer.machine
        instance = Instance(
            id=next(self.ids),
            account=account.id,
            machine=machine,
            gpus=offer.gpus,
            disk=body.disk,
            image=body.image or "",
            label=body.label,
            env=dict(body.env) if isinstance(body.env, dict) else {},  # a string of flags is not applied
            onstart=body.onstart,
            args=body.args,
            runtype=SSH_WORDS[body.runtype or ("args" if body.args else "ssh")],
            bid=body.price,
            started=now,
            end_date=now + machine.duration,
            dph=machine.dph * offer.gpus,
            host=self.boxes.host,
            port=self.boxes.closed_port,
        )
        instance.own_key = instance.derived_key()
        self.own_keys.issue(str(instance.id), account.id, instance.own_key)
        self.instances[instance.id] = instance
        self.ledger.begin(
            str(instance.id), account=account.id, tag=body.label or "", kind="instance", state="null", rate=0.0
        )
        return instance

    def _doom(self, instance: Instance, trouble: str) -> None:
        """`stuck`: loading for ever; `oci`: its image can't run; `dies`: ends while it starts."""
        instance.stuck = {"stuck": "loading", "oci": "created", "dies": ""}[trouble]
        if trouble == "oci":
            instance.status_msg = "Error response from daemon: OCI runtime create failed: runc create failed"
        instance.dies = trouble == "dies"

    # Starting and ending

    def start(self, instance: Instance) -> Reply:
        """PUT state running: at once, or queued, which would start (and bill) later."""
        self.settle()
        if instance.holds:
            return Reply(body={"success": True, "msg": "already running"})
        account = self.accounts[instance.account]
        if self.ledger.balance(account) <= 0:
            raise replies.lacks_credit()
        if instance.expired:
            raise replies.invalid_args("the contract has expired")
        if not self._may_run(instance):
            self._queue(instance)
            return Reply(body={"success": False, "msg": QUEUED})
        self._take(instance)
        self._boot(instance, "loading")
        self.bill(instance)
        return Reply(body={"success": True, "msg": "starting"})

    def stop(self, instance: Instance, *, grace: bool = False) -> Reply:
        """PUT state stopped. Also takes back a start that waits. `grace`: its processes end a moment later than it."""
        self.settle()
        instance.intended = instance.next_state = "stopped"
        instance.queued = instance.outbid = False
        if instance.holds:
            stage = Stage(STOPPED, self.settings.stop_reads, by=self.now + self.settings.by_itself)
            stage.enter = lambda: self._stand_still(instance, grace=grace)
            instance.follow(stage)
            instance.advance(self.now)
        else:
            instance.cur_state = "stopped"
        self.bill(instance)
        return Reply(body={"success": True, "msg": "stopping"})

    def destroy(self, instance: Instance, reads: int | None = None) -> None:
        """Ends it and its bill now; views may show it for a while. `reads`: how many, where not as set."""
        self.settle()
        if instance.destroyed_at is not None:
            return
        self._stand_still(instance)
        instance.destroyed_at = self.now
        self.bill(instance)
        self.boxes.end(instance)

        def forget() -> None:
            instance.forgotten = True

        instance.actual = "exited"
        looks = self.settings.destroy_reads if reads is None else reads
        instance.follow(Stage("exited", looks, by=self.now + self.settings.by_itself, enter=forget))
        instance.stuck = ""
        instance.advance(self.now)

    def change_bid(self, instance: Instance, price: float) -> None:
        self.settle()
        if instance.bid is None or not LEAST_BID <= price <= MOST_BID_PER_GPU * instance.gpus:
            raise replies.refusal(400, "invalid_args", f"Please set a bid price >= {LEAST_BID}.")
        instance.bid = price
        self.settle()
        self.bill(instance)
