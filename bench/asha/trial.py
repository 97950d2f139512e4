"""One trial of the digits example, with the time of each epoch: the same code in every way of `bench.asha_bench`.

`train.py` of the example runs as it is. Beside it a file of JSON lines is written: when the training began, and for
each epoch when it was through, its loss, and the processor time of the process until then. Imports neither this
package nor any other, so that it also runs where sweepstack is not installed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = Callable[[dict[str, float]], None]
"""Is told each epoch (`step`, `loss`) when it is through; ends the trial by an exception."""


def run(cell: str, lr: float, seed: int, epochs: int, out: str, notes: str, report: Report) -> None:
    """Trains to the end, in this process. `notes`: the folder in which the file of times is made, under `cell`."""
    import train  # type: ignore[import-not-found]

    with (Path(notes) / cell).open("a") as file:

        def note(**line: Any) -> None:
            file.write(json.dumps({"time": time.time(), "cpu": time.process_time(), **line}) + "\n")
            file.flush()

        class Noted(train.TrainingState):  # type: ignore[misc]
            def load_latest(self) -> int:
                step = int(super().load_latest())
                note(began=step)
                return step

            def after_step(self, step: int) -> None:
                loss = float(self.parts["last"]["loss"])
                note(step=step, loss=loss)
                report({"step": step, "loss": loss})
                super().after_step(step)

        train.TrainingState = Noted
        sys.argv = ["train.py", f"--lr={lr}", f"--seed={seed}", f"--epochs={epochs}", f"--out={out}"]
        train.main()


def quiet_signals() -> None:
    """For a trial in a thread: there Python refuses to set handlers, and what ends the trial is the process's end."""
    signal.signal = lambda *_: None  # type: ignore[assignment]


def main() -> None:
    """A trial that nothing but a signal ends early: of our boxes, and of the full grid."""
    parser = argparse.ArgumentParser()
    for name, kind in (("cell", str), ("lr", float), ("seed", int), ("epochs", int), ("out", str), ("notes", str)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    asked = vars(parser.parse_args())
    run(**asked, report=lambda _: None)


if __name__ == "__main__":
    main()
