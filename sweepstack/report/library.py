"""The plotting library: BokehJS, as the package `bokeh` of the extra `report` ships it.

None of its Python is imported. Of the libraries that a wheel brings, plotly.js (4.8 MB) takes a browser 1.9 s of CPU
time before it draws anything, and BokehJS 0.3 s. docs/report.md has the figures.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sweepstack.core.extras import lacks
from sweepstack.onbox.common.errors import SweepstackError

FILES = ("bokeh.min.js", "bokeh-api.min.js")


class NoLibrary(SweepstackError):
    """The package is not installed, or has other files."""


@cache
def library() -> tuple[str, ...]:
    """The scripts, in the order in which they are run. Raises NoLibrary."""
    if missing := lacks("report"):
        raise NoLibrary(f"a page with plots can't be written: {missing}")
    spec = find_spec("bokeh")
    assert spec is not None
    folder = Path(next(iter(spec.submodule_search_locations or [""]))) / "server" / "static" / "js"
    try:
        # Within an element `script`, no text may close it; in JavaScript the escape means the same.
        return tuple((folder / name).read_text("utf-8").replace("</script", "<\\/script") for name in FILES)
    except OSError as error:
        raise NoLibrary(
            f"{error.filename} can't be read ({error.strerror}): pip install --force-reinstall bokeh"
        ) from error
