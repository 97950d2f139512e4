"""A cell that begins where another one ended: how its parameters, its line, and its records say so.

`from: CELL` of the stack file is the parameter `SOURCE` of the cell, and so a part of its identity. A line of a queue,
the journal and the manifest say under `FROM` which sealed copy it is: `{cell, manifest}`.
"""

from __future__ import annotations

FROM = "from"
SOURCE = "@from"
"""No person can write a parameter of this name."""
MARK = ".begun-from.json"
"""A file in a folder of checkpoints: the sealed copy that it began from."""
