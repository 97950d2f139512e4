"""Accepts what the commands say now: `python -m tests.golden.outputs`, ten seconds. Then read `git diff tests/golden`.

`… --show [NAME …]` prints one document instead, file → text, and writes nothing: that is how the test asks.
"""

from __future__ import annotations

import functools
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
        makers = {name: functools.partial(play.play, name, folder) for name in MOMENTS} | TEXTS
        found = {name: makers[name]() for name in argv[1:] or makers}
    finally:
        shutil.rmtree(folder)
    if argv:
        print(json.dumps(found))
        return
    for name, text in found.items():
        path = HERE / f"{name}.txt"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
