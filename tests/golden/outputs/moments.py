"""Which moments of which golden sweeps are shown, and what is typed at each."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.golden.outputs import losses
from tests.golden.outputs.sweeps import (
    Change,
    Moment,
    damaged,
    edited,
    elsewhere,
    ended,
    half_ended,
    never_up,
    no_answer,
    not_approved,
    not_ended,
    not_pulled,
    orphaned,
    silent,
    still_running,
    stopped,
    store,
    unread,
)

K4, OLDEST = "schema-1-2026-11-27-K4.tar.xz", "schema-1-2026-11-22.tar.xz"
HOST, CLUSTER = "schema-1-2026-11-27-K3-host.tar.xz", "schema-1-2026-11-27-K3-slurm.tar.xz"


def _at(clock: str, day: str = "2026-11-27") -> datetime:
    return datetime.fromisoformat(f"{day}T{clock}Z").replace(tzinfo=UTC)


def _finished(*changes: Change) -> Moment:
    return Moment(K4, _at("13:20:20"), "locked.json", (not_approved, *changes))


MOMENTS = {
    "running": Moment(K4, _at("13:20:20"), "locked.json", (not_pulled, still_running("box-0", "seed0"))),
    "finished": Moment(K4, _at("13:20:20"), "locked.json", (not_approved,)),
    "stopped": Moment(K4, _at("15:20:20"), "locked.json", (not_approved, stopped)),
    "approved": Moment(K4, _at("13:20:40"), "cleared.json", (not_ended,)),
    "damaged": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, damaged)),
    "ended": Moment(K4, _at("18:00:00"), "cleared.json", (ended,)),
    "dead": Moment(K4, _at("13:20:20"), "locked.json", (not_pulled, still_running("box-0", "seed0", alive=False))),
    "hung": Moment(K4, _at("13:20:20"), "locked.json", (not_pulled, still_running("box-0", "seed0", verdict="hung"))),
    "silent": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, silent)),
    "unread": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, unread)),
    "orphaned": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, orphaned)),
    "half-ended": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, half_ended)),
    "elsewhere": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, elsewhere)),
    "no-answer": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, no_answer)),
    "edited": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, edited)),
    "new": Moment(K4, _at("13:19:00"), "locked.json", (never_up,)),
    "oldest": Moment(OLDEST, _at("22:14:26", "2026-11-22"), "locked.json", (not_approved,)),
    "store": Moment(K4, _at("13:19:00"), "locked.json", (store,)),
    "host": Moment(HOST, _at("07:36:00"), "locked.json", (not_approved,)),
    "cluster": Moment(CLUSTER, _at("07:40:00"), "locked.json", (not_approved,)),
    "approved-not-up": Moment(K4, _at("13:20:40"), "locked.json", (not_ended,)),
    "expired": Moment(K4, _at("13:20:40", "2026-12-01"), "cleared.json", (not_ended,)),
    "silent-not-pulled": Moment(K4, _at("13:20:20"), "locked.json", (not_pulled, silent)),
    "torn-volume": Moment(K4, _at("13:20:20"), "locked.json", (not_pulled, losses.torn_volume)),
    "held-elsewhere": _finished(orphaned, losses.held_elsewhere),
    "renamed": _finished(orphaned, losses.renamed_project),
    "strays": _finished(losses.strays),
    "odd-entries": _finished(losses.odd_entries),
    # An `up` would begin another sweep, and rent, while these boxes bill: what was rented is looked for first.
    "lost-state": _finished(losses.no_stack),
    "lost-state-torn-file": _finished(losses.no_stack, losses.torn_file),
    "lost-state-torn-file-remembered": _finished(losses.no_stack, losses.torn_file, losses.remembered()),
    "lost-state-torn-file-two-copies": _finished(
        losses.no_stack, losses.torn_file, losses.copied, losses.remembered("-b")
    ),
    "lost-state-torn-file-renamed": _finished(
        losses.no_stack, losses.torn_file, losses.remembered(), losses.renamed_project
    ),
    "lost-state-no-file": _finished(
        losses.no_stack, losses.kept_file, losses.remembered("-b"), losses.gone, losses.no_file
    ),
    "lost-state-file-kept": _finished(losses.no_stack, losses.kept_file, losses.remembered(), losses.no_file),
    "lost-state-gone": _finished(losses.no_stack, losses.gone),
    "lost-state-gone-remembered": _finished(losses.no_stack, losses.gone, losses.remembered()),
    "lost-state-unread": _finished(losses.no_stack, unread, losses.remembered()),
    "lost-state-moved": _finished(losses.no_stack, losses.moved, losses.remembered()),
    "lost-state-newer": _finished(losses.no_stack, losses.newer),
    "lost-state-file-removed": _finished(losses.no_stack, losses.remembered(), losses.no_file),
    # "nothing bills" is said where it is proved, and nowhere else.
    "lost-evidence": _finished(losses.gone),
    "lost-both": _finished(orphaned, losses.gone),
    "lost-both-remembered": _finished(orphaned, losses.gone, losses.remembered()),
    "lost-both-unread": _finished(orphaned, unread),
    "lost-evidence-beside": _finished(losses.beside),
    "lost-records": _finished(losses.no_records),
    "lost-records-no-stack": _finished(losses.no_records, losses.no_stack),
    "lost-records-torn-registry": _finished(losses.no_records, losses.torn_registry),
    "lost-records-no-candidate": _finished(losses.no_records, losses.candidates("local")),
    "lost-records-wrong-candidate": _finished(losses.no_records, losses.candidates("[locale]")),
    "lost-records-odd-candidate": _finished(losses.no_records, losses.candidates("[locale, local]")),
    "lost-registry": _finished(orphaned, losses.unanswered, losses.no_registry),
    "torn-launch": _finished(losses.torn_launch),
    "torn-birth": _finished(losses.torn_birth),
    "ended-too-early": _finished(losses.ended_too_early),
    "ended-no-stack": Moment(K4, _at("18:00:00"), "cleared.json", (ended, losses.no_stack)),
    "ended-silent": Moment(K4, _at("18:00:00"), "cleared.json", (ended, silent)),
}
RECEIPT = "sha256:e27e4d5a9bc67c8c257cf930f4193df99168b0e3c17b4f35a219eb3681b3db59"
NONE = f"sha256:{'0' * 64}"
LOOKS = """
status
status --next
status --probe
results --all
ledger
"""
"""At each moment of a sweep's life, as a screen and as a document: what only reads, and is another at each."""
ASKS = """
logs seed0
wait --timeout 0.1s
retry --failed
retry seed1
drop seed2 --reason diverged
pull
approve
give-up RECEIPT cell/seed2 --reason diverged
give-up data/box-0 --reason lost
approve --verb stop --box box-0
revoke
finish
confirm gone box-0 --saw x
adopt box-0 --reason x
"""
"""At the same moments but `stopped`, as a screen: what writes, or says why not. What was written is shown."""
READS = """
results --as plot
results --over none
show seed1
show
verify
policy
doctor box-0
place --show
logs seed2 --tail 1
"""
"""At one moment, as a screen and as a document: what is the same at the others, or nearly."""
AFAR = """
status
status --json
status --next
status --probe
results
ledger
pull
verify
approve
give-up data/box-0 --reason lost
confirm gone box-0
confirm gone box-0 --saw 'the host is scrapped' --json
confirm worker box-0 1_0.0 --saw x
confirm host box-0
doctor box-0
ssh box-0 --json
adopt box-0 --reason x
"""
"""Where the box is on a machine that can't be reached: there is no `ssh` here."""
LIVES = ("running", "finished", "stopped", "approved", "damaged", "ended")
MORE = {
    "damaged": """
- audit
results --json
""",
    "ended": "- audit",
    "approved": """
verify
verify --json
results
wait verified
approve RECEIPT --box box-1
""",
    "stopped": """
- audit
pull
retry seed2
approve --verb stop --box box-0
doctor box-0
""",
    "running": """
- audit
results
results --over none
show -o -
show seed1
verify
verify --json
pull --json
pull --verify --json
""",
    # what is asked without what it needs, and what is no more than a look; with --json, what is said is there twice
    "finished": """
results --as csv
results --as markdown
results --over sed
results --metric los
results --as csv --json
results --as nope
results seed0 --as csv
results -o page.html
results --as html --all
logs seed22 --json
logs --json
results --as plot nosuch --json
results --as csv --over seed
results --over seed --json
results --as html --json -o -
- results --evidence /nonexistent
- results --evidence ../evidence
logs
logs --of runer
logs --of setup --attempt 1
logs seed0 -f --json
show nosuch --json
show -o -
show -o - --json
show --sign
show NONE
doctor nosuch
doctor box-0 --end 1
ledger --against-bill --json
wait nonsense
wait verified --timeout 0.1s
- audit
- audit --json
review
review --base nosuch
review --as markdown --json
review --as md
place --show --wait 6h
place --wait soon
ssh nosuch --json
ssh nosuch true --json
ssh nosuch --forward 1 --json
ssh box-0 --forward nonsense
retry
retry seed1 --all
retry --all --failed
retry seed22 --json
retry seed1 --reason again --json
retry seed1 --reason …
retry seed3 --json
retry seed2 --from set
retry seed2 --from sets
drop nosuch --reason x --json
drop seed2 --reason …
drop seed2 --reason ' '
adopt --reason …
drop seed2
drop seed2 --reason 'diverged: "NaN"'
drop seed3 --reason 'not needed'
drop seed3 --reason other
approve --yes
approve --box box-1
approve --box box-9
approve RECEIPT
approve sha256:e27e4d5a
approve NONE
give-up cell/seed2
give-up cell/seed22 --reason x
give-up cell/seed2 --reason …
approve --reason x
give-up data/box-0
give-up data/nosuch --reason x --json
give-up data/bax-1 --reason x
approve --verb stop
approve --verb nonsense
approve --expires soon
give-up --expires 90h RECEIPT cell/seed2 --reason diverged
approve RECEIPT --expires 3650d
finish --expires 3650d
finish cell/seed2
cosign
approve --sign
finish --box box-1
finish --box nosuch --json
confirm gone box-0
adopt
adopt nosuch --reason x
confirm worker box-0 w1 --saw x
confirm host box-0
confirm host box-0 root@
- ci review
confirm host nosuch
confirm host box-0 --saw SHA256:x --power-off
confirm gone box-0 w1 --saw x
confirm peer box-0 --saw x
confirm gon box-0 --saw x
policy approve --json
policy approve NONE
policy nonsense
place clear
place next
place nxt
pull --to=
pull --to s3://
pull --verify --to s3://bucket/t
status --next --probe
- init x --example
- init --store
pull --access box-0
doctor --smoke
- init
- init t
- init Day2
- init 'a b'
- init ../x
- init a.b
- audit --end local:local-abcdefghij
- audit --end nonsense
- status
status --nonsense
status --nonsense --json
- nonsense --json
""",
    "dead": """
status
status --json
status --next
status --probe
wait --timeout 60s
results
retry seed0
approve
finish --box box-0
""",
    "hung": """
status
status --json
status --next
status --probe
wait --timeout 0.1s
retry seed0
""",
    "store": """
- status
- status --stack keep
- status --stack keep --json
- status --stack keep --watch
- status --next --stack keep
- pull --stack keep
- verify --stack keep
- wait --stack keep
- status --probe --stack keep
- logs seed0 --stack keep
- results --stack keep
- results --as plot --stack keep
- place --stack keep
- ledger --stack keep
- doctor --smoke --stack keep
- tend --once --stack keep
- retry seed0 --stack keep
- drop seed0 --reason x --stack keep
- ssh box-0 --stack keep
- ssh box-0 --stack keep -- true
- ssh box-0 --forward 80 --stack keep
- approve --stack keep
- finish --stack keep
- finish --box box-0 --stack keep
""",
    "silent": """
status
status --json
status --probe
results
logs seed0
wait --timeout 0.1s
pull
verify
retry seed2
drop seed2 --reason diverged
give-up RECEIPT cell/seed2 --reason diverged
finish
""",
    "unread": """
status --json
status --next
pull --json
pull --verify --json
verify --json
approve --json
retry seed1 --json
retry --failed --json
show seed1 --json
tend --once --json
pull --to s3://bucket/t --json
""",
    "orphaned": """
status
status --json
status --next
status --probe
results
- audit
- audit --end local:local-3degv2t6ni
- audit --end local:local-3degv2t6ni --abandon --reason lost
pull
verify
give-up data/box-0 --reason lost
finish
confirm gone box-0
confirm gone box-0 --saw x
adopt box-0 --reason x
adopt --reason x
""",
    "half-ended": """
status
status --json
status --next
status --probe
retry seed1
approve
finish
""",
    "elsewhere": """
status
status --next
pull
verify --json
results
approve
give-up data/box-0 --reason lost
finish
""",
    "no-answer": """
status
status --json
status --next
status --probe
verify
give-up data/box-0 --reason lost
finish
- audit
""",
    "edited": """
status
status --json
status --next
results
verify
give-up RECEIPT cell/seed2 --reason diverged
retry seed4
drop seed4 --reason x
place --show
""",
    "new": """
status
status --json
status --next
status --probe
pull
verify
results
ledger
approve
finish
show
""",
    "host": AFAR,
    "cluster": AFAR,
    "strays": "status\nstatus --json",
    "lost-state": """
status
- status --stack tt
results
""",
    "lost-state-gone": """
status
status --next
""",
    "lost-records": """
status
- audit
- audit --json
- audit --end local:local-3degv2t6ni
- audit --end local:local-3degv2t6ni --abandon
- audit --end local:local-3degv2t6ni --abandon --reason ' '
- audit --end local:local-3degv2t6ni --abandon --reason …
- audit --end local:local-3degv2t6ni --reason x
- audit --end local:local-3degv2t6ni --abandon --reason x
- audit --end local:local-3degv2t6ni --abandon --reason x --yes local-x
""",
    "silent-not-pulled": """
pull
pull --json
verify --json
""",
    "torn-volume": "pull --json",
    "held-elsewhere": """
status
give-up data/box-0 --reason lost
""",
    "oldest": """
status
status --json
status --next
results
ledger
policy
policy --json
verify
approve
""",
}
"""At this moment beside the others, or alone."""


def typed(name: str) -> list[str]:
    """The command lines of a moment, with the stack; `- ` before one that gets none."""
    lines = _lines(MORE.get(name, "" if name in LIVES else "status"))
    if name in LIVES:
        asks = _lines(ASKS) if name != "stopped" else []
        lines = [*_twice(LOOKS), *asks, *(_twice(READS) if name == "finished" else ()), *lines]
    return [line.removeprefix("- ") if line.startswith("- ") else f"{line} --stack t" for line in lines]


def filled(line: str) -> str:
    """With the digests that stand for the words in capitals."""
    return line.replace("RECEIPT", RECEIPT).replace("NONE", NONE)


def _twice(table: str) -> list[str]:
    return [line for one in _lines(table) for line in (one, f"{one} --json")]


def _lines(table: str) -> list[str]:
    return table.strip().splitlines()
