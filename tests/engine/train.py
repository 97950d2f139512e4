"""The job of the tests: a tenth of a second, real artifacts, and faults on demand."""

from __future__ import annotations

import argparse
import array
import json
import os
import struct
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--out", type=Path, required=True)
arguments, _ = parser.parse_known_args()
cell = os.environ["SWEEPSTACK_CELL"]
control = Path(os.environ["DRILL_CONTROL"])
print(f"step 1 of {cell}", flush=True)
while (control / f"hold-{cell}").exists():
    time.sleep(0.05)
if (control / f"fail-{cell}").exists():
    sys.exit(f"{cell} was told to fail")

values = array.array("f", [arguments.seed + i / 64 for i in range(256)])
if (control / f"nan-{cell}").exists():
    values[7] = float("nan")
if (control / f"inf-{cell}").exists():
    values[7] = float("inf")
name = "other" if (control / f"wrongkey-{cell}").exists() else "w1"
body = values.tobytes()
header = json.dumps({name: {"dtype": "F32", "shape": [16, 16], "data_offsets": [0, len(body)]}}).encode()
header += b" " * (-len(header) % 8)
if not (control / f"nothing-{cell}").exists():
    (arguments.out / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
(arguments.out / "metrics.json").write_text(json.dumps({"seed": arguments.seed, "loss": 1 / (arguments.seed + 1)}))
print(f"done {cell}", flush=True)
