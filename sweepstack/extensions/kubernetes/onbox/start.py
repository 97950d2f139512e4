"""What pods start: shipped as `pilot.py` and `worker_state.py`, beside the package that these import."""

from __future__ import annotations

import os
import sys
from importlib import import_module

if __name__ == "__main__":
    name, _ = os.path.splitext(os.path.basename(sys.argv[0]))
    sys.exit(import_module(f"sweepstack.onbox.kubernetes.{name}").main(sys.argv))
