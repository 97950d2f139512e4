"""How the engine marks a secret value, in a state as on the wire: a map with a reserved key.

The Pulumi SDK defines it (`pulumi/runtime/rpc.py`, `_special_sig_key`).
"""

from __future__ import annotations

from typing import Final

SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
