"""The five-minute tutorial, played: what docs/tutorial.md shows is what these commands said."""

from __future__ import annotations

from collections.abc import Callable

from tests.engine.harness import Stack
from tests.week.play import Play, replacing

NAME = "first"


def tutorial(make_stack: Callable[..., Stack]) -> Play:
    """Plays it on the real engine, in a checkout and a home of its own. Raises at the first surprise."""
    stack = make_stack(name=NAME, config=False, init=False)
    del stack.env["PULUMI_BACKEND_URL"]  # where a new user's state lives
    play = Play(stack, stack.checkout, title="Your first sweep, in five minutes")
    play.say(
        """This page was made by typing these commands (`python -m tests.week`); nothing in it is invented. You need a
        checkout in which `make up` has run once, and its environment: `. .venv/bin/activate`. No account."""
    )
    play.day("Describe it")
    play.say("A stack config says which training runs there are, what each must leave behind, and where they run.")
    play.type(f"sweepctl init {NAME}", expect=[f"wrote stacks/Pulumi.{NAME}.yaml"])
    play.show(stack.config_file)
    play.say("Give the machine a price, so that the meter shows something, and take shorter runs:")
    play.edit(stack.config_file, replacing("base: {epochs: 20}", "base: {epochs: 4}"))
    play.edit(stack.config_file, replacing("# overrides:", "overrides:"))

    play.day("Run it")
    play.say(
        "The stack is made once (`make up STACK=first` makes it and runs `pulumi up`, in one command). The preview is"
        " free: it says what would be made, and changes nothing."
    )
    play.type(f"pulumi stack init {NAME}")
    play.type(f"pulumi preview --stack {NAME}")
    play.type(f"pulumi up --stack {NAME}", expect=["created"])
    play.say(
        """The box is there, its queue runs, and `up` waited until the first cell showed a sign of life. From here on it
        runs without you: close the terminal if you like."""
    )
    play.type(f"sweepctl status --stack {NAME}", told=True, expect=["LOCKED"])

    play.day("Try to lose it")
    play.say("This is what the project is for. The engine's own destroy is refused, whatever flags you give it:")
    play.type(f"pulumi destroy --stack {NAME}", rc=1, expect=["REFUSED. Nothing was deleted", "waiting costs"])

    play.day("Finish it")
    play.say("The refusal named the way out. Wait until the cells are done:")
    play.type(f"sweepctl wait --stack {NAME} done")
    play.say(
        """Then one command does the rest and prints each step: it copies every sealed cell here, loads every file,
        shows what would die and what survives, and asks you once."""
    )
    play.type(f"sweepctl finish --stack {NAME}", answers=[("to go on:", "yes\r")], expect=["nothing bills"])
    play.type(f"sweepctl status --stack {NAME}", expect=["nothing bills"])
    play.say(
        """Your results are in `~/sweeps/first/cells/`, each with its manifest; what was verified is in the receipt.
        Next: [a week with a sweep](week.md), [the stack config](stack-config.md), and
        [when something fails](troubleshooting.md)."""
    )
    return play
