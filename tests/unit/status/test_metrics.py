"""Curves out of JSON lines and CSV: where a cell stands, and since when it is not a number any more."""

from __future__ import annotations

import math

import pytest

from sweepstack.core.metrics import last_row, last_rows, nan_since, number, number_text, parse_rows, point, series

JSONL = b'{"step": 1, "loss": 0.5}\nnot json\n[1]\n{"step": 2, "loss": NaN}\n{"step": 3, "loss": NaN}\n{"step": 4, "lo'
CSV = b"step,loss\n1,0.5\n2,nan\n3,nan\n4,"


@pytest.mark.parametrize(
    ("data", "file"),
    [
        ("".join(f'{{"step": {number}}}\n' for number in range(1000)), "m.jsonl"),
        ("step\n" + "".join(f"{number}\n" for number in range(1000)), "m.csv"),
    ],
)
def test_the_end_of_a_long_file(data: str, file: str) -> None:
    content = data.encode()
    asked: list[int] = []

    def read(offset: int, limit: int) -> bytes:
        asked.append(limit)
        return content[offset : offset + limit]

    rows = last_rows(read, len(content), file, 500)
    assert [int(row["step"]) for row in rows[-2:]] == [998, 999]
    assert 10 < len(rows) < 200
    assert sum(asked) < 10_000
    assert len(last_rows(read, len(content), file, len(content))) == 1000
    for most in (60, 500, len(content)):
        row = last_row(read, len(content), file, most)
        assert row is not None
        assert int(row["step"]) == 999
    assert last_row(read, len(content), file, 3) is None


@pytest.mark.parametrize("torn", ["", '{"step": 3, "lo', "not json\n", "[1]\n\n", "\n"])
def test_the_last_row_is_the_last_that_reads(torn: str) -> None:
    content = ('{"step": 1}\n{"step": 2}\n' + torn).encode()
    read = lambda offset, limit: content[offset : offset + limit]  # noqa: E731
    assert last_row(read, len(content), "m.jsonl", 8192) == {"step": 2}
    assert last_row(read, len(content), "m.jsonl", len(torn) + 13) == {"step": 2}
    assert last_row(read, len(content), "m.jsonl", len(torn) + 4) is None


@pytest.mark.parametrize(("data", "file"), [(JSONL, "m.jsonl"), (CSV, "m.csv"), (CSV.replace(b",", b"\t"), "m.tsv")])
def test_whole_rows_that_read(data: bytes, file: str) -> None:
    rows = parse_rows(data, file)
    curve = series(rows, "a", "step", "loss")
    assert [x for x, _ in curve.points] == [1, 2, 3]
    assert curve.points[0][1] == 0.5
    assert curve.not_finite == (2, 3)
    assert nan_since(rows, "step", ["loss"]) == "2"
    found = point(rows[-1], "step", ["accuracy", "loss"])
    assert found is not None
    assert (found.step, found.loss, found.x) == ("3", "nan", 3)


def test_the_end_of_a_csv_is_read_with_its_header() -> None:
    assert [row["loss"] for row in parse_rows(b"9,0.25\n", "m.csv", header=b"step,loss\n")] == ["0.25"]


def test_nan_that_went_away_is_none() -> None:
    rows = parse_rows(b'{"step": 1, "loss": NaN}\n{"step": 2, "loss": 1.0}\n', "m.jsonl")
    assert nan_since(rows, "step", ["loss"]) == ""


@pytest.mark.parametrize(
    ("value", "expected"), [(True, None), (None, None), ("x", None), ([1], None), ("1e3", 1000.0), (2, 2.0)]
)
def test_what_is_a_number(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_numbers_written_as_text() -> None:
    assert math.isnan(number("NaN") or 0)
    assert number("-Infinity") == -math.inf


@pytest.mark.parametrize(
    ("value", "expected"), [(8200.0, "8200"), (0.39712, "0.3971"), (math.nan, "nan"), (math.inf, "inf"), (None, "")]
)
def test_numbers_for_people(value: float | None, expected: str) -> None:
    assert number_text(value) == expected


@pytest.mark.parametrize("odd", ["1.5", "true", '"3"', "1" + "0" * 400, "null", "NaN"])
def test_one_odd_row_changes_no_other(odd: str) -> None:
    """Rows of plain numbers are read all at once; beside another one they say the same."""
    plain = b"".join(b'{"step": %d, "loss": %f, "tag": "\\ud800"}\n' % (step, 1 / (step + 1)) for step in range(5))
    alone = series(parse_rows(plain, "m.jsonl"), "a", "step", "loss").points
    assert len(alone) == 5
    for row in ('{{"step": {}, "loss": 0.5}}\n', '{{"step": 9, "loss": {}}}\n'):
        rows = parse_rows(plain + row.format(odd).encode(), "m.jsonl")
        assert series(rows, "a", "step", "loss").points[:5] == alone
