"""Checkpoints that survive being killed at any moment, for training code on a sweepstack box.

    state = TrainingState({"model": model, "optimizer": optimizer, "schedule": schedule})  # all that the run depends on
    metrics = state.metrics(out / "metrics.jsonl")
    for epoch in range(state.load_latest() + 1, epochs + 1):                      # always asked; 0 on a first start
        ...
        metrics.write({"step": epoch, "loss": loss})
        state.after_step(epoch)                                # saves when that pays, and before it obeys a SIGTERM

Killed at any moment and started again by the same command, the run goes on from its newest whole checkpoint and ends
with the bytes of an undisturbed one. Python 3.8+, standard library only; torch and NumPy are used where the training
code has imported them. For files of a format of your own there is `Checkpoint`, on which `TrainingState` stands.
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
"""Mean seconds between two interruptions, where nobody knows better: a spot box."""
RANK = re.compile(r"RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|[A-Z]+_PROCID")
"""Where launchers say which of several processes this is; the last one, where a batch system starts each of them."""
LAST_SAVES = 5


class TrainingState:
    """All that the rest of a run depends on: the parts given, and the random generators of Python, NumPy and torch.

    A part is anything with `state_dict` and `load_state_dict` (models, optimizers, schedulers, scalers, EMA, stateful
    loaders and samplers), a torch or NumPy generator, a `random.Random`, or a dict or list of what pickles. Loading a
    checkpoint changes them in place.

    Several ranks: all make one, over one folder, and call its methods at the same steps. Rank 0 saves its parts for
    all, with every rank's random generators where torch.distributed is at work. Of parameters that are spread over
    ranks that is one share only: use torch.distributed.checkpoint for those. A checkpoint is a pickle: load only what
    your job wrote.
    """

    def __init__(
        self,
        parts: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        *,
        every: int = 1,
        between_losses: float = BETWEEN_LOSSES,
    ) -> None:
        """`directory`: as for `Checkpoint`. `every`: at which steps a save is possible (epochs, accumulated batches).
        `between_losses`: mean seconds between interruptions. From now on SIGTERM sets `stop`, so call it in the main
        thread. Raises TypeError for a part whose state can't be kept."""
        self.parts = dict(parts)
        for name, part in self.parts.items():
            _access(name, part)
        self.checkpoint, self.interval, self.stop = Checkpoint(directory), Interval(between_losses, every), stop_flag()
        ranks = {name: value for name, value in os.environ.items() if RANK.fullmatch(name) and value.isdigit()}
        self.rank = int(ranks.get("RANK", next(iter(ranks.values()), 0)))
        self._at, self._since = 0, time.monotonic()

    def metrics(self, path: str | os.PathLike[str]) -> Metrics:
        """A file of JSON lines that is part of the state. To be called before `load_latest`. Rank 0 writes it."""
        self.parts[f"metrics {Path(path).name}"] = part = Metrics(path) if self.rank == 0 else NoMetrics()
        return part

    def load_latest(self) -> int:
        """Takes up the newest whole checkpoint. Returns its step, 0 when there is none. One path for every start.

        Raises RuntimeError when it is of other parts, or when ranks see different ones."""
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
        """Whether a save at the end of this step pays, by what steps and saves were measured to take."""
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
        """To be called at the end of every step: saves when that pays. After a SIGTERM it saves and raises
        SystemExit(143), at the first step at which a save is possible."""
        if step % self.interval.every:
            return
        stop, due = self._agreed((bool(self.stop), self.due(step)))
        if stop or due:
            self.save(step)
        if stop:
            sys.exit(128 + signal.SIGTERM)

    @staticmethod
    def _agreed(answer: Any) -> Any:
        """Rank 0's answer, where ranks train together: each by its own clock would save at another step."""
        distributed, box = _distributed(), [answer]
        if distributed is not None:
            distributed.broadcast_object_list(box, src=0)
        return box[0]


class Interval:
    """When a save pays: every sqrt(2 · mu · C) seconds (Young/Daly), for mu seconds between interruptions and C for a
    save, as measured. Rounded down to steps at which a save is possible."""

    def __init__(self, between_losses: float = BETWEEN_LOSSES, every: int = 1) -> None:
        if between_losses <= 0 or every < 1:
            raise ValueError("between_losses is in seconds, above 0; every is in steps, 1 or more")
        self.between_losses, self.every = between_losses, every
        self._saves: list[float] = []

    @property
    def seconds(self) -> float:
        """The interval; 0 while no save was measured, so that the first comes early."""
        return math.sqrt(2 * self.between_losses * statistics.median(self._saves)) if self._saves else 0.0

    def steps(self, step_seconds: float) -> int:
        """The interval in steps of that length: a multiple of `every`, at least one."""
        whole = int(self.seconds / step_seconds) if step_seconds > 0 else self.every
        return max(self.every, whole - whole % self.every)

    def saved(self, seconds: float) -> None:
        """A save took so long. The last few count: the first one may have warmed something up."""
        self._saves = [*self._saves, seconds][-LAST_SAVES:]

    def due(self, step: int, saved_step: int, took: float) -> bool:
        """At the end of `step`, `took` seconds after that of `saved_step` was saved."""
        done = step - saved_step
        return step % self.every == 0 and done > 0 and (not self._saves or done >= self.steps(took / done))


class Metrics:
    """A file of JSON lines, one a step. Its content is part of a checkpoint: a run that goes on begins with exactly the
    lines that were written before it, whatever came after them or became of the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "wb")  # noqa: SIM115 - open as long as the run
        self._packer, self._packed = zlib.compressobj(1), bytearray()

    def write(self, line: dict[str, Any]) -> None:
        """Appends one line; whoever watches sees it at once."""
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self._packed += self._packer.compress(data)

    def state_dict(self) -> dict[str, Any]:
        """What was written so far, packed."""
        self._packed += self._packer.flush(zlib.Z_SYNC_FLUSH)
        return {"bytes": self._file.tell(), "packed": bytes(self._packed)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the file what it was: cut back where it lies, written anew where it is gone."""
        content = zlib.decompressobj().decompress(state["packed"])
        if len(content) != state["bytes"]:
            raise ValueError(f"{self.path}: the checkpoint holds {len(content)} bytes of it, and says {state['bytes']}")
        self._file.seek(0)
        self._file.truncate()
        self._packer, self._packed = zlib.compressobj(1), bytearray()
        self._append(content)


class NoMetrics(Metrics):
    """What the other ranks have: rank 0 writes the file."""

    def __init__(self) -> None:
        pass

    def write(self, line: dict[str, Any]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class StopFlag:
    """True once a signal came."""

    def __init__(self) -> None:
        self._came = False

    def __bool__(self) -> bool:
        return self._came

    def set(self, *_: Any) -> None:
        """What the signal does, and nothing else: saving is for the end of a step."""
        self._came = True


def stop_flag(*numbers: int) -> StopFlag:
    """A flag that SIGTERM (or the given signals) sets. Call it from the main thread, before training begins."""
    flag = StopFlag()
    for number in numbers or (signal.SIGTERM,):
        signal.signal(number, flag.set)
    return flag


# -- the states of parts and libraries


def _access(name: str, part: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """How the state of a part is taken and put back. Raises TypeError."""
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
"""By a member that only this kind has: how to take its state, and how to put it back in place."""


def _random() -> dict[str, Any]:
    """The generators of the libraries that this process has imported."""
    found: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        found["numpy"] = numpy.random.get_state()
    if torch is not None:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():  # asking for them would do it, and that belongs to the job
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
    """`mine` of every rank that trains together with this one, by rank."""
    distributed = _distributed()
    if distributed is None:
        return [mine]
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    return everyone


def _distributed() -> Any:
    """torch.distributed, where this process trains together with others."""
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
    """What `_write` wrote. Tensors come back in memory, and go to their devices as parts take them over."""
    with open(path, "rb") as handle:
        if handle.read(2) != b"PK":  # torch writes zip files
            handle.seek(0)
            return dict(pickle.load(handle))
    import torch

    return dict(torch.load(path, map_location="cpu", weights_only=False))
