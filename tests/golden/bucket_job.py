"""The job of the golden bucket: it never changes, since a checkpoint belongs to the code that wrote it."""

import os
import sys
import time
from pathlib import Path

checkpoints, out = Path(sys.argv[1]), Path(sys.argv[2])
last = checkpoints / "last.ckpt"
began = step = int(last.read_text()) if last.exists() else 0
print(f"starts at {step}", flush=True)
(checkpoints / "shards").mkdir(exist_ok=True)
while step < 9:
    if step == 7 and not began:
        time.sleep(600)  # in this moment its box was killed
    step += 1
    (checkpoints / "shards" / f"step-{step}").write_text(str(step))
    (checkpoints / "last.tmp").write_text(str(step))
    os.replace(checkpoints / "last.tmp", last)
(out / "result.json").write_text("[]")
