"""Imports all that requests about resources need, at the first such request.

The engine starts the plugin twice, and asks one of the two processes only what it is: that one imports a fifth of this.
"""

from __future__ import annotations

from sweepstack.core.importing import fast_imports

with fast_imports():
    from sweepstack.core.records import Approval
    from sweepstack.provider import dispatch, split_invoke
    from sweepstack.provider.properties import Properties

    for _token in dispatch.HANDLERS:
        dispatch.handler_for(_token)
    Approval.model_rebuild()  # once: a dozen shapes hold it, and the first use of each would build it and what it holds

__all__ = ["Properties", "dispatch", "split_invoke"]
