"""The program that a task starts: shipped as `pilot.py`, beside the package that it imports."""

from __future__ import annotations

import sys

from sweepstack.onbox.slurm.pilot import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
