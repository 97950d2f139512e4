"""`python -m sweepstack.provider <engine address>`: what `provider/pulumi-resource-sweepstack` starts."""

from __future__ import annotations

import sys

from sweepstack.provider.host import serve


def main() -> int:
    """Serves until the engine is done. The engine starts this twice in most commands, so how long that takes counts."""
    if len(sys.argv) < 2:
        sys.exit("This is a Pulumi resource plugin: the engine starts it and hands it an address.")
    return serve(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
