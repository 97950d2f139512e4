"""The program that is started on a box: shipped as `runner.py`, beside the package that it imports."""

from __future__ import annotations

import contextlib
import os
import sys

from sweepstack.onbox.runner import main, worker

if __name__ == "__main__":
    result = worker.main(sys.argv) if len(sys.argv) > 3 else main.main(sys.argv)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(result)  # don't wait for a sealer thread that hangs in the durable tier
