"""The id of a cell's run in trackers: the same for all tries of the cell, wherever they run."""

from __future__ import annotations

from sweepstack.onbox.common.canonical import digest_of, hex_of

VARIABLE = "WANDB_RUN_ID"
"""The variable by which a client takes it."""


def run_id(identity: str, cell: str) -> str:
    """`<sweep>-<16 hex digits>`. Of letters, digits and `-` alone and short, whatever the cell is called: Weights &
    Biases takes 64 characters, and may write others in another way."""
    return f"{identity}-{hex_of(digest_of(cell))[:16]}"
