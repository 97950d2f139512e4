"""The properties of one resource on the wire: both spellings come in, the schema's goes out.

The handlers, and `provider.dispatch` above them, know the names of our models alone (docs/adr/025).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweepstack.core import schema, spelling
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.provider.dispatch import Difference
from sweepstack.provider.grpc_stubs import provider_pb2
from sweepstack.provider.session import Operation, token_of
from sweepstack.provider.wire import to_python, to_struct


@dataclass(frozen=True)
class Properties:
    """What is sent of the resource of this operation."""

    op: Operation

    @property
    def token(self) -> str:
        """The type of the resource."""
        return token_of(self.op.urn)

    def known(self, struct: Any) -> dict[str, Any]:
        """What the engine sent, by the names of our models."""
        return self.inside(to_python(struct))

    def sent(self, values: dict[str, Any]) -> Any:
        """What the engine gets, by the names of the schema."""
        return to_struct(spelling.outside(self.token, values))

    def inside(self, values: dict[str, Any]) -> dict[str, Any]:
        """The same, of what is no struct any more."""
        return spelling.inside(self.token, values)

    def like(self, values: dict[str, Any], before: dict[str, Any]) -> Any:
        """What a refresh says, spelled as `before`, which the engine sent: a refresh alone changes no names."""
        return to_struct(values) if spelling.is_old(self.token, before) else self.sent(values)

    def unfinished(self, outputs: dict[str, Any]) -> Any:
        """The outputs of what is not ready yet: an older version must see that it can't read them."""
        return self.sent(outputs | {schema.KEY: schema.STATE})

    def path(self, inside: str) -> str:
        """The path of a property, as the schema spells it."""
        return spelling.path_outside(self.token, inside)

    def difference(self, found: Difference, before: Sequence[dict[str, Any]]) -> Any:
        """The answer to Diff. An entry with names as before schema 2 is one to update, whose number alone changes: the
        engine keeps outputs that no Update wrote."""
        kinds = provider_pb2.PropertyDiff
        if not found.changed and spelling.is_old(self.token, *before):
            renamed = {schema.KEY: kinds(kind=kinds.UPDATE)}
            changes = provider_pb2.DiffResponse.DIFF_SOME
            return provider_pb2.DiffResponse(
                changes=changes, diffs=list(renamed), detailedDiff=renamed, hasDetailedDiff=True
            )
        details = {}
        for path, kind in found.details:
            replaces = path.partition(".")[0].partition("[")[0] in found.replaces
            details[self.path(path)] = kinds(
                kind=kinds.Kind.Value(f"{kind.value}_REPLACE" if replaces else kind.value), inputDiff=True
            )
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if found.changed else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=[self.path(name) for name in found.changed],
            replaces=[self.path(name) for name in found.replaces],
            deleteBeforeReplace=found.delete_before_replace and bool(found.replaces),
            detailedDiff=details,
            hasDetailedDiff=True,
        )
