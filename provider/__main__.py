"""`python -m provider <engine address>`: what `provider/pulumi-resource-sweepstack` starts."""

from __future__ import annotations

import sys

from provider.host import serve

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("This is a Pulumi resource plugin: the engine starts it and hands it an address.")
    sys.exit(serve(sys.argv[1]))
