"""A cell that begins where another one ended: how its parameters, its line, and its records say so.

`from: CELL` of the stack file is the parameter `SOURCE` of the cell, and so a part of its identity. A line of a queue,
the journal and the manifest say under `FROM` which sealed copy it is: `{cell, manifest}`.
"""

from __future__ import annotations

from sweepstack.onbox.common.canonical import hex_of

FROM = "from"
SOURCE = "@from"
"""No person can write a parameter of this name."""
MARK = ".begun-from.json"
"""A file in a folder of checkpoints: the sealed copy that it began from."""


def sent_name(manifest: str) -> str:
    """The name of a copy that was sent to a cell, in its folder of checkpoints."""
    return f"{hex_of(manifest)[:16]}.sent"
