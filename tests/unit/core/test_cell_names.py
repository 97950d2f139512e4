"""Names of cells: those that there were stay, and a value that can't stand in one still gives its cell a name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.core.cells import Param, spell
from sweepstack.core.roster import SAFE_NAME, is_safe, name_of
from tests.unit.core.test_roster import roster

ODD = ["meta-llama/Llama-3-8B", "[64,64]", "a b", "a, b", "/data/x.yaml", "é", "模型", "", "x\ny", "it's", "A" * 200]


def name_at_6f8d950f(params: dict[str, Param], axes: tuple[str, ...]) -> str:
    """The name that an older version gives, "" where it refuses it. Sweeps are up with these names."""
    name = "-".join(f"{axis}{spell(params[axis])}" for axis in axes)
    ours = re.fullmatch(r".*\.(partial|superseded)-\d+", name, re.IGNORECASE)
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", name) and not ours else ""


values = st.one_of(
    st.integers(-20, 20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.sampled_from([*ODD, "x.partial-1", "adam", "Adam", "1e-4", "../x", "a-b_5e229e"]),
    st.text(alphabet="aé模😀\n\x00ß\u0130", max_size=6),
    st.text(alphabet="aA/ -_.", max_size=50),
)


@given(st.dictionaries(st.sampled_from(["lr", "seed", "_x", "model", "n" * 60]), values, min_size=1, max_size=4))
def test_a_name_is_safe_and_what_it_was_wherever_there_was_one(params: dict[str, Param]) -> None:
    axes = tuple(params)
    name, earlier = name_of(params, axes), name_at_6f8d950f(params, axes)
    assert is_safe(name)
    assert SAFE_NAME.fullmatch(name)
    assert not earlier or name == earlier


@given(st.lists(values, min_size=1, max_size=5, unique_by=lambda value: (isinstance(value, bool), str(value))))
def test_values_that_look_alike_get_names_of_their_own(found: list[Any]) -> None:
    """Also on a file system that does not tell `A` from `a`; but for names that differed by case alone before, too."""
    names: dict[str, Param] = {}
    for value in found:
        other = names.setdefault(name_of({"x": value}, ("x",)).casefold(), value)
        written = [name_at_6f8d950f({"x": one}, ("x",)) for one in (value, other)]
        assert other == value or all(written)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("meta-llama/Llama-3-8B", "xmeta-llama-Llama-3-8B_fa5df4-seed0"),
        ("[64,64]", "x64-64_0fd0de-seed0"),
        ("模型", "x_7a5c46-seed0"),
        ("A" * 200, "x" + "A" * 120 + "_1c8b44"),
    ],
)
def test_the_name_can_be_read_and_the_job_gets_the_value(value: str, name: str) -> None:
    """The names that are in use from this version on."""
    for cells in ({"grid": {"x": [value], "seed": [0]}}, {"list": [{"x": value, "seed": 0}]}):
        made = roster(**cells)
        assert made.names == (name,)
        assert made.cells[0].params == {"x": value, "seed": 0}


def test_a_further_value_renames_nothing() -> None:
    alone = roster(grid={"x": ODD[:1]}).names
    assert roster(grid={"x": ODD}).names[:1] == alone
    assert (
        len({name.casefold() for name in roster(grid={"x": [*ODD, "Meta-Llama/llama-3-8b", "a_b", "a-b"]}).names}) == 14
    )


@pytest.mark.parametrize(
    ("cells", "both"),
    [
        ({"grid": {"lr": ["1e-4", 0.0001]}}, "cells.grid lr=1e-4 and cells.grid lr=0.0001"),
        ({"grid": {"lr": ["1E-4", 1, "1.0e-4"], "s": [0, 1]}}, "lr 1.0e-4 is 1E-4"),
        ({"zip": {"lr": ["1e3", 1000], "s": [0, 0]}}, "lr 1000 is 1e3"),
        ({"list": [{"lr": ".5"}, {"lr": 0.5}]}, "cells.list[0] and cells.list[1]"),
        ({"grid": {"lr": ["1e-4"]}, "add": [{"lr": 0.0001}]}, "cells.grid lr=1e-4 and cells.add[0]"),
    ],
)
def test_two_spellings_of_one_number_are_told(cells: dict[str, Any], both: str) -> None:
    (problem,) = roster(**cells).doubled
    assert both in problem.text


@pytest.mark.parametrize(
    "cells",
    [
        {"grid": {"v": ["1.10", 1.1, "1.1.0", 1, 1.0, True, "true1"]}},
        {"zip": {"lr": ["1e-4", 0.0001], "s": [0, 1]}},
        {"list": [{"name": "a", "lr": "1e-4"}, {"name": "b", "lr": 0.0001}]},
        {"grid": {"commit": ["1e999", "2e999"]}},
    ],
)
def test_what_is_no_second_spelling_is_not_told(cells: dict[str, Any]) -> None:
    assert roster(**cells).doubled == ()
