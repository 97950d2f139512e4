"""Checkpoints for training code on a sweepstack box: the run may be killed at any moment and goes on.

    state = TrainingState({"model": model, "optimizer": optimizer, "schedule": schedule})  # all parts of the state
    metrics = state.metrics(out / "metrics.jsonl")
    for epoch in range(state.load_latest() + 1, epochs + 1):                      # always asked; 0 on a first start
        ...
        metrics.write({"step": epoch, "loss": loss})
        state.after_step(epoch)                                # saves when it is due, and before it exits upon SIGTERM

When the run is killed and the same command starts it again, it goes on from its newest whole checkpoint and ends with
the same bytes as a run that was never killed. Python 3.8+, standard library only; torch and NumPy are used if the
training code has imported them. For files in your own format use `Checkpoint`, which `TrainingState` uses, too.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import re
import signal
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweepstack_files import Checkpoint

__all__ = ["Checkpoint", "Interval", "Metrics", "StopFlag", "TrainingState", "stop_flag"]

BETWEEN_LOSSES = 3 * 3600.0
"""Mean seconds between two interruptions, as on a spot box: the default."""
RANK = re.compile(r"RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|[A-Z]+_PROCID")
"""Variables in which launchers give a process its rank; the last form is for batch systems that start each process."""
LAST_SAVES = 5


class TrainingState:
    """The state of a run: the given parts, and the random generators of Python, NumPy and torch.

    A part is anything with `state_dict` and `load_state_dict` (models, optimizers, schedulers, scalers, EMA, stateful
    loaders and samplers), a torch or NumPy generator, a `random.Random`, or a dict or list of picklable values. Loading
    a checkpoint changes them in place.

    Several ranks: each makes one with the same folder, and calls its methods at the same steps. Rank 0 saves its parts
    for all, with every rank's random generators if torch.distributed is initialized. If parameters are sharded over
    ranks, this would save one shard only: use torch.distributed.checkpoint for those. A checkpoint is a pickle: load
    only what your job wrote.
    """

    def __init__(
        self,
        parts: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        *,
        every: int = 1,
        between_losses: float = BETWEEN_LOSSES,
    ) -> None:
        """`directory`: as for `Checkpoint`. `every`: a save is possible at multiples of so many steps (epochs,
        accumulated batches). `between_losses`: mean seconds between interruptions. From now on SIGTERM sets `stop`, so
        call it in the main thread. Raises TypeError for a part whose state can't be saved."""
        self.parts = dict(parts)
        for name, part in self.parts.items():
            _access(name, part)
        self.checkpoint, self.interval, self.stop = Checkpoint(directory), Interval(between_losses, every), stop_flag()
        ranks = {name: value for name, value in os.environ.items() if RANK.fullmatch(name) and value.isdigit()}
        self.rank = int(ranks.get("RANK", next(iter(ranks.values()), 0)))
        self._at, self._since = 0, time.monotonic()

    def metrics(self, path: str | os.PathLike[str]) -> Metrics:
        """A file of JSON lines that is part of the state. Call it before `load_latest`. Only rank 0 writes it."""
        self.parts[f"metrics {Path(path).name}"] = part = Metrics(path) if self.rank == 0 else NoMetrics()
        return part

    def load_latest(self) -> int:
        """Loads the newest whole checkpoint. Returns its step, 0 when there is none, so call it at every start.

        Raises RuntimeError when it has other parts, or when ranks see different checkpoints."""
        path = self.checkpoint.load_latest()
        step = 0
        if path is not None:
            saved = _read(path)
            step = saved["step"]
            if set(saved["parts"]) != set(self.parts):
                raise RuntimeError(f"{path} is of {sorted(saved['parts'])}, and the run has {sorted(self.parts)}")
            for name, part in self.parts.items():
                _access(name, part)[1](part, saved["parts"][name])
            if self.rank < len(saved["random"]):
                _set_random(saved["random"][self.rank])
        if self._agreed(step) != step:
            raise RuntimeError(
                f"rank {self.rank} sees a checkpoint of step {step}, and rank 0 another: share the folder"
            )
        self._at, self._since = step, time.monotonic()
        return int(step)

    def due(self, step: int) -> bool:
        """Whether a save at the end of this step is worth its time, from the measured times of steps and saves."""
        return self.interval.due(step, self._at, time.monotonic() - self._since)

    def save(self, step: int) -> None:
        """Makes the state at the end of this step the newest checkpoint. Blocks until it is on the disk."""
        begun = time.monotonic()
        everyone = _gathered(_random())
        if self.rank == 0:
            parts = {name: _access(name, part)[0](part) for name, part in self.parts.items()}
            state = {"step": step, "parts": parts, "random": everyone}
            self.checkpoint.save(lambda path: _write(path, state), step)
        self._at, self._since = step, time.monotonic()
        self.interval.saved(self._since - begun)

    def after_step(self, step: int) -> None:
        """Call it at the end of every step: saves when a save is due. After a SIGTERM it saves at the first step at
        which that is possible, and raises SystemExit(143)."""
        if step % self.interval.every:
            return
        stop, due = self._agreed((bool(self.stop), self.due(step)))
        if stop or due:
            self.save(step)
        if stop:
            sys.exit(128 + signal.SIGTERM)

    @staticmethod
    def _agreed(answer: Any) -> Any:
        """Rank 0's answer on all ranks: by their own clocks they would save at different steps."""
        distributed, box = _distributed(), [answer]
        if distributed is not None:
            distributed.broadcast_object_list(box, src=0)
        return box[0]


class Interval:
    """When a save is due: every sqrt(2 · mu · C) seconds (Young/Daly), with mu seconds between interruptions and C
    seconds for a save, as measured. Rounded down to steps at which a save is possible."""

    def __init__(self, between_losses: float = BETWEEN_LOSSES, every: int = 1) -> None:
        if between_losses <= 0 or every < 1:
            raise ValueError("between_losses is in seconds, above 0; every is in steps, 1 or more")
        self.between_losses, self.every = between_losses, every
        self._saves: list[float] = []

    @property
    def seconds(self) -> float:
        """The interval in seconds; 0 before the first save, so that it comes early."""
        return math.sqrt(2 * self.between_losses * statistics.median(self._saves)) if self._saves else 0.0

    def steps(self, step_seconds: float) -> int:
        """The interval in steps of that length: a multiple of `every`, at least one."""
        whole = int(self.seconds / step_seconds) if step_seconds > 0 else self.every
        return max(self.every, whole - whole % self.every)

    def saved(self, seconds: float) -> None:
        """Notes that a save took `seconds`. Only the last few count: the first one may be slower."""
        self._saves = [*self._saves, seconds][-LAST_SAVES:]

    def due(self, step: int, saved_step: int, took: float) -> bool:
        """Whether a save is due at the end of `step`, `took` seconds after the save of `saved_step`."""
        done = step - saved_step
        return step % self.every == 0 and done > 0 and (not self._saves or done >= self.steps(took / done))


class Metrics:
    """A file of JSON lines, one for each step. Its content is part of a checkpoint: a run that goes on from it begins
    with exactly the lines that were written before, even if the file was changed or deleted since."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "wb")  # noqa: SIM115 - open as long as the run
        self._packer, self._packed = zlib.compressobj(1), bytearray()

    def write(self, line: dict[str, Any]) -> None:
        """Appends one line and flushes it, so that readers see it at once."""
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self._packed += self._packer.compress(data)

    def state_dict(self) -> dict[str, Any]:
        """The file's content so far, compressed."""
        self._packed += self._packer.flush(zlib.Z_SYNC_FLUSH)
        return {"bytes": self._file.tell(), "packed": bytes(self._packed)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Writes the saved content back: the file is truncated and written again."""
        content = zlib.decompressobj().decompress(state["packed"])
        if len(content) != state["bytes"]:
            raise ValueError(f"{self.path}: the checkpoint holds {len(content)} bytes of it, and says {state['bytes']}")
        self._file.seek(0)
        self._file.truncate()
        self._packer, self._packed = zlib.compressobj(1), bytearray()
        self._append(content)


class NoMetrics(Metrics):
    """The metrics of ranks other than 0: they write nothing."""

    def __init__(self) -> None:
        pass

    def write(self, line: dict[str, Any]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class StopFlag:
    """True after the signal came."""

    def __init__(self) -> None:
        self._came = False

    def __bool__(self) -> bool:
        return self._came

    def set(self, *_: Any) -> None:
        """The signal's handler: only sets the flag; the save happens at the end of a step."""
        self._came = True


def stop_flag(*numbers: int) -> StopFlag:
    """A flag that SIGTERM (or the given signals) sets. Call it from the main thread, before training begins."""
    flag = StopFlag()
    for number in numbers or (signal.SIGTERM,):
        signal.signal(number, flag.set)
    return flag


# -- the states of parts and libraries


def _access(name: str, part: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """The functions that read and restore a part's state. Raises TypeError when there are none."""
    for member, take, put in _KINDS:
        if hasattr(part, member):
            return take, put
    raise TypeError(
        f"{name}: the state of a {type(part).__name__} can't be kept. Give something with state_dict and "
        f"load_state_dict, a random generator, or a dict or list that holds it"
    )


def _put_dict(part: dict[Any, Any], saved: dict[Any, Any]) -> None:
    part.clear()
    part.update(saved)


_KINDS: tuple[tuple[str, Callable[[Any], Any], Callable[[Any, Any], Any]], ...] = (
    ("load_state_dict", lambda part: part.state_dict(), lambda part, saved: part.load_state_dict(saved)),
    (
        "bit_generator",
        lambda part: part.bit_generator.state,
        lambda part, saved: setattr(part.bit_generator, "state", saved),
    ),
    ("setstate", lambda part: part.getstate(), lambda part, saved: part.setstate(saved)),
    ("set_state", lambda part: part.get_state(), lambda part, saved: part.set_state(saved)),
    ("popitem", dict, _put_dict),
    ("extend", list, lambda part, saved: part.__setitem__(slice(None), saved)),
)
"""Kinds of parts: a method that only this kind has; how to read its state; how to restore it in place."""


def _random() -> dict[str, Any]:
    """The states of the random generators of the libraries that this process has imported."""
    found: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        found["numpy"] = numpy.random.get_state()
    if torch is not None:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():  # get_rng_state_all would initialize CUDA, which is the job's to do
            found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def _set_random(saved: dict[str, Any]) -> None:
    random.setstate(saved["python"])
    if "numpy" in saved:
        import numpy

        numpy.random.set_state(saved["numpy"])
    if "torch" in saved:
        import torch

        torch.set_rng_state(saved["torch"])
        for device, state in enumerate(
            saved.get("cuda", [])[: torch.cuda.device_count()]
        ):  # another box may have fewer
            torch.cuda.set_rng_state(state, device)


def _gathered(mine: dict[str, Any]) -> list[dict[str, Any]]:
    """`mine` of all ranks, in the order of the ranks."""
    distributed = _distributed()
    if distributed is None:
        return [mine]
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    return everyone


def _distributed() -> Any:
    """torch.distributed if it is initialized, else None."""
    found = getattr(sys.modules.get("torch"), "distributed", None)
    return found if found is not None and found.is_available() and found.is_initialized() else None


def _write(path: Path, state: dict[str, Any]) -> None:
    torch = sys.modules.get("torch")
    with open(path, "wb") as handle:
        if torch is not None:
            torch.save(state, handle)
        else:
            pickle.dump(state, handle, protocol=4)


def _read(path: Path) -> dict[str, Any]:
    """Reads what `_write` wrote. Tensors are loaded into main memory; each part copies them to its device."""
    with open(path, "rb") as handle:
        if handle.read(2) != b"PK":  # torch writes zip files
            handle.seek(0)
            return dict(pickle.load(handle))
    import torch

    return dict(torch.load(path, map_location="cpu", weights_only=False))
