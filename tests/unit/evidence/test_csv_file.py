"""The reader of CSV files: what a table of results must be, and the many ways in which it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load

GOOD = "step,loss,note\n1,0.5,first\n2,0.25,\n"


def read(folder: Path, text: str | bytes, *keys: str, finite: Any = "require") -> LoadResult:
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(str(path), PlainSpec("csv", keys, finite))


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        GOOD.removesuffix("\n"),
        "\n" + GOOD + "\n\n",
        'step,"loss","no\nte"\n1,"0.5","a ""word"", and\nanother"\n',
        ",step,loss\n0,1,0.5\n",  # pandas writes its index so
    ],
)
def test_tables_are_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text, "step", "loss").reasons == ()


def test_keys_are_columns(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, "loss", "accuracy").reasons == ("lacks accuracy",)
    nothing = read(tmp_path, "step,accuracy\n1,\n2, \n", "accuracy")
    assert nothing.reasons == ("lacks accuracy",)
    assert nothing.notes == ("nothing in accuracy",)
    other = read(tmp_path, "step;loss\n1;2\n", "loss")
    assert other.reasons == ("lacks loss",)
    assert "commas are what separates" in other.notes[0]
    assert read(tmp_path, "loss\n2\n").notes == ()


@pytest.mark.parametrize("bad", ["nan", "NaN", " inf ", "-Infinity", "1e999", '"nan"'])
def test_numbers_must_be_finite(tmp_path: Path, bad: str) -> None:
    text = GOOD + f"3,{bad},x\n"
    assert read(tmp_path, text).reasons == ("1 non-finite (loss)",)
    reported = read(tmp_path, text, finite="report")
    assert reported.ok
    assert reported.notes == ("1 non-finite (loss)",)


def test_empty_fields_among_numbers_are_noted(tmp_path: Path) -> None:
    result = read(tmp_path, "step,train,val\n1,0.5,\n2,,0.3\n", "val")
    assert result.ok
    assert result.notes == ("2 empty (train, val)",)
    assert read(tmp_path, GOOD).notes == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("step,loss\n1,0.5\n2\n", "is ragged: line 3 has 1 field, the header 2"),
        ("step,loss\n1,0.5,7\n", "is ragged: line 2 has 3 fields, the header 2"),
        ("step,loss\n1,0.5\n2,0.2", None),
        ("step,loss\n1,0.5\n2,0.", None),
        ("step,loss\n", "has a header and no row"),
        ("\n\n", "has no header"),
        ("a,b,a\n1,2,3\n", "names a column twice: a"),
        (b"step,loss\n1,\xff\n", "is not UTF-8 text (invalid start byte)"),
        ("step,loss\n1,0.5\n".encode("utf-16"), "is not UTF-8 text"),
        ('step,loss\n1,"0.5\n2,0.3\n', "is not CSV at line 3 (unexpected end of data)"),
        ('step,loss\n1,"0.5"x\n', "is not CSV at line 2"),
        ("step\n" + "x" * 1_100_000 + "\n", "is not CSV at line 2 (field larger than field limit"),
        (bytes(1000), "has a header and no row"),
        (",".join(map(str, range(100_001))) + "\n", "has 100,001 columns, 100,000 at most"),
    ],
)
def test_what_is_no_table_says_so(tmp_path: Path, text: str | bytes, reason: str | None) -> None:
    result = read(tmp_path, text)
    if reason is None:  # a cut inside of the last number can't be seen in the text: the digest is what shows it
        assert result.ok
    else:
        assert reason in result.reasons[0]


def test_a_ragged_row_is_refused(tmp_path: Path) -> None:
    assert read(tmp_path, "step,loss\n1\n").reasons == ("is ragged: line 2 has 1 field, the header 2",)


def test_a_large_table_takes_little_memory(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n / 7}\n" for n in range(200_000))
    assert read(tmp_path, "step,loss\n" + rows, "loss").ok
    assert read(tmp_path, "step,loss\n" + rows + "1,nan\n").reasons == ("1 non-finite (loss)",)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=200), st.text(alphabet='a1,."\n\r\0;é e', max_size=60).map(str.encode)))
def test_whatever_it_holds_it_is_an_answer(tmp_path: Path, data: bytes) -> None:
    result = read(tmp_path, data)
    assert result.ok == (not result.reasons)
    assert not result.unknown
