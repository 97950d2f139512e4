"""Imports vast.ai's SDK without its serverless half.

That half takes two thirds of the import time, and boxes do not need it. The SDK leaves it out when aiohttp is not
installed, so this module hides aiohttp during the import.
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
