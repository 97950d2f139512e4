"""What is started on a box, as `runner.py` beside the package that was shipped with it."""

from __future__ import annotations

import contextlib
import os
import sys

from sweepstack.onbox.runner.main import main

if __name__ == "__main__":
    result = main(sys.argv)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(result)  # a sealer that is stuck in the durable tier must not keep the runner alive
