"""The week itself: what a person types, in order, and what each answer must say."""

from __future__ import annotations

from collections.abc import Callable

from tests.engine.harness import Stack
from tests.week.play import Play

NAME = "digits"


def week(make_stack: Callable[..., Stack]) -> Play:
    """Plays the whole week on the real engine, in a checkout and a home of its own. Raises at the first surprise."""
    stack = make_stack(name=NAME, config=False, init=False)
    stack.evidence = stack.checkout / "results" / NAME
    del stack.env["PULUMI_BACKEND_URL"]  # where a new user's state lives
    play = Play(stack, stack.checkout)
    for day in (monday, tuesday, wednesday):
        day(play, stack)
    return play


def replacing(old: str, new: str) -> Callable[[str], str]:
    """An edit: `old`, which must be there once, becomes `new`."""

    def change(text: str) -> str:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times in\n{text}"
        return text.replace(old, new)

    return change


def monday(play: Play, stack: Stack) -> None:
    """The first sweep: two mistakes in the stack file, then six cells that run."""
    play.day("Monday: the first sweep")
    play.say("A stack file to start from; then the three commands that it names.")
    play.type(f"sweepctl new {NAME}", expect=["wrote stacks/Pulumi.digits.yaml"])
    play.edit(stack.config_file, replacing("base: {epochs: 20}  ", "base: {epochs: 4}  "))
    play.edit(stack.config_file, replacing("candidates: [local]", "candidates: [locale]"))
    play.edit(
        stack.config_file,
        replacing(
            "    # overrides: {local: {price_per_hour: 0.25}} ", "    overrides: {local: {price_per_hours: 0.25}} "
        ),
    )
    play.type(f"pulumi stack init {NAME}", told=True)
    play.say("Two slips of the pen, found together and before anything starts.")
    play.type(f"pulumi preview --stack {NAME}", rc=1, expect=["2 mistakes", 'did you mean "price_per_hour"?'])
    play.edit(stack.config_file, replacing("[locale]", "[local]"))
    play.edit(stack.config_file, replacing("price_per_hours", "price_per_hour"))
    play.edit(stack.config_file, replacing("--seed {seed} --out", "--seed {seed} --epochs {epochs} --out"))
    play.edit(
        stack.config_file, replacing("{box-0: {want: running}}", "{box-0: {want: running}, box-1: {want: running}}")
    )
    play.type(f"pulumi preview --stack {NAME}")
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl status --stack {NAME}", expect=["LOCKED", "$0.50/h"])


def tuesday(play: Play, stack: Stack) -> None:
    """Four cells more beside those that run; then a change that a started cell can't take."""
    play.day("Tuesday: four cells more")
    play.edit(
        stack.config_file,
        replacing(
            "# add:  [{lr: 0.01, seed: 0}]  ",
            "add: [{lr: 0.01, seed: 0}, {lr: 0.01, seed: 1}, {lr: 0.3, seed: 0}, {lr: 0.3, seed: 1}]  ",
        ),
    )
    play.type(f"pulumi preview --stack {NAME}")
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl wait --stack {NAME} --for first-step")
    play.say("A bad hyper-parameter, noticed after it started: the inputs of a live run never change.")
    play.edit(stack.config_file, replacing("base: {epochs: 4}", "base: {epochs: 8}"))
    play.type(f"pulumi preview --stack {NAME}", rc=1, expect=["can't change", "cells.add", "cells.drop"])
    play.say("So the change becomes a cell of its own, and the old one is dropped with a reason.")
    play.edit(stack.config_file, replacing("base: {epochs: 8}", "base: {epochs: 4}"))
    play.edit(stack.config_file, replacing("add: [", "add: [{name: lr0.3-long, lr: 0.3, seed: 1, epochs: 60}, "))
    play.edit(stack.config_file, replacing('# drop: {lr0.1-seed2: "why"}', 'drop: {lr0.3-seed1: "too short"}'))
    play.type(f"pulumi up --stack {NAME}")


def wednesday(play: Play, stack: Stack) -> None:
    play.day("Wednesday: a power cut")
