"""`python -m sweepstack.provider <engine address>`: starts the plugin.

`provider/pulumi-resource-sweepstack` runs it.
"""

from __future__ import annotations

import sys

from sweepstack.provider.grpc_service import serve


def main() -> int:
    """Serves until the engine is done. Without an address it exits with a message. The engine starts this twice for
    most commands, so the time that it takes to start counts."""
    if len(sys.argv) < 2:
        sys.exit("This is a Pulumi resource plugin: the engine starts it and hands it an address.")
    return serve(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
