"""What a Pulumi program of this package calls: a sweep or volumes, and one message for an error.

Imports next to nothing: the parts come in once the engine was asked for the plugin (`components.early_plugin`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components import early_plugin, screen
from sweepstack.core.importing import fast_imports
from sweepstack.core.printable import MESSAGE_SHOWN, visible
from sweepstack.onbox.common.errors import SweepstackError

if TYPE_CHECKING:
    from components.store import Store
    from components.sweep import Sweep


@contextmanager
def one_message() -> Iterator[None]:
    """Turns our own errors into the engine's: the message, no traceback.

    Restores SIGINT's default first. When a run ends in an error, the engine closes the language host by SIGINT while
    this program still waits for answers; Python would turn that into KeyboardInterrupt, wait for those threads, and
    hold the command up until it is killed 5 s later (seen in 9 of 15 failing runs; 0 of 20 with this line). Ctrl-C at a
    terminal goes to the engine, not here.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except SweepstackError as error:
        screen.fail(visible(str(error), keep="\n\t"))
        sys.exit(MESSAGE_SHOWN)


def program(project_root: Path, inputs: Mapping[str, Any] | None = None, *, store: bool = False) -> Sweep | Store:
    """What the stack's config describes, as resources: a sweep, or the volumes that outlive sweeps.

    `inputs`: the keys of the sweep (of the volumes: `store`) where the program declares it, and no stack file does.
    """
    early_plugin.start()
    with fast_imports():
        from components.from_config import whole
    return whole(project_root, inputs, store=store)
