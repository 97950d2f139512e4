"""What a pipe gets is what rich would have written there, without rich."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from sweepstack.cli import output

WORDS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["verified", "lost", "关机", "a\tb", "two\nlines", "e\u0301", "", " ", "x" * 390, "–", "[red]no[/]", "👍🏽"]
    ),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    columns = draw(st.integers(1, 5))
    rows = draw(st.lists(st.lists(WORDS, min_size=columns, max_size=columns), max_size=5))
    return [f"C{number}" for number in range(columns)], rows


@given(tables())
@example((["C0", "C1"], [["a", "a note that is long " * 30]]))
def test_a_table_is_what_rich_draws(table: tuple[list[str], list[list[str]]]) -> None:
    drawn = Console(file=io.StringIO(), width=400, highlight=False, emoji=False)
    assert output.printed(output.Pipe(io.StringIO()), *table) == output.printed(drawn, *table)


@given(WORDS)
def test_a_line_is_what_rich_prints(text: str) -> None:
    said, drawn = io.StringIO(), io.StringIO()
    screen = Console(file=drawn, width=400, highlight=False, emoji=False)
    for one in (output.Pipe(said), screen):
        one.print(output.plain(text), style="red", markup=False, highlight=False, soft_wrap=True)
    assert said.getvalue() == drawn.getvalue()


@pytest.mark.parametrize("asked", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_a_pipe_needs_no_rich_unless_it_asks_for_colours(asked: dict[str, str]) -> None:
    program = (
        "import sys; from sweepstack.cli import output\n"
        "out = output.Out(as_json=False)\n"
        "out.line('one', style='red')\n"
        "out.table(['A'], [['lost']])\n"
        "output.complain('two')\n"
        "sys.exit('rich.console' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, timeout=120)
    assert done.returncode == bool(asked), done
    assert ("\x1b[" in done.stdout) == ("\x1b[" in done.stderr) == bool(asked)
