"""`from provider.invokes import dispatch`: all that requests about resources need, imported at the first of them.

Without collecting garbage in between: what is imported stays, and going through it again and again is a sixth of it.
"""

from __future__ import annotations

import gc

gc.disable()
try:
    from sweepstack.provider import dispatch, sharing

    for _token in dispatch.HANDLERS:
        dispatch.handler_for(_token)
    gc.freeze()
finally:
    gc.enable()

__all__ = ["dispatch", "sharing"]
