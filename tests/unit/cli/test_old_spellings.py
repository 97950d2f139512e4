"""Old spellings of commands and options work on, and say the new one."""

from __future__ import annotations

import shlex

import pytest

from sweepstack.cli.app import all_commands, load_command
from sweepstack.cli.old_spellings import NOW, rewritten, told, variables
from sweepstack.core import extensions

LINES = {
    "curves": ("curves 'lr0.1-*' --metric loss -s a", "results --as plot 'lr0.1-*' --metric loss -s a"),
    "exec": ("exec b --stack a -- nvidia-smi -l", "ssh b --stack a -- nvidia-smi -l"),
    "forward BOX PORT": ("forward -s a b 80:6006 --json", "ssh b --forward 80:6006 -s a --json"),
    "gotcha list": ("gotcha list --platform autodl", "profile explain --gotchas autodl"),
    "gotcha propose": ("gotcha propose --symptom x", "profile new --gotcha --with symptom=x"),
    "holders": ("holders b --end 7", "doctor b --end 7"),
    "new": ("new abl-store --store --json", "init abl-store --store --json"),
    "patrol": ("patrol -s a --json", "status --probe -s a --json"),
    "publish URI": (
        "publish --access box-0 -s a s3://b/a --json",
        "pull --to s3://b/a --access box-0 -s a --json",
    ),
    "publish --access": ("publish -s a --access=box-0", "pull -s a --access box-0"),
    "publish": ("publish --stack a", "pull --to= --stack a"),
    "report": ("report -o p.html --evidence s3://b/a", "results --as html -o p.html --evidence s3://b/a"),
    "results --csv": ("results --csv --over lr", "results --as=csv --over lr"),
    "results --markdown": ("results -s a --markdown", "results -s a --as=markdown"),
    "results --plot": ("results --plot 'lr*'", "results --as=plot 'lr*'"),
    "next": ("next --stack a --json", "status --next --stack a --json"),
    "profile list": ("profile list --json", "profile show --json"),
    "profile probe BOX": ("profile probe -s a b --after-stop", "profile explain --box b -s a --stop=after"),
    "profile stale": ("profile stale --used --months 3", "profile check --old --used --months 3"),
    "provenance": ("provenance lr0.1 --evidence s3://b/a", "show lr0.1 --evidence s3://b/a"),
    "receipt": ("receipt --export -o out.json --stack a", "show -o out.json --stack a"),
    "smoke": ("smoke --force -s a", "doctor --smoke --force -s a"),
    "approve --cosign": ("approve --stack a --cosign --json", "cosign --stack a --json"),
    "cosign --approval": ("approve --cosign --approval sha256:0", "cosign sha256:0"),
    "approve --revoke": ("approve --stack a --revoke", "revoke --stack a"),
    "approve|give-up --waive": ("approve --waive a --waive=b --reason x -s t", "give-up cell/a cell/b --reason x -s t"),
    "approve|give-up --abandon": (
        "approve --waive a --reason x --abandon b --reason y",
        "give-up cell/a --reason x data/b --reason y",
    ),
    "approve|give-up --waive-unclaimed": (
        "approve --box b --waive-unclaimed b --verb stop --reason x",
        "give-up --box b unclaimed/b --verb stop --reason x",
    ),
    "approve|give-up --accept-fact": ("approve --accept-fact runpod.verbs", "give-up fact/runpod.verbs"),
    "approve|give-up|finish --receipt": ("finish -s a --receipt sha256:0 --box b", "finish -s a sha256:0 --box b"),
    "policy --policy": ("policy approve --policy sha256:0 --sign", "policy approve sha256:0 --sign"),
    "approve|give-up|finish|cosign|policy|show --signing-key": (
        "approve --sign --signing-key 'a key' --stack t",
        "'SWEEPSTACK_SIGNING_KEY=a key' approve --sign --stack t",
    ),
    "approve|give-up|finish|cosign|policy --signer": (
        "approve --cosign --signer=bob --signing-key k",
        "SWEEPSTACK_SIGNING_KEY=k SWEEPSTACK_SIGNER=bob cosign",
    ),
    "confirm-gone --never-rented": ("confirm-gone b --never-rented --saw x", "confirm never-rented b --saw x"),
    "confirm-gone --peer": ("confirm-gone b --peer n --saw x", "confirm peer b n --saw x"),
    "confirm-gone": ("confirm-gone --stack a b --saw x --at now", "confirm gone --stack a b --saw x --at now"),
    "trust-host --fingerprint": ("trust-host b --fingerprint=SHA256:0", "confirm host b --saw SHA256:0"),
    "trust-host": ("trust-host b --host ann@c", "confirm host b ann@c"),
    "place --next": ("place -s a --next --show", "place next -s a --show"),
    "place --clear": ("place --clear --json", "place clear --json"),
    "worker-ended": ("worker-ended b w --saw x --by ann", "confirm worker b w --saw x --by ann"),
    "wait --for": ("wait --stack a --for=verified --json", "wait --stack a verified --json"),
    "review --md": ("review --md --base main", "review --as=markdown --base main"),
    "review --html": ("review --html -s a", "review --as=html -s a"),
    "retry --from-start": ("retry --all --from-start -s a", "retry --all --from=start -s a"),
    "retry --from-set": ("retry lr0.1 --from-set", "retry lr0.1 --from=set"),
    "logs --setup": ("logs --setup box-0 -f", "logs --of=setup box-0 -f"),
    "logs --runner": ("logs -s a --runner", "logs -s a --of=runner"),
    "show -o --export": ("show --export -o out.json -s a", "show -o out.json -s a"),
    "show --output --export": ("show --output=out.json --export", "show --output out.json"),
    "show --export": ("show --export --evidence s3://b/a", "show -o - --evidence s3://b/a"),
    "confirm WHAT BOX --host": (
        "confirm host --host=ann@c --saw SHA256:0 b -s a",
        "confirm host b ann@c --saw SHA256:0 -s a",
    ),
    "ci WHAT --into": ("ci --into out reviewed --only a", "ci reviewed out --only a"),
    "ci WHAT --from": ("ci post --from=out --pages u", "ci post out --pages u"),
    "finish --accept-fact": (
        "finish --accept-fact=runpod.verbs --accept-fact runpod.tiers -s a",
        "finish fact/runpod.verbs fact/runpod.tiers -s a",
    ),
    "profile explain --before-stop": ("profile explain --box b --before-stop", "profile explain --box b --stop=before"),
    "profile explain --after-stop": (
        "profile explain --box b --after-stop --json",
        "profile explain --box b --stop=after --json",
    ),
    "profile explain --platform": ("profile explain --gotchas --platform=autodl", "profile explain --gotchas autodl"),
    "profile new --symptom": ("profile new --gotcha --symptom 'a b'", "profile new --gotcha --with 'symptom=a b'"),
    "profile new --cause": ("profile new --gotcha --cause 'a b'", "profile new --gotcha --with 'cause=a b'"),
    "profile new --fix": ("profile new --gotcha --fix 'a b'", "profile new --gotcha --with 'fix=a b'"),
    "profile new --reproduction": (
        "profile new --gotcha --reproduction 'a b'",
        "profile new --gotcha --with 'reproduction=a b'",
    ),
    "profile new --log": ("profile new --gotcha --log 'a b'", "profile new --gotcha --with 'log=a b'"),
    "profile new --unlike": ("profile new --gotcha --unlike 'a b'", "profile new --gotcha --with 'unlike=a b'"),
    "profile new --replaces": ("profile new --gotcha --replaces 'a b'", "profile new --gotcha --with 'replaces=a b'"),
    "profile new --platform": ("profile new --gotcha --platform autodl --json", "profile new --gotcha autodl --json"),
}
"""Row of the table → a line that was typed before, and the same as it is typed now."""


@pytest.mark.parametrize("row", NOW)
def test_each_row_says_what_is_understood_now(row: str) -> None:
    old, new = map(shlex.split, LINES[row])
    assert rewritten(old) == new
    new = new[variables(new) :]
    name = " ".join(new[:2]) if " ".join(new[:2]) in all_commands() else new[0]
    if name in extensions.COMMANDS and name not in all_commands():
        return  # its extension was taken out
    command = load_command(name)
    command.make_context(name, new[len(name.split()) :], help_option_names=[])


def test_a_value_that_was_an_option_is_a_variable_that_a_shell_takes() -> None:
    line = told(rewritten(shlex.split("cosign --signer 'a b' --stack t")))
    assert "`env 'SWEEPSTACK_SIGNER=a b' sweepctl cosign --stack t`" in line


def test_two_old_spellings_that_were_refused_together_still_are() -> None:
    """The second one is no option any more, so the command says that it has none of that name."""
    for line, left in (
        ("results --csv --plot", "--plot"),
        ("results --as=csv --plot", "--plot"),
        ("review --md --html", "--html"),
        ("retry a --from-start --from-set", "--from-set"),
        ("logs --setup --runner", "--runner"),
        ("profile explain --box b --before-stop --after-stop", "--after-stop"),
    ):
        assert rewritten(shlex.split(line))[-1] == left


def test_nothing_else_is_hidden() -> None:
    """The figures of bench/size_bench.py and the reference have every command and option."""
    found = all_commands()
    assert not set(found) & set(NOW)
    hidden = [name for name, command in found.items() if command.hidden or any(one.hidden for one in command.params)]
    assert hidden == []


def test_what_is_typed_now_and_words_of_another_program_stay() -> None:
    for line in (["status", "--json"], ["ssh", "b", "--", "next"], ["nonsense"], []):
        assert rewritten(line) == line


def test_the_new_spelling_is_said_once_and_a_document_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    from sweepstack.cli.app import app

    with pytest.raises(SystemExit):
        app(["next", "--help", "--json"])
    said = capsys.readouterr()
    assert said.err == (
        "note: this is spelled `sweepctl status --next --help --json` now; the old spelling works until 0.2\n"
    )
    assert " status [OPTIONS]" in said.out.splitlines()[0]
