"""The plugin over its wire: a real server, a real channel, the engine's own messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pulumi  # noqa: F401 - before sweepstack.provider.grpc_stubs, which else leaves an empty shell for other tests
import pytest
from google.protobuf import empty_pb2

from sweepstack.core import spelling
from sweepstack.core.resources import BoxState
from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.provider import dispatch, grpc_service
from sweepstack.provider.grpc_stubs import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2
from sweepstack.provider.resources.policy_limits import IDENTITY_SEEN
from sweepstack.provider.session import Operation, Session, Severity
from sweepstack.provider.wire import SECRET_SIGNATURE, SIGNATURE_KEY, to_python, to_struct
from tests.screens import too_long
from tests.unit.provider.support import STACK, Sweep, approval_for

Stub = provider_pb2_grpc.ResourceProviderStub


def serving(service: Any, add: Any) -> tuple[grpc.Server, str]:
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    add(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture
def session(sweep: Sweep) -> Session:
    made = Session(sweep.project, sweep.said.emit, sweep.cancelled)
    made.shared[IDENTITY_SEEN] = True
    return made


@pytest.fixture
def stub(session: Session) -> Iterator[Any]:
    """The engine's end of a plugin."""
    server, address = serving(grpc_service.Servicer(session), provider_pb2_grpc.add_ResourceProviderServicer_to_server)
    with grpc.insecure_channel(address) as channel:
        yield Stub(channel)
    server.stop(0)


def urn(kind: str = "Box", name: str = "box-0") -> str:
    return f"urn:pulumi:{STACK}::project::sweepstack:index:{kind}::{name}"


def create(stub: Any, inputs: Any, kind: str = "Box", **options: Any) -> Any:
    properties = inputs if isinstance(inputs, dict) else dispatch.to_properties(inputs)
    return stub.Create(provider_pb2.CreateRequest(urn=urn(kind), properties=to_struct(properties), **options))


def inside(struct: Any) -> dict[str, Any]:
    """Properties of a box by the names of its model, without the number of their schema."""
    known = spelling.inside("sweepstack:index:Box", to_python(struct))
    return {name: value for name, value in known.items() if name != "schema"}


def delete(stub: Any, box: BoxState) -> Any:
    properties = to_struct(dispatch.to_properties(box))
    request = provider_pb2.DeleteRequest(id=box.native_id, urn=urn(), properties=properties, old_inputs=box_inputs(box))
    return stub.Delete(request)


def box_inputs(box: BoxState) -> Any:
    fields = dispatch.handler_for("sweepstack:index:Box").inputs_type.model_fields
    return to_struct({key: value for key, value in dispatch.to_properties(box).items() if key in fields})


def failed(call: grpc.RpcError) -> Any:
    """The `ErrorResourceInitFailed` that travels with a failed call."""
    metadata = dict(call.trailing_metadata())  # type: ignore[attr-defined]
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    detail = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(detail)
    assert status.code == grpc.StatusCode.UNKNOWN.value[0]
    return detail


# Created, then failed


def test_created_and_then_failed_hands_the_id_over(stub: Any, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_DRILL_CREATE", "fail-after-create")
    with pytest.raises(grpc.RpcError) as raised:
        create(stub, sweep.box_inputs())
    detail = failed(raised.value)
    assert [detail.id] == sweep.listed()
    state = BoxState.model_validate(inside(detail.properties))
    assert (state.native_id, state.price_per_hour, state.generation) == (detail.id, 0.5, 1)
    assert inside(detail.inputs) == dispatch.to_properties(sweep.box_inputs())
    (reason,) = detail.reasons
    assert "It bills $0.50/h" in reason
    assert raised.value.details() == reason  # type: ignore[attr-defined]
    monkeypatch.delenv("SWEEPSTACK_DRILL_CREATE")
    request = provider_pb2.UpdateRequest(
        id=detail.id, urn=urn(), olds=detail.properties, news=detail.inputs, old_inputs=detail.inputs
    )
    assert to_python(stub.Update(request).properties)["phase"] == "running"
    assert [detail.id] == sweep.listed()


def test_an_unhealthy_read_keeps_the_thing_and_says_why(
    stub: Any, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*_: Any) -> None:
        raise Unreachable("502 Bad Gateway")

    box = sweep.box()
    properties = to_struct(dispatch.to_properties(box))
    request = provider_pb2.ReadRequest(id=box.native_id, urn=urn(), properties=properties, inputs=box_inputs(box))
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "get", get)
        with pytest.raises(grpc.RpcError) as raised:
            stub.Read(request)
    detail = failed(raised.value)
    assert detail.id == box.native_id
    assert "UNKNOWN, 502 Bad Gateway" in detail.reasons[0]
    assert to_python(detail.properties)["native_id"] == box.native_id
    assert stub.Read(request).id == box.native_id
    sweep.vanish(box)
    assert stub.Read(request).id == ""


# One message


def test_a_refusal_is_one_message(stub: Any, sweep: Sweep) -> None:
    box = sweep.box()
    with pytest.raises(grpc.RpcError) as raised:
        delete(stub, box)
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION  # type: ignore[attr-defined]
    said = raised.value.details()  # type: ignore[attr-defined]
    assert said.startswith("REFUSED.\nNothing was deleted. Box box-0")
    assert "Traceback" not in said
    assert sweep.listed() == [box.native_id]
    cleared = box.model_copy(update={"approval": approval_for(box)})
    assert isinstance(delete(stub, cleared), empty_pb2.Empty)
    assert sweep.listed() == []


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), KeyError("tag"), OSError(28, "disk full")])
def test_a_defect_is_one_message_too(
    stub: Any, sweep: Sweep, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(LocalPlatform, "create", broken)
    with pytest.raises(grpc.RpcError) as raised:
        create(stub, sweep.box_inputs())
    assert raised.value.code() is grpc.StatusCode.INTERNAL  # type: ignore[attr-defined]
    said = raised.value.details()  # type: ignore[attr-defined]
    assert said.startswith(f"internal error in sweepstack: {type(error).__name__}: {error}")
    assert "test_host.py:" in said
    assert "Next: the same command again, with `-d` for the traceback" in said
    assert "Traceback" not in said


def test_a_state_that_is_none_is_an_error_and_no_end(stub: Any, sweep: Sweep) -> None:
    box = sweep.box()
    properties = to_struct(dispatch.to_properties(box) | {"surprise": 1})
    with pytest.raises(grpc.RpcError) as raised:
        stub.Delete(
            provider_pb2.DeleteRequest(id=box.native_id, urn=urn(), properties=properties, old_inputs=box_inputs(box))
        )
    assert "surprise" in raised.value.details()  # type: ignore[attr-defined]
    assert sweep.listed() == [box.native_id]


def test_no_key_leaves_in_a_message(stub: Any, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise Unreachable("401 for https://cloud.example/v1?key=hunter2hunter2")

    monkeypatch.setenv("CLOUD_API_KEY", "hunter2hunter2")
    monkeypatch.setattr(LocalPlatform, "create", refused)
    with pytest.raises(grpc.RpcError) as raised:
        create(stub, sweep.box_inputs())
    assert "hunter2" not in raised.value.details()  # type: ignore[attr-defined]
    assert "401 for" in raised.value.details()  # type: ignore[attr-defined]


# The other verbs, as the engine sends them


def test_check_answers_with_all_failures(stub: Any, sweep: Sweep) -> None:
    news = dispatch.to_properties(sweep.box_inputs(max_price=0.1)) | {"sise": 1}
    answer = stub.Check(provider_pb2.CheckRequest(urn=urn(), news=to_struct(news)))
    assert [(f.property, f.reason) for f in answer.failures] == [
        ("sise", "\nsweepstack:index:Box has no input of this name")
    ]
    del news["sise"]
    answer = stub.Check(provider_pb2.CheckRequest(urn=urn(), news=to_struct(news)))
    assert [f.property for f in answer.failures] == ["maxPrice"]
    assert to_python(answer.inputs)["clearance"] == "locked"


def test_the_value_of_a_list_or_an_object_is_not_printed(stub: Any, sweep: Sweep) -> None:
    """Of a property that it is told of, the engine prints the whole value first: with 10,000 cells, megabytes."""
    news = dispatch.to_properties(sweep.box_inputs()) | {"teardown": {"verb": "destroy"}}
    answer = stub.Check(provider_pb2.CheckRequest(urn=urn(), news=to_struct(news)))
    assert {failure.property for failure in answer.failures} == {""}
    assert all(failure.reason.lstrip().startswith("teardown.") for failure in answer.failures)


def test_diff_says_what_replaces_and_that_the_old_one_goes_first(stub: Any, sweep: Sweep) -> None:
    old = dispatch.to_properties(sweep.box_inputs())

    def diff(**changes: Any) -> Any:
        request = provider_pb2.DiffRequest(
            id="x", urn=urn(), olds=to_struct(old), old_inputs=to_struct(old), news=to_struct({**old, **changes})
        )
        return stub.Diff(request)

    some = diff(resources={"cpu": 4}, price_per_hour=1)
    assert (some.changes, set(some.diffs)) == (2, {"resources", "pricePerHour"})
    assert (list(some.replaces), some.deleteBeforeReplace) == (["resources"], True)
    assert {path: part.Kind.Name(part.kind) for path, part in some.detailedDiff.items()} == {
        "resources.cpu": "ADD_REPLACE",
        "pricePerHour": "UPDATE",
    }
    assert not diff(price_per_hour=1).deleteBeforeReplace
    renamed = diff()
    assert (renamed.changes, list(renamed.diffs), list(renamed.replaces)) == (2, ["schema"], []), "names of before"
    old = spelling.outside("sweepstack:index:Box", old)
    none = diff()
    assert (none.changes, list(none.diffs), none.deleteBeforeReplace) == (1, [], False)


def test_a_preview_creates_nothing(stub: Any, sweep: Sweep) -> None:
    answer = create(stub, sweep.box_inputs(), preview=True)
    assert answer.id == ""
    assert sweep.listed() == []


def test_a_timeout_of_the_user_is_the_deadline(stub: Any, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_DRILL_BOOT_SECONDS", "600")
    with pytest.raises(grpc.RpcError) as raised:
        create(stub, sweep.box_inputs(), timeout=0.1)
    assert "within 0.1 s" in failed(raised.value).reasons[0]


def test_a_secret_is_opened_on_its_way_in(stub: Any, sweep: Sweep) -> None:
    inputs = dispatch.to_properties(sweep.box_inputs())
    inputs["name"] = {SIGNATURE_KEY: SECRET_SIGNATURE, "value": "box-0"}
    assert to_python(create(stub, inputs).properties)["name"] == "box-0"


def test_cancel_sets_the_sign(stub: Any, session: Session) -> None:
    stub.Cancel(empty_pb2.Empty())
    assert session.cancelled.is_set()


def test_what_the_engine_asks_first(stub: Any) -> None:
    assert stub.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address="x")).accept_secrets
    assert stub.GetPluginInfo(empty_pb2.Empty()).version == grpc_service.VERSION
    assert json.loads(stub.GetSchema(provider_pb2.GetSchemaRequest()).schema)["name"] == "sweepstack"
    given = to_struct({"a": 1})
    assert to_python(stub.CheckConfig(provider_pb2.CheckRequest(news=given)).inputs) == {"a": 1}
    assert stub.DiffConfig(provider_pb2.DiffRequest()).changes == provider_pb2.DiffResponse.DIFF_NONE
    assert stub.Configure(provider_pb2.ConfigureRequest()).supportsPreview


# Lines to the engine


class Engine(engine_pb2_grpc.EngineServicer):
    """Hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def Log(self, request: Any, context: Any) -> Any:
        self.heard.append(request)
        return empty_pb2.Empty()


def test_lines_reach_the_engine_with_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress replaces itself; nothing is an error beside a success; and no key travels."""
    monkeypatch.setenv("CLOUD_API_KEY", "hunter2hunter2")
    engine = Engine()
    server, address = serving(engine, engine_pb2_grpc.add_EngineServicer_to_server)
    lines = grpc_service.EngineLog(address)
    lines.emit(Severity.PROGRESS, "urn:a", "waiting")
    lines.emit(Severity.INFO, "urn:a", "with hunter2hunter2")
    lines.emit(Severity.WARNING, "urn:b", "LOCKED")
    server.stop(0)
    assert [(line.urn, line.message, line.ephemeral) for line in engine.heard] == [
        ("urn:a", "waiting", True),
        ("urn:a", "with [CLOUD_API_KEY]", False),
        ("urn:b", "LOCKED", False),
    ]
    assert [line.severity for line in engine.heard] == [engine_pb2.INFO, engine_pb2.INFO, engine_pb2.WARNING]
    lines.emit(Severity.WARNING, "urn:b", "the engine is gone: this line is lost, and nothing else")
    lines.close()


def test_the_project_is_found_from_the_program_s_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert grpc_service.project_root(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    (tmp_path / "Pulumi.yaml").touch()
    assert grpc_service.project_root(tmp_path / "a" / "b") == tmp_path


# Lines of a screen


CELLS = tuple(f"optimizeradamw-lr0.000{number}-width512-depth12-dropout0.1-seed{number}" for number in range(20))
BOXES = ("a-box-with-a-rather-long-name-for-a-box0", "a-box-with-a-rather-long-name-for-a-box1")


def below_diagnostics(message: str, first: str = "") -> str:
    """As the engine prints it."""
    return "\n".join(f"    {line}" for line in f"{first}{message}".split("\n"))


def test_a_refusal_of_boxes_and_cells_with_long_names(stub: Any, sweep: Sweep) -> None:
    sweep.roster = CELLS
    boxes = [sweep.box(name) for name in BOXES]
    for box, cells in zip(boxes, (CELLS[:10], CELLS[10:]), strict=True):
        sweep.queue_inputs(box, *cells)
        sweep.hold(*cells)
        sweep.queue(box, *cells)
    for box in boxes:
        with pytest.raises(grpc.RpcError) as raised:
            delete(stub, box)
        said = raised.value.details()  # type: ignore[attr-defined]
        assert said.startswith("REFUSED.\n")
        screen = below_diagnostics(said, "error: ")
        assert "not safe yet" in screen
        assert not too_long(screen), screen


def test_a_line_that_says_locked(sweep: Sweep) -> None:
    """Its first line is empty: without a terminal the engine repeats that on each row of the stack."""
    engine = Engine()
    server, address = serving(engine, engine_pb2_grpc.add_EngineServicer_to_server)
    lines = grpc_service.EngineLog(address)
    box = sweep.box(BOXES[0], price_per_hour=12.5)
    op = Operation(Session(sweep.project, lines.emit), urn(name=BOXES[0]))
    dispatch.read(op, box.native_id, dispatch.to_properties(box), dispatch.to_properties(box))
    lines.emit(Severity.WARNING, "urn", "a box is gone, and " * 10)
    server.stop(0)
    lines.close()
    locked, warning = engine.heard
    assert (locked.urn, locked.ephemeral) == ("", False)
    assert locked.message.startswith(f"\nbox {BOXES[0]} LOCKED: ")
    assert not too_long(below_diagnostics(locked.message)), locked.message
    assert not too_long(below_diagnostics(warning.message, "warning: ")), warning.message


def test_why_an_input_is_refused(stub: Any, sweep: Sweep) -> None:
    sweep.roster = CELLS
    box = sweep.at_work(*CELLS[:2], name=BOXES[0])
    changed = [{"name": name, "params": {"word": '"another"'}} for name in CELLS[:2]]
    olds = dispatch.to_properties(sweep.queue_inputs(box, *CELLS[:2]))
    news = dispatch.to_properties(sweep.queue_inputs(box, cells=changed))
    answer = stub.Check(provider_pb2.CheckRequest(urn=urn("Queue"), olds=to_struct(olds), news=to_struct(news)))
    assert answer.failures
    for failure in answer.failures:
        assert failure.reason.startswith("\n"), "the engine's own words take the first line"
        assert not too_long(below_diagnostics(failure.reason)), failure


def test_why_a_box_is_not_ready(stub: Any, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: Any) -> None:
        raise PlatformError("the platform gave an answer that nothing here understands, and it did so several times")

    box = sweep.box()
    properties = to_struct(dispatch.to_properties(box))
    request = provider_pb2.ReadRequest(id=box.native_id, urn=urn(), properties=properties, inputs=box_inputs(box))
    monkeypatch.setattr(LocalPlatform, "get", get)
    with pytest.raises(grpc.RpcError) as raised:
        stub.Read(request)
    said = raised.value.details()  # type: ignore[attr-defined]
    assert "UNKNOWN" in said
    assert not too_long(below_diagnostics(said, "* ")), said
    assert STACK not in said
