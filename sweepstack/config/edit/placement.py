"""Puts the `placement` block into a stack file, or takes it out: every other byte stays as a person wrote it."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.edit.text import spliced
from sweepstack.onbox.common.errors import ConfigError

HEADER = "# Written by `sweepctl place`; without it `pulumi up` chooses anew."
KEY = "placement"


def write_placement(file: StackFile, placement: dict[str, Any] | None) -> bool:
    """Writes the block (`sweepstack.config.rent.Placement` as plain values), or takes it out. False: nothing changed.

    Idempotent. Raises ConfigError, and then nothing was written.
    """

    def change(text: str) -> str:
        after = spliced(text, KEY, HEADER, _block(placement) if placement is not None else None)
        if after is None:
            raise ConfigError("config.sweepstack:sweep is not in block style, one key a line")
        return after

    def wanted(sweep: dict[str, Any]) -> dict[str, Any]:
        rest = {key: value for key, value in sweep.items() if key != KEY}
        return rest if placement is None else {**rest, KEY: placement}

    return file.edit(change, wanted, f"{KEY}: {placement}" if placement is not None else f"take {KEY} out")


def _block(placement: dict[str, Any]) -> list[str]:
    rows = CommentedMap()
    for name, placed in placement["boxes"].items():
        row = CommentedMap((key, _quoted(value)) for key, value in placed.items())
        row.fa.set_flow_style()
        rows[name] = row
    plain = CommentedMap(platform=placement["platform"], boxes=rows, at=_quoted(placement["at"]))
    out = io.StringIO()
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 1 << 16
    yaml.dump(CommentedMap({KEY: plain}), out)
    return [HEADER, *out.getvalue().rstrip("\n").split("\n")]


def _quoted(value: Any) -> Any:
    """Text in quotes: an offer's key may look like a number, and a time would become one."""
    return DoubleQuotedScalarString(value) if isinstance(value, str) else value
