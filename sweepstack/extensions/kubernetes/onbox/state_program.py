"""The program that says whether a worker may still run: shipped as `worker_state.py`."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module("sweepstack.onbox.kubernetes.worker_state").main(sys.argv))
