"""All that requests about resources need: imported at the first of them.

The engine starts the plugin twice, and asks one of the two only what it is: that one imports a fifth of it.
"""

from __future__ import annotations

from sweepstack.provider import dispatch, sharing

for _token in dispatch.HANDLERS:
    dispatch.handler_for(_token)

__all__ = ["dispatch", "sharing"]
