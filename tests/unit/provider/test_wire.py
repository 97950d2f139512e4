"""Property values survive the way to the engine and back."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.provider.wire import SECRET_SIGNATURE, SIGNATURE_KEY, UNKNOWN, holds_unknown, to_python, to_struct

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**52), 2**52) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_json_values_come_back_as_they_went(values: dict[str, Any]) -> None:
    """Whole numbers come back as int: the wire knows only doubles."""
    assert to_python(to_struct(values)) == values


def test_unknowns_are_seen_at_any_depth() -> None:
    """A preview must not take a value for known that is not."""
    struct = to_struct({"a": {"b": [1, UNKNOWN]}})
    assert holds_unknown(to_python(struct))
    assert not holds_unknown(to_python(to_struct({"a": {"b": [1]}})))


def test_a_secret_is_opened() -> None:
    """The engine wraps secrets; a handler works with what is inside."""
    inner = to_struct({SIGNATURE_KEY: SECRET_SIGNATURE, "value": "hunter2"})
    struct = struct_pb2.Struct(fields={"key": struct_pb2.Value(struct_value=inner)})
    assert to_python(struct) == {"key": "hunter2"}
