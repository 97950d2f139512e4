"""Draws the next cell by the file, the seed and the lines of the log, and by nothing else.

`random` and `sobol` go by seed and number alone. Optuna's samplers are given what the log says of earlier cells, in a
study that is made anew for each draw, so that a process which ended takes nothing with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from sweepstack.config.search import SearchAxis, SearchConfig
from sweepstack.core.cells import Param
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.onbox.common.priority import same

TRIES = 20
"""So often a cell that was drawn before is drawn again: a space of few cells is used up at some time."""
DIGITS = 6
"""Of a number that is drawn: it stands in command lines and tables."""

Params = dict[str, Any]


def first(search: SearchConfig) -> list[Params]:
    """The cells that a sweep begins with, by the file alone. Those of samplers that learn are random: they know nothing
    yet."""
    known: list[Params] = []
    for number in range(min(search.at_once, search.at_most.cells)):
        known.append(drawn(search, number, known))
    return known


def suggest(search: SearchConfig, log: SearchLog) -> Step:
    """The line that draws the next cell. Raises nothing for an odd history; blocks for as long as the sampler thinks,
    seconds at most."""
    known = [step.params for step in log.suggested.values()]
    number = len(known)
    if search.learns and number >= min(search.at_once, search.at_most.cells):
        params = _asked(search, log, number)
    else:
        params = drawn(search, number, known)
    return Step(kind="suggested", cell=f"s{number}", number=number, params=params)


def drawn(search: SearchConfig, number: int, known: Sequence[Params]) -> Params:
    """Cell `number` by seed and number. One that is `known` is drawn again, as often as `TRIES`; then it may stand
    there twice, under another name."""
    if search.sampler == "sobol":
        return _at(search, dict(zip(search.axes, _sobol(search, number), strict=True)))
    params: Params = {}
    for again in range(TRIES):
        source = random.Random(f"{search.seed}/{number}/{again}")
        params = _at(search, {name: source.random() for name in search.axes})
        if not any(_alike(params, one) for one in known):
            break
    return params


def _sobol(search: SearchConfig, number: int) -> list[float]:
    from scipy.stats import qmc  # type: ignore[import-untyped]

    engine = qmc.Sobol(len(search.axes), scramble=True, seed=search.seed)
    if number:
        engine.fast_forward(number)
    return [float(value) for value in engine.random(1)[0]]


def _at(search: SearchConfig, places: Mapping[str, float]) -> Params:
    """The cell at these places, each from 0 to below 1. Each axis has its own place, also where it is not drawn, so
    that a condition changes nothing of the others."""
    params: Params = {}
    for name, axis in search.axes.items():
        if axis.fits(params):
            params[name] = _value(axis, places[name])
    return params


def _value(axis: SearchAxis, place: float) -> Param:
    least, most = axis.ends
    if axis.choice is not None:
        return _param(axis.choice[min(int(place * len(axis.choice)), len(axis.choice) - 1)])
    if axis.kind == "int" or axis.step is not None:
        step, last = axis.step or 1, _steps(axis)
        return number_of(axis, least + step * min(int(place * (last + 1)), last))
    if axis.kind == "log_int":
        low, high = math.log(least - 0.5), math.log(most + 0.5)
        return number_of(axis, round(math.exp(low + (high - low) * place)))
    if axis.kind == "log_uniform":
        low, high = math.log(least), math.log(most)
        return number_of(axis, math.exp(low + (high - low) * place))
    return number_of(axis, least + (most - least) * place)


def number_of(axis: SearchAxis, value: float) -> int | float:
    """A number as a cell has it: within the ends, whole or with few digits."""
    least, most = axis.ends
    held = min(max(value, least), most)
    if axis.kind in ("int", "log_int"):
        return int(held)
    return min(max(float(f"{held:.{DIGITS}g}"), least), most)


def _param(value: Any) -> Param:
    assert isinstance(value, str | int | float)
    return value


def _alike(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)


def _asked(search: SearchConfig, log: SearchLog, number: int) -> Params:
    """What Optuna's sampler asks for next, by what the log says of earlier cells."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = random.Random(f"{search.seed}/{number}").getrandbits(32)
    samplers: dict[str, Any] = {"tpe": optuna.samplers.TPESampler, "nsgaii": optuna.samplers.NSGAIISampler}
    study = optuna.create_study(sampler=samplers[search.sampler](seed=seed), direction=search.goal)
    for cell, step in log.suggested.items():
        params = {name: value for name, value in step.params.items() if name in search.axes}
        if all(_holds(search.axes[name], value) for name, value in params.items()):  # else of an earlier space
            study.add_trial(_trial(search, log, cell, params))
    trial = study.ask()
    found: Params = {}
    for name, axis in search.axes.items():
        if axis.fits(found):
            found[name] = _of_trial(trial, name, axis)
    return found


def _trial(search: SearchConfig, log: SearchLog, cell: str, params: Params) -> Any:
    from optuna.trial import TrialState, create_trial

    known: dict[str, Any] = {
        "params": params,
        "distributions": {name: _distribution(search.axes[name]) for name in params},
    }
    scored, pruned = log.scored.get(cell), log.pruned.get(cell)
    if scored is not None and scored.value is not None:
        return create_trial(state=TrialState.COMPLETE, value=scored.value, **known)
    if pruned is not None and pruned.value is not None:
        return create_trial(
            state=TrialState.PRUNED, intermediate_values={round(pruned.rung or 0): pruned.value}, **known
        )
    return create_trial(state=TrialState.RUNNING if scored is None else TrialState.FAIL, **known)


def _distribution(axis: SearchAxis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    least, most = axis.ends[0], _last(axis)
    if axis.choice is not None:
        return CategoricalDistribution(axis.choice)
    if axis.kind in ("int", "log_int"):
        return IntDistribution(int(least), int(most), log=axis.kind == "log_int", step=int(axis.step or 1))
    return FloatDistribution(least, most, log=axis.kind == "log_uniform", step=axis.step)


def _steps(axis: SearchAxis) -> int:
    """How many steps there are from its least to the last that is drawn; of 1, where it names none."""
    least, most = axis.ends
    return math.floor((most - least) / (axis.step or 1) + 1e-9)


def _last(axis: SearchAxis) -> float:
    """The most that is drawn: with a step, the last of them."""
    least, most = axis.ends
    return most if axis.step is None else float(f"{least + _steps(axis) * axis.step:.12g}")


def _holds(axis: SearchAxis, value: Any) -> bool:
    """Whether the axis, as the file has it now, could have drawn this value."""
    if axis.choice is not None:
        return any(same(value, one) for one in axis.choice)
    return isinstance(value, int | float) and axis.ends[0] <= value <= axis.ends[1]


def _of_trial(trial: Any, name: str, axis: SearchAxis) -> Param:
    least, most = axis.ends[0], _last(axis)
    if axis.choice is not None:
        return _param(trial.suggest_categorical(name, axis.choice))
    if axis.kind in ("int", "log_int"):
        log = axis.kind == "log_int"
        return number_of(axis, trial.suggest_int(name, int(least), int(most), log=log, step=int(axis.step or 1)))
    log = axis.kind == "log_uniform"
    return number_of(axis, trial.suggest_float(name, least, most, log=log, step=axis.step))
