"""The program that a worker's pod starts: shipped as `pilot.py`, beside the package that it imports."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module("sweepstack.onbox.kubernetes.pilot").main(sys.argv))
