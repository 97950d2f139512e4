"""`python -m provider <engine address>`: what `provider/pulumi-resource-sweepstack` starts."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Serves until the engine is done. The engine starts this twice in most commands, so how long that takes counts."""
    if len(sys.argv) < 2:
        sys.exit("This is a Pulumi resource plugin: the engine starts it and hands it an address.")
    gc.disable()  # what is imported stays: going through it again and again is a sixth of the start
    from sweepstack.provider.host import serve

    gc.freeze()
    gc.enable()
    return serve(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
