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
        from tests.golden.outputs.texts import TEXTS

        play.import_all()
        found = {name: play.play(name, folder) for name in MOMENTS} | {name: make() for name, make in TEXTS.items()}
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
