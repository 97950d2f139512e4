"""What pods start: shipped as `pilot.py` and `worker_state.py`, beside the package that these import."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.exit(import_module(f"sweepstack.onbox.kubernetes.{Path(sys.argv[0]).stem}").main(sys.argv))
