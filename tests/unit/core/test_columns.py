"""Texts for people within 80 columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.core.columns import COLUMNS, fitted

STACK = "a-sweep"
UP = f"pulumi up --stack {STACK}"
GIVE_UP = f'sweepctl give-up --stack {STACK} data/box-0 --reason "…"'
DIGEST = "sha256:" + "5" * 64


def lines(text: str, **how: int) -> list[str]:
    return fitted(text, **how).split("\n")


def test_what_fits_is_left_as_it_is() -> None:
    text = "  a  b   c\n\nnext   pulumi up\n" + "x" * COLUMNS
    assert fitted(text) == text


def test_prose_is_wrapped_between_words() -> None:
    text = "the evidence of this sweep is a folder on another host, and what lies there can't be read from here at all"
    first, second = lines(text)
    assert len(first) <= COLUMNS < len(f"{first} {second.split()[0]}")
    assert f"{first} {second}" == text


def test_further_lines_begin_below_the_text_of_their_label() -> None:
    first, second = lines("note   box a: " + "it does not answer, so nothing is known of it; " * 2)
    assert first.startswith("note   box a")
    assert second.startswith("       ")
    assert second[7] != " "


def test_columns_are_not_broken_where_they_have_room_below() -> None:
    name = "optimizeradamw-lr0.0003-width512-seed0"
    assert lines(f"{'':16}{name}  sealed  finished; not pulled and verified yet", columns=76) == [
        f"{'':16}{name}  sealed",
        f"{'':18}finished; not pulled and verified yet",
    ]


def test_a_chain_of_commands_is_broken_where_a_shell_reads_on() -> None:
    assert lines(f"give up  {GIVE_UP} && {UP}") == [f"give up  {GIVE_UP} &&", f"         {UP}"]


def test_commands_without_room_beside_their_label_stand_below_it() -> None:
    assert lines(f"give up         {GIVE_UP} && {UP}", columns=74) == ["give up", f"  {GIVE_UP} &&", f"  {UP}"]


def test_a_command_alone_is_never_broken() -> None:
    long = f"{GIVE_UP} {DIGEST}"
    assert lines(f"next   {long}    (in the end)") == [f"next   {long}", "       (in the end)"]
    assert lines(f"let it go   {long}") == ["let it go", f"  {long}"], "as short as it can be"


@pytest.mark.parametrize("tool", ["cp", "mv", "install -b -m 600"])
def test_a_command_that_puts_a_file_back_is_never_broken(tool: str) -> None:
    command = f"{tool} /{'a' * COLUMNS} /{'b' * COLUMNS}"
    said = lines(f"error: the state could not be read. Next: {command}    (its newest copy)")
    assert command in [line.strip() for line in said]


def test_a_remark_comes_below_its_command() -> None:
    assert lines(f"next   {GIVE_UP}    (and so gives it up)") == [f"next   {GIVE_UP}", "       (and so gives it up)"]
    assert lines(f"next   {UP}    (gives it up)") == [f"next   {UP}    (gives it up)"]


def test_what_a_sentence_names_is_one_word() -> None:
    before = "box a: nothing is known of it, since the platform did not answer in time; see"
    assert (
        lines(f"{before} `sweepctl status --stack {STACK}`, please")[1] == f"`sweepctl status --stack {STACK}`, please"
    )
    assert lines(f"{before[:-5]}. Next: {UP}") == [f"{before[:-5]}.", f"Next: {UP}"]
    wants = ", ".join(f"boxes.box-{number}.want: gone" for number in range(2))
    assert lines(f"next   {wants} in stacks/Pulumi.t.yaml, then {UP}")[-1].endswith(UP)


def test_a_digest_is_not_broken() -> None:
    assert lines(f"15 of 15 verified   receipt {DIGEST}") == ["15 of 15 verified   receipt", f"  {DIGEST}"]
    assert lines(f"5 of 5 verified   receipt {DIGEST}")[1] == f"  {DIGEST}", "left of the text above, where it has room"


def test_room_that_the_first_line_has_lost() -> None:
    assert len(lines("word " * 30, taken=9)[0]) <= COLUMNS - 9
    assert lines("word " * 16, taken=70)[0] == "", "too little is left of it"


WORDS = st.sampled_from(["word", "a", "  ", "   ", "`sweepctl status`", "    (", ")", "Next:", "\n", "next   ", "1."])
COMMANDS = st.sampled_from([UP, GIVE_UP, " && ", "then", "`", DIGEST])


@given(st.lists(WORDS | COMMANDS, max_size=40).map(" ".join))
def test_no_word_is_lost(text: str) -> None:
    assert fitted(text).split() == text.split()


@given(st.lists(WORDS, max_size=60).map(" ".join), st.integers(0, 40))
def test_no_line_of_words_is_too_long(text: str, taken: int) -> None:
    first, *more = lines(text, taken=taken)
    assert max(map(len, [" " * taken + first, *more])) <= COLUMNS


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "x " * 50_000, "x  " * 30_000, "`" * 50_001, '"' * 20_000, "a.b" * 30_000]
)
def test_odd_texts_take_no_time(text: str) -> None:
    assert fitted(f"Next: sweepctl status {text}").split() == f"Next: sweepctl status {text}".split()
