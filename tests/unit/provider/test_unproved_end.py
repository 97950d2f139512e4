"""A box that its platform's API shows nowhere, without a proof that it is gone: the wait, and a person's word."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.commands.confirm import gone as confirm_gone_command
from sweepstack.cli.commands.confirm.gone import confirm as confirm_gone
from sweepstack.cli.output import YES, Out
from sweepstack.core.observation import Existence
from sweepstack.core.resources import BoxState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.errors import No, NotYetGone, Unproved
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.operations.observe import observe
from sweepstack.operations.strays.accounts import findings_in
from sweepstack.operations.strays.beside_sweep import search
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.volumes import end_check
from sweepstack.operations.volumes.mounting_sweeps import User
from sweepstack.status.engine.state import BoxEntry, IdentityEntry, StackState
from sweepstack.teardown.box_context import BoxAt
from tests.unit.provider.support import BOX, Sweep

NOWHERE = "shown nowhere, and its bill does not stand still yet"


class Api:
    """The local platform as one whose API shows ended boxes nowhere. `proved`: by its bill they ended; `lingers`: it is
    there all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proved, self.ended, self.lingers, self.same_account, self.asked = False, False, False, False, 0
        honest = LocalPlatform.destroy, LocalPlatform.get

        def destroy(platform: LocalPlatform, native_id: str, account: str) -> None:
            if not self.lingers:
                honest[0](platform, native_id, account)
            self.ended, self.asked = True, self.asked + 1
            if not self.proved:
                raise NotYetGone(NOWHERE, within=0.3, pause=0.05)

        def get(platform: LocalPlatform, native_id: str, account: str) -> Any:
            if self.ended and not self.proved:
                error = Unproved(NOWHERE)
                error.same_account = self.same_account
                raise error
            return honest[1](platform, native_id, account)

        monkeypatch.setattr(LocalPlatform, "destroy", destroy)
        monkeypatch.setattr(LocalPlatform, "get", get)
        monkeypatch.setattr(confirm_gone_command, "has_address", lambda _adapter: False)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    return Api(monkeypatch)


def delete(sweep: Sweep, box: BoxState) -> None:
    BOX.delete(sweep.op(name=box.name, timeout=0.1), box.native_id, box)


def say(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, box: BoxState) -> int:
    """`sweepctl confirm gone`."""
    identity = IdentityEntry.model_validate(sweep.identity.model_dump(mode="json") | {"urn": "urn:identity"})
    entry = BoxEntry.model_validate(box.model_dump(mode="json") | {"urn": f"urn:{box.name}"})
    state = StackState("sweep-t", identity=identity, boxes=(entry,))
    file = SimpleNamespace(path=sweep.folder / "no-stack-file", shown="stacks/Pulumi.sweep-t.yaml")
    target: Any = SimpleNamespace(stack="sweep-t", file=file)
    sources = Sources(target, state, True, box.evidence, Evidence(box.evidence).usable, "")
    monkeypatch.setattr(confirm_gone_command, "open_sources", lambda _target: sources)
    return confirm_gone(target, Statement(box.name, "terminated", by="ada"), Out(as_json=True))


def test_the_proof_is_waited_for_and_an_audit_and_the_next_destroy_go_on(sweep: Sweep, api: Api) -> None:
    """The next one has nothing to check any more: the box can't be read, and its end was allowed."""
    box = sweep.cleared()
    with pytest.raises(NotYetGone) as waits:
        delete(sweep, box)
    assert api.asked > 1, "it waited longer than its own deadline"
    for part in (NOWHERE, "May still bill $0.50/h", "pulumi destroy --stack sweep-t; or, once its console shows that"):
        assert part in str(waits.value), str(waits.value)
    entry = BoxEntry.model_validate(box.model_dump(mode="json") | {"urn": f"urn:{box.name}"})
    known = KnownStates({"sweep-t": StackState("sweep-t", boxes=(entry,))})
    found = findings_in(box.adapter, sweep.platform, known)
    assert [(one.standing, one.phase) for one in found if one.native_id == box.native_id] == [("known", "unknown")]
    api.proved = True
    delete(sweep, box)
    assert sweep.born().ended_how == "gone"


def test_a_person_may_confirm_what_the_api_does_not_prove(
    sweep: Sweep, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sweep.cleared()
    with pytest.raises(No, match="its API proves that a box is gone"):
        say(sweep, monkeypatch, box)
    api.ended = True
    with pytest.raises(No, match="was not begun"):
        say(sweep, monkeypatch, box)
    api.ended = False
    with pytest.raises(NotYetGone):
        delete(sweep, box)
    at = BoxAt(box.adapter, box.native_id, box.account, Evidence(box.evidence))
    assert observe(at)[0].existence is Existence.UNKNOWN
    assert say(sweep, monkeypatch, box) == YES
    assert observe(at)[0].existence is Existence.GONE
    delete(sweep, box)
    assert sweep.born().ended_how == "confirmed by ada"
    api.proved = True
    with pytest.raises(No, match="its API proves that a box is gone"):
        say(sweep, monkeypatch, box)


def test_a_confirmation_ends_when_the_api_shows_the_box(
    sweep: Sweep, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sweep.cleared()
    api.lingers = True
    with pytest.raises(NotYetGone):
        delete(sweep, box)
    say(sweep, monkeypatch, box)
    at = BoxAt(box.adapter, box.native_id, box.account, Evidence(box.evidence))
    assert observe(at)[0].existence is Existence.GONE
    api.ended = False
    assert observe(at)[0].existence is Existence.EXISTS


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("same_account", [True, False])
def test_an_end_on_record_stays_one_where_the_same_account_shows_the_box_nowhere(
    sweep: Sweep, api: Api, same_account: bool, ended: bool
) -> None:
    """The bill proved it to the destroy; each later command would look for eleven minutes of its own."""
    box = sweep.cleared()
    api.proved = ended
    with nullcontext() if ended else pytest.raises(NotYetGone):
        delete(sweep, box)
    api.proved, api.same_account = False, same_account
    birth = sweep.born()
    assert (birth.ended_at is not None) == ended
    target: Any = SimpleNamespace(stack="sweep-t", root=sweep.folder, file=SimpleNamespace(sweep=dict))
    found = search(StackState("sweep-t"), sweep.store, [birth], target.file)
    still_there = list(end_check._alive(User("sweep-t", "", ""), birth))
    if ended and same_account:
        assert (found.searched, found.orphans, found.notes, still_there) == (True, (), (), [])
    else:
        assert not found.searched
        assert NOWHERE in still_there[0]
