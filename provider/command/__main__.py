"""`python -m provider.command <engine address>`: the stand-in, whatever else is installed."""

from __future__ import annotations

import sys

from provider.command.standin import StandIn
from provider.host import serve

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("This is a Pulumi resource plugin: the engine starts it and hands it an address.")
    sys.exit(serve(sys.argv[1], StandIn))
