"""Which moments of which golden sweeps are shown, and what is typed at each."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tests.golden.outputs.sweeps import (
    Moment,
    damaged,
    ended,
    not_approved,
    not_ended,
    not_pulled,
    still_running,
    stopped,
)

K4 = "schema-1-2026-11-27-K4.tar.xz"


def _at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-27T{clock}Z").replace(tzinfo=UTC)


MOMENTS = {
    "running": Moment(K4, _at("13:20:20"), "locked.json", (not_pulled, still_running("box-0", "seed0"))),
    "finished": Moment(K4, _at("13:20:20"), "locked.json", (not_approved,)),
    "stopped": Moment(K4, _at("15:20:20"), "locked.json", (not_approved, stopped)),
    "approved": Moment(K4, _at("13:20:40"), "cleared.json", (not_ended,)),
    "damaged": Moment(K4, _at("13:20:20"), "locked.json", (not_approved, damaged)),
    "ended": Moment(K4, _at("18:00:00"), "cleared.json", (ended,)),
}
RECEIPT = "sha256:e27e4d5a9bc67c8c257cf930f4193df99168b0e3c17b4f35a219eb3681b3db59"
NONE = f"sha256:{'0' * 64}"
LOOKS = """
status
next
patrol
results --all
ledger
"""
"""At each moment, as a screen and as a document: what only reads, and is another at each."""
ASKS = """
logs seed0
audit
wait --timeout 0.1s
retry --failed
retry seed1
drop seed2 --reason diverged
pull
approve
approve --receipt RECEIPT --waive seed2 --reason diverged
approve --abandon box-0 --reason lost
approve --verb stop --box box-0
approve --revoke
finish
confirm-gone box-0 --saw x
adopt box-0 --reason x
"""
"""At each moment, as a screen: what writes, or says why not. What was written is shown, and taken back."""
READS = """
curves
results --over none
provenance seed1
receipt
verify
policy
holders box-0
place --show
logs seed2 --tail 1
"""
"""At one moment, as a screen and as a document: what is the same at the others, or nearly."""
ONCE = """
results --csv
results --markdown
results --metric nosuch
logs nosuch
curves nosuch
provenance nosuch
receipt --export
receipt --sign
receipt NONE
holders nosuch
holders box-0 --end 1
ledger --against-bill
wait --for nonsense
wait --for verified --timeout 0.1s
audit --json
review
review --base nosuch
ssh nosuch
exec nosuch true
forward nosuch 1
forward box-0 nonsense
retry
retry nosuch
retry seed1 --reason again
drop nosuch --reason x
drop seed2
approve --receipt RECEIPT
approve --receipt NONE
approve --waive seed2
approve --waive nosuch --reason x
approve --abandon box-0
approve --abandon nosuch --reason x
approve --verb stop
approve --verb nonsense
approve --expires 1w
approve --expires 90h --receipt RECEIPT --waive seed2 --reason diverged
approve --cosign
approve --sign
finish --box box-1
finish --box nosuch
confirm-gone box-0
adopt
adopt nosuch --reason x
worker-ended box-0 w1 --saw x
trust-host box-0
trust-host nosuch
policy approve
policy approve --policy NONE
policy nonsense
place --clear
place --next
publish
publish s3://
publish --access box-0
smoke
init
audit --end local:local-abcdefghij
audit --end nonsense
status --nonsense
nonsense
"""
"""At one moment, as a screen: what is asked without what it needs, and what is no more than a look."""
AT_ONE = "finished"
OF_NO_STACK = re.compile(r"(audit|init|nonsense)\b")


def typed(name: str) -> list[str]:
    """The command lines of a moment."""
    lines = [twice for line in _lines(LOOKS) for twice in (line, f"{line} --json")] + _lines(ASKS)
    if name == AT_ONE:
        lines += [twice for line in _lines(READS) for twice in (line, f"{line} --json")] + _lines(ONCE)
    return [line if OF_NO_STACK.match(line) else f"{line} --stack t" for line in lines]


def filled(line: str) -> str:
    """With the digests that stand for the words in capitals."""
    return line.replace("RECEIPT", RECEIPT).replace("NONE", NONE)


def _lines(table: str) -> list[str]:
    return table.strip().splitlines()
