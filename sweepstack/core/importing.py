"""How a process imports a lot at its start."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """What is imported within makes a hundred thousand objects and no garbage: none is looked for, and what is there at
    the end stays. Pydantic looks for no plugins from here on: it would read the metadata of every distribution."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
