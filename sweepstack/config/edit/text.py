"""The text of a stack config, edited by line: what a person laid out stays as it is.

A dump by any YAML writer would align, fold and quote anew, and the diff of a pull request would show it.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from sweepstack.core.records import Approval

ROOT_KEY = "sweepstack:sweep"
STORE_KEY = "sweepstack:store"
HEADER = "# Written by `sweepctl approve`; `sweepctl approve --revoke` takes it out."
_UNFOLDED = 1 << 16


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds" if moment.microsecond else "seconds")[:-6] + "Z"


def _plain(approval: Approval) -> CommentedMap:
    """The approval as YAML nodes: times quoted, since YAML would make something of them; one line a row."""
    raw = approval.model_dump(mode="json")
    raw |= {key: DoubleQuotedScalarString(_time(getattr(approval, key))) for key in ("at", "expires")}
    order = ["receipt", "actions", "waive", "abandon", "waivers_digest", "by", "at", "expires"]
    plain = CommentedMap((key, raw[key]) for key in [*order, *(key for key in raw if key not in order)])
    for key in ("actions", "waive", "abandon"):
        if not plain[key]:
            del plain[key]
            continue
        rows = []
        for row in plain[key]:
            mapping = CommentedMap(row)
            mapping.fa.set_flow_style()
            rows.append(mapping)
        plain[key] = rows
    if "actions" not in plain:
        plain.insert(1, "actions", [])
    return plain


def _writer() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = _UNFOLDED
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))
    return yaml


def approval_block(approval: Approval) -> list[str]:
    """The lines of the block, not indented yet."""
    out = io.StringIO()
    _writer().dump(CommentedMap(approval=_plain(approval)), out)
    return [HEADER, *out.getvalue().rstrip("\n").split("\n")]


def dumped(text: str, approval: Approval | None, root: str = ROOT_KEY) -> str:
    """The approval put in, or taken out, by round trip: where the file has no lines of its own."""
    yaml = _writer()
    data = yaml.load(text)
    sweep = data["config"][root]
    sweep.pop("approval", None)
    if approval is not None:
        sweep["approval"] = _plain(approval)
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def spliced(text: str, name: str, header: str, block: list[str] | None, root: str = ROOT_KEY) -> str | None:
    """`text` with the lines of the key `name`, and the comment `header` above it, replaced by `block` at the end of the
    sweep; None where it has no lines of its own."""
    sweep = node(node(YAML(typ="rt", pure=True).compose(text), "config"), root)
    if sweep is None or sweep.flow_style or not sweep.value:
        return None
    lines = text.split("\n")
    column = sweep.value[0][0].start_mark.column
    keys = [(key.value, key.start_mark.line) for key, _ in sweep.value]
    end = _end_of(lines, keys[-1][1], sweep.end_mark.line, column)
    starts = [line for _, line in keys] + [end]
    for index, (key, first) in enumerate(keys):
        if key == name:
            last = _end_of(lines, first, starts[index + 1], column + 1)
            if first > 0 and lines[first - 1].strip() == header:
                first -= 1
            del lines[first:last]
            end -= last - first
            break
    if block is not None:
        lines[end:end] = [" " * column + line for line in block]
        if end == len(lines) - len(block):
            lines.append("")
    return "\n".join(lines)


def want_spliced(text: str, box: str, want: str) -> str | None:
    """`text` with the value of `boxes.<box>.want` replaced where it stands; None where there is none to replace."""
    boxes = node(node(node(YAML(typ="rt", pure=True).compose(text), "config"), ROOT_KEY), "boxes")
    return value_spliced(text, node(boxes, box), "want", want)


def value_spliced(text: str, mapping: MappingNode | None, name: str, new: str) -> str | None:
    """`text` with the plain value of one key replaced where it stands; None where there is none on one line."""
    for key, value in mapping.value if mapping is not None else ():
        if key.value == name and isinstance(value, ScalarNode):
            lines = text.split("\n")
            start, end = value.start_mark, value.end_mark
            if start.line == end.line:
                line = lines[start.line]
                lines[start.line] = line[: start.column] + new + line[end.column :]
                return "\n".join(lines)
    return None


def want_dumped(text: str, box: str, want: str) -> str:
    """The same by round trip, for a box without a `want` of its own."""
    yaml = _writer()
    data = yaml.load(text)
    boxes = data["config"][ROOT_KEY]["boxes"]
    if boxes[box] is None:
        boxes[box] = CommentedMap()
    boxes[box]["want"] = want
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def _end_of(lines: list[str], first: int, limit: int, column: int) -> int:
    """One past the last line below `first` and before `limit` that is content, or a comment indented to `column`."""
    limit = min(limit if limit > first else first + 1, len(lines))
    while limit > first + 1:
        line = lines[limit - 1]
        indented = len(line) - len(line.lstrip())
        if line.strip() and not (line.lstrip().startswith("#") and indented < column):
            break
        limit -= 1
    return limit


def node(parent: Node | None, key: str) -> MappingNode | None:
    if not isinstance(parent, MappingNode):
        return None
    for name, value in parent.value:
        if isinstance(name, ScalarNode) and name.value == key and isinstance(value, MappingNode):
            return value
    return None
