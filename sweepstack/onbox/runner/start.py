"""The program that is started on a box: shipped as `runner.py`, beside the package that it imports."""

from __future__ import annotations

import contextlib
import os
import sys

from sweepstack.onbox.runner.main import main

if __name__ == "__main__":
    result = main(sys.argv)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(result)  # don't wait for a sealer thread that hangs in the durable tier
