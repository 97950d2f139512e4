"""Accepts what the commands say now: `python -m tests.golden.outputs`, ten seconds. Then read `git diff tests/golden`.

`… --show` prints it as one document instead, state → text, and writes nothing: that is how the test asks.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(argv: list[str]) -> None:
    from tests.golden.outputs import still

    folder = still.stand_still()
    try:
        from tests.golden.outputs import play
        from tests.golden.outputs.moments import MOMENTS

        play.import_all()
        asked = [word for word in argv if word != "--show"] or list(MOMENTS)
        found = {name: play.play(name, folder) for name in asked}
    finally:
        shutil.rmtree(folder)
    if "--show" in argv:
        print(json.dumps(found))
        return
    for name, text in found.items():
        path = HERE / f"{name}.txt"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
