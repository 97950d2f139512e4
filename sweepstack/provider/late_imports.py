"""Imports all that requests about resources need, at the first such request.

The engine starts the plugin twice, and asks one of the two processes only what it is: that one imports a fifth of this.
"""

from __future__ import annotations

import gc

gc.disable()  # as in `cli.entry`: importing makes a hundred thousand objects, and no garbage

from sweepstack.core.records import Approval  # noqa: E402
from sweepstack.provider import dispatch, split_invoke  # noqa: E402
from sweepstack.provider.properties import Properties  # noqa: E402

for _token in dispatch.HANDLERS:
    dispatch.handler_for(_token)
Approval.model_rebuild()  # once: a dozen shapes hold it, and the first use of each would build it and what it holds
gc.freeze()
gc.enable()

__all__ = ["Properties", "dispatch", "split_invoke"]
