"""vast.ai's SDK without its serverless half, which takes two thirds of its import and is nothing that a box needs.

The SDK leaves that half out where aiohttp is not installed; here it looks as if it were not, while the SDK is imported.
"""

from __future__ import annotations

import sys

_hidden = "aiohttp" not in sys.modules
if _hidden:
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
try:
    from vastai import VastAI
finally:
    if _hidden:
        del sys.modules["aiohttp"]

__all__ = ["VastAI"]
