"""What a sweep costs, and what is checked before it costs anything: ledger."""

from __future__ import annotations

from sweep.cli.app import AsJson, Stack, answer, app


@app.command()
def ledger(stack: Stack = None, json: AsJson = False) -> None:
    """Show every box ever rented: hours, rate, USD, why it ended. Exit 2: a part of the bill is not known."""

    def ask() -> int:
        from sweep.cli.ledger import ledger as run
        from sweep.cli.output import Out
        from sweep.cli.target import Target

        return run(Target.find(stack), Out(as_json=json))

    answer(ask)
