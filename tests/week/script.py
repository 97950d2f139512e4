"""The week itself: what a person types, in order, and what each answer must say."""

from __future__ import annotations

from collections.abc import Callable

from tests.engine.harness import Stack, copy_checkout
from tests.week.play import Play, replacing

NAME = "digits"


def week(make_stack: Callable[..., Stack]) -> Play:
    """Plays the whole week on the real engine, in a checkout and a home of its own. Raises at the first surprise."""
    stack = make_stack(name=NAME, config=False, init=False)
    stack.evidence = stack.base / "home" / "sweeps" / NAME
    del stack.env["PULUMI_BACKEND_URL"]  # where a new user's state lives
    play = Play(stack, stack.checkout, title="A week with a sweep")
    play.say(
        """Everything that a week brings, typed by one person on one machine: this page was made by
        `python -m tests.week`, which the test suite plays as well. Where a command was refused, the next one is the one
        that the refusal named."""
    )
    for day in (monday, tuesday, wednesday, thursday, friday, a_month_later):
        day(play, stack)
    return play


def monday(play: Play, stack: Stack) -> None:
    """The first sweep: two mistakes in the stack file, then six cells that run."""
    play.day("Monday: the first sweep")
    play.type("sweepctl doctor", rc=None)
    play.type(f"sweepctl init {NAME}", expect=["wrote stacks/Pulumi.digits.yaml"])
    play.edit(stack.config_file, replacing("base: {epochs: 20}", "base: {epochs: 4}"))
    play.edit(
        stack.config_file, replacing("{box-0: {want: running}}", "{box-0: {want: running}, box-1: {want: running}}")
    )
    play.edit(
        stack.config_file, replacing("# overrides: {local: {price_per_hour", "overrides: {local: {price_per_hours")
    )
    play.edit(stack.config_file, replacing("candidates: [local]", "candidates: [locale]"))
    play.type(f"pulumi stack init {NAME}")
    play.say("Two slips of the pen, found together and before anything starts.")
    play.type(f"pulumi preview --stack {NAME}", rc=1, expect=["2 mistakes", 'did you mean "price_per_hour"?'])
    play.edit(stack.config_file, replacing("[locale]", "[local]"))
    play.edit(stack.config_file, replacing("price_per_hours", "price_per_hour"))
    play.type(f"pulumi preview --stack {NAME}")
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl status --stack {NAME}", told=True, expect=["LOCKED", "$0.50/h"])


def tuesday(play: Play, stack: Stack) -> None:
    """Four cells more beside those that run; then a change that a started cell can't take."""
    play.day("Tuesday: four cells more, and a bad hyper-parameter")
    play.edit(
        stack.config_file,
        replacing(
            "# add:  [{lr: 0.01, seed: 0}]",
            "add: [{lr: 0.01, seed: 0}, {lr: 0.01, seed: 1}, {lr: 0.3, seed: 0}, {lr: 0.3, seed: 1}]",
        ),
    )
    play.type(f"pulumi preview --stack {NAME}", expect=["lr0.3-seed0"])
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl wait --stack {NAME} first-step")
    play.say("More epochs would be better, for cells that have started: the inputs of a live run never change.")
    play.edit(stack.config_file, replacing("base: {epochs: 4}", "base: {epochs: 8}"))
    play.type(f"pulumi preview --stack {NAME}", rc=1, expect=["can't change", "cells.add", "cells.drop"])
    play.say("So the change becomes a cell of its own, and the old one is dropped with a reason.")
    play.edit(stack.config_file, replacing("base: {epochs: 8}", "base: {epochs: 4}"))
    play.edit(stack.config_file, replacing("add: [", "add: [{name: long, lr: 0.3, seed: 1, epochs: 40}, "))
    play.type(f'sweepctl drop lr0.3-seed1 --stack {NAME} --reason "too short: see long"')
    play.type(f"pulumi up --stack {NAME}", told=True)


def wednesday(play: Play, stack: Stack) -> None:
    """The laptop is closed while somebody watches; then the power goes."""
    play.day("Wednesday: the laptop closes, and the power goes")
    stack.wait_for(lambda: "long" in stack.started(), "the long cell to start")
    play.say("A person follows the long run and closes the laptop: the terminal is gone, the run is not.")
    play.hang_up(f"sweepctl logs long -f --stack {NAME}", after="epoch")
    play.type(f"sweepctl status --stack {NAME}", expect=["running"])
    play.say("Then the power goes: every process on both boxes is gone at once.")
    for native_id in stack.native_ids():
        stack.kill_box(native_id)
    play.type(f"sweepctl status --stack {NAME}", expect=["its runner is not alive", "pulumi up"])
    play.type(f"pulumi up --stack {NAME}", told=True)
    play.type(f"sweepctl wait --stack {NAME} done", expect=["sealed"])
    play.type(f"sweepctl logs long --tail 3 --stack {NAME}")


def thursday(play: Play, stack: Stack) -> None:
    """A run that diverges; a disk that is full; a bug in the code."""
    play.day("Thursday: a NaN, a full disk, and a bug in the code")
    play.edit(stack.config_file, replacing("add: [", "add: [{name: hot, lr: 1.0e+30, seed: 0}, "))
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl wait --stack {NAME} done")
    play.type(f"sweepctl pull --stack {NAME}")
    play.say("The run ended with exit code 0, and its log says nothing. Its weights are not numbers:")
    play.type(f"sweepctl verify --stack {NAME}", rc=1, told=True, expect=["hot", "non-finite"])
    play.type(f'sweepctl drop hot --stack {NAME} --reason "diverged: lr 1e30 is no use"')
    play.type(f"pulumi up --stack {NAME}", told=True)

    play.say(
        """A disk that fills up: the queue waits, and nothing fails. (This one is not really full: the config asks for
        more room than there is.)"""
    )
    play.edit(stack.config_file, replacing("resources: {cpu: 1}", "resources: {cpu: 1}\n      min_free: {disk: 900TB}"))
    play.edit(stack.config_file, replacing("seed: [0, 1, 2]", "seed: [0, 1, 2, 3]"))
    play.type(f"pulumi up --stack {NAME}", expect=["it waits for room (disk)"])
    play.type(f"sweepctl status --stack {NAME}", expect=["blocked_disk"])
    play.edit(stack.config_file, replacing("disk: 900TB", "disk: 100MB"))
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl wait --stack {NAME} done")

    play.say("A bug in the code, found after eleven cells ran with it; and one more cell to run.")
    play.edit(stack.checkout / "examples" / "digits" / "train.py", replacing("NOISE = 0.1\n", "NOISE = 0.05\n"))
    play.edit(stack.config_file, replacing("add: [", "add: [{lr: 0.05, seed: 0}, "))
    play.type(f"pulumi preview --stack {NAME}", rc=1, expect=["sweepctl retry"])
    play.type(f"sweepctl retry --all --from start --stack {NAME}", told=True, answers=[("to go on:", "yes\r")])
    play.type(f"pulumi up --stack {NAME}", told=True)
    play.type(f"sweepctl wait --stack {NAME} done")


def friday(play: Play, stack: Stack) -> None:
    """An early destroy, the results, the teardown."""
    play.day("Friday: the results, and the end")
    play.type(f"pulumi destroy --stack {NAME}", rc=1, expect=["REFUSED. Nothing was deleted"])
    play.type(f"sweepctl pull --stack {NAME}")
    play.type(f"sweepctl verify --stack {NAME}", told=True)
    play.type(f"sweepctl results --stack {NAME}", expect=["±"])
    play.type(f"sweepctl finish --stack {NAME}", answers=[("to go on:", "yes\r")], expect=["nothing bills"])
    play.type(f"sweepctl ledger --stack {NAME}", expect=["box-0", "box-1"])


def a_month_later(play: Play, stack: Stack) -> None:
    """One more seed, from a new clone of the repository: what is verified is not trained again."""
    play.day("A month later: one more seed, from a new clone")
    clone = stack.base / "clone"
    copy_checkout(clone)
    (clone / "stacks" / stack.config_file.name).write_text(stack.config_file.read_text())
    source = "examples/digits/train.py"
    (clone / source).write_text((stack.checkout / source).read_text())
    play.folder = clone
    stack.env["PATH"] = stack.env["PATH"].replace(str(stack.checkout), str(clone))
    play.say(
        """The repository is cloned anew: the stack file came with it, the state is in the user's data folder, and the
        evidence in `~/sweeps/digits`."""
    )
    play.edit(clone / "stacks" / stack.config_file.name, replacing("seed: [0, 1, 2, 3]", "seed: [0, 1, 2, 3, 4]"))
    play.type(f"pulumi up --stack {NAME}")
    play.type(f"sweepctl wait --stack {NAME} done")
    started = {cell for box in stack.boxes for cell in stack.started(box)}
    assert started == {"lr0.1-seed4", "lr0.03-seed4"}, started
    play.type(f"sweepctl finish --stack {NAME}", told=True, answers=[("to go on:", "yes\r")], expect=["nothing bills"])
    play.type(f"sweepctl results --stack {NAME} --as markdown", expect=["test_accuracy", "| 5 |"])
