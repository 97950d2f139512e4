"""The program of a cell's nodes: shipped as `nodes.py`, beside the package that it imports.

nodes.py preflight FILE | launch FILE | release BOX …     on the first node
nodes.py facts JSON | keep | end BOX …                            on a peer
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    verb, words = sys.argv[1], sys.argv[2:]
    result = 0
    if verb == "preflight":
        from sweepstack.onbox.nodes import preflight

        result = preflight.main(*words)
    elif verb == "launch":
        from sweepstack.onbox.nodes import launch

        result = launch.main(*words)
    elif verb == "keep":
        from sweepstack.onbox.nodes import keeper

        result = keeper.main()
    elif verb == "facts":
        from sweepstack.onbox.nodes import facts

        facts.serve(*words)
    elif verb == "release":
        from sweepstack.onbox.nodes import release

        result = release.main(*words)
    elif verb == "end":
        from sweepstack.onbox.nodes import release

        result = release.end(*words)
    sys.stdout.flush()
    os._exit(result)
