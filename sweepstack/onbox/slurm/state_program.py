"""The program that says whether a worker may still run: shipped as `worker_state.py`."""

from __future__ import annotations

import sys

from sweepstack.onbox.slurm.worker_state import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
