"""One page: HTML, style, script, data and plotting library in one text, which loads nothing.

Every text may come from a job, and is taken as hostile: it is escaped, what can't be seen in it is spelled out, and
the page's policy (CSP) allows the three scripts (two of BokehJS, one of ours) by their digests, no other one, and no
network.

The plotting library: BokehJS, as the package `bokeh` of the extra `report` ships it.

None of its Python is imported. Of the libraries that a wheel brings, plotly.js (4.8 MB) takes a browser 1.9 s of CPU
time before it draws anything, and BokehJS 0.3 s. docs/report.md has the figures.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweepstack.core.extras import lacks
from sweepstack.core.printable import visible
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.report.blocks import Areas, Block, Code, Facts, Items, Lines, Section, Spans, Table, Text, as_data

MARK = '<meta name="generator" content="sweepctl">'
"""Among the first 4096 bytes of each page: what may be written over."""
LONG = 48
"""A longer text of a table is broken into lines."""
TALL = 12
"""A table of more rows scrolls by itself on a screen."""


def page(title: str, sections: Sequence[Section], *, subtitle: str = "", find: str = "") -> str:
    """The whole page, as text of UTF-8. Pure but for the library, which is read from its package.

    `find`: the label of a field that filters tables and curves; "" for none. Without a plot it holds no library, and is
    some kilobytes; with one, 1.4 MB more. Raises SweepstackError where there is a plot and its package is not there.
    """
    plots = [block for section in sections for block in section.blocks if isinstance(block, Lines | Spans | Areas)]
    scripts = [*(library() if plots else ()), *([_own("page.js")] if plots or find else [])]
    allowed = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    policy = (
        f"default-src 'none'; script-src {allowed or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    used: set[str] = set()
    names = [_name(section.title, used) for section in sections]
    numbers = iter(range(len(plots)))
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{MARK}\n',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
        f"<title>{said(title)}</title>\n<style>\n{_own('page.css')}</style>\n</head>\n<body>\n",
        f"<header><h1>{said(title)}</h1>{f'<p>{said(subtitle)}</p>' if subtitle else ''}</header>\n",
        _contents(sections, names),
        _field(find) if find else "",
        "<main>\n",
        *(_section(name, section, numbers) for name, section in zip(names, sections, strict=True)),
        "</main>\n",
        *(
            f'<script type="application/json" id="data-{number}">{in_script(as_data(plot))}</script>\n'
            for number, plot in enumerate(plots)
        ),
        *(f"<script>{text}</script>\n" for text in scripts),
        "</body>\n</html>\n",
    ]
    return "".join(parts)


def said(text: str) -> str:
    """A text from anywhere as HTML, also within an attribute."""
    return escape(visible(text, keep="\n"))


def in_script(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends that element, or begins a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _contents(sections: Sequence[Section], names: Sequence[str]) -> str:
    links = "".join(
        f'<li><a href="#{name}">{said(one.title)}</a></li>' for name, one in zip(names, sections, strict=True)
    )
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'


def _field(label: str) -> str:
    return (
        f'<search><label for="find">{said(label)}</label> <input id="find" type="search" autocomplete="off" '
        'spellcheck="false"> <output id="found" for="find" aria-live="polite"></output></search>\n'
    )


def _section(name: str, section: Section, numbers: Iterator[int]) -> str:
    return (
        f'<section id="{name}"><h2>{said(section.title)}</h2>\n{"".join(_blocks(section.blocks, numbers))}</section>\n'
    )


def _blocks(blocks: Sequence[Block], numbers: Iterator[int]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Lines | Spans | Areas):
            yield _plot(block, next(numbers))
        else:
            yield _WRITERS[type(block)](block)


def _text(block: Text) -> str:
    mark = f' class="{block.tone}"' if block.tone != "plain" else ""
    return f"<p{mark}>{said(block.text)}</p>\n"


def _facts(block: Facts) -> str:
    return f"<dl>{''.join(f'<dt>{said(name)}</dt><dd>{said(value)}</dd>' for name, value in block.pairs)}</dl>\n"


def _items(block: Items) -> str:
    items = f"<ul>{''.join(f'<li>{said(item)}</li>' for item in block.items)}</ul>\n"
    return _folded(block.caption, items) if block.folded else items


def _code(block: Code) -> str:
    return f'<pre tabindex="0">{said(chr(10).join(block.lines))}</pre>\n'


def _table(block: Table) -> str:
    kinds = [
        " ".join(word for word, columns in (("right", block.right), ("mono", block.mono)) if number in columns)
        for number in range(len(block.headers))
    ]
    cells = [f' class="{kind}"' if kind else "" for kind in kinds]
    heads = [' class="right"' if number in block.right else "" for number in range(len(kinds))]
    head = "".join(f'<th scope="col"{mark}>{said(text)}</th>' for mark, text in zip(heads, block.headers, strict=True))
    rows = []
    for row in block.rows:
        first, *rest = zip(cells, row, strict=True)
        others = "".join(f"<td{mark or _wide(text)}>{said(text)}</td>" for mark, text in rest)
        rows.append(f'<tr><th scope="row"{first[0]}>{said(first[1])}</th>{others}</tr>\n')
    tall = " tall" if len(block.rows) > TALL else ""
    region = f'<div class="table{tall}" tabindex="0" role="region" aria-label="{said(block.caption)}">'
    finds = " data-find" if block.find else ""
    table = f"{region}<table{finds}><thead><tr>{head}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>\n"
    if block.folded:
        return _folded(block.caption, table)
    return f"<h3>{said(block.caption)}</h3>\n{table}"


def _folded(caption: str, html: str) -> str:
    return f"<details><summary>{said(caption)}</summary>{html}</details>\n"


def _wide(text: str) -> str:
    return ' class="long"' if len(text) > LONG else ""


def _plot(block: Lines | Spans | Areas, number: int) -> str:
    chooses = isinstance(block, Lines) and len(block.axes) > 1
    options = "".join(f"<option>{said(axis)}</option>" for axis in block.axes) if isinstance(block, Lines) else ""
    choice = f'<label class="colour">one colour for each <select data-plot="{number}">{options}</select></label>'
    return (
        f"<figure><figcaption>{said(block.caption)}{choice if chooses else ''}</figcaption>"
        f'<div class="plot" id="plot-{number}" data-plot="{number}"><p class="wait">not drawn yet</p></div></figure>\n'
    )


_WRITERS: dict[type, Callable[[Any], str]] = {Text: _text, Facts: _facts, Items: _items, Code: _code, Table: _table}


def _name(title: str, used: set[str]) -> str:
    """An id for a heading, which no other one has."""
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    name, number = base, 1
    while name in used or name == "find":
        number += 1
        name = f"{base}-{number}"
    used.add(name)
    return name


def _own(name: str) -> str:
    return (files("sweepstack.report") / name).read_text("utf-8")


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
