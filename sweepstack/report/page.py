"""One page: HTML and style in one text, which loads nothing.

Every text may come from a job, and is taken as hostile: it is escaped, what can't be seen in it is spelled out, and
the page's policy (CSP) allows the scripts that the page is given, by their digests, no other one, and no network.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from sweepstack.core.printable import visible
from sweepstack.report.blocks import Code, Facts, Html, Items, Section, Table, Text

MARK = '<meta name="generator" content="sweepctl">'
"""Among the first 4096 bytes of each page: what may be written over."""
LONG = 48
"""A longer text of a table is broken into lines."""
TALL = 12
"""A table of more rows scrolls by itself on a screen."""


def page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    above: str = "",
    below: str = "",
    scripts: Sequence[str] = (),
) -> str:
    """The whole page, as text of UTF-8. Pure.

    Without `scripts` it runs nothing, and is some kilobytes. `above`, `below`: HTML before and after the sections, as
    in `Html`.
    """
    allowed = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    policy = (
        f"default-src 'none'; script-src {allowed or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    style = (files("sweepstack.report") / "page.css").read_text("utf-8")
    used: set[str] = set()
    names = [_name(section.title, used) for section in sections]
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{MARK}\n',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
        f"<title>{said(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n",
        f"<header><h1>{said(title)}</h1>{f'<p>{said(subtitle)}</p>' if subtitle else ''}</header>\n",
        _contents(sections, names),
        above,
        "<main>\n",
        *(_section(name, section) for name, section in zip(names, sections, strict=True)),
        "</main>\n",
        below,
        *(f"<script>{text}</script>\n" for text in scripts),
        "</body>\n</html>\n",
    ]
    return "".join(parts)


def said(text: str) -> str:
    """A text from anywhere as HTML, also within an attribute."""
    return escape(visible(text, keep="\n"))


def _contents(sections: Sequence[Section], names: Sequence[str]) -> str:
    links = "".join(
        f'<li><a href="#{name}">{said(one.title)}</a></li>' for name, one in zip(names, sections, strict=True)
    )
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'


def _section(name: str, section: Section) -> str:
    blocks = "".join(_WRITERS[type(block)](block) for block in section.blocks)
    return f'<section id="{name}"><h2>{said(section.title)}</h2>\n{blocks}</section>\n'


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
    for number, row in enumerate(block.rows):
        first, *rest = zip(cells, row, [_key(block, column, number) for column in range(len(row))], strict=True)
        others = "".join(f"<td{mark or _wide(text)}{key}>{said(text)}</td>" for mark, text, key in rest)
        marked = ' class="marked"' if number in block.marked else ""
        rows.append(f'<tr{marked}><th scope="row"{first[0]}{first[2]}>{said(first[1])}</th>{others}</tr>\n')
    tall = " tall" if len(block.rows) > TALL else ""
    region = f'<div class="table{tall}" tabindex="0" role="region" aria-label="{said(block.caption)}">'
    finds = " data-find" if block.find else ""
    table = f"{region}<table{finds}><thead><tr>{head}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>\n"
    if block.folded:
        return _folded(block.caption, table)
    return f"<h3>{said(block.caption)}</h3>\n{table}"


def _key(block: Table, column: int, row: int) -> str:
    key = block.keys[column][row] if column in block.keys else None
    return f' data-key="{said(str(key))}"' if key is not None else ""


def _folded(caption: str, html: str) -> str:
    return f"<details><summary>{said(caption)}</summary>{html}</details>\n"


def _wide(text: str) -> str:
    return ' class="long"' if len(text) > LONG else ""


def _html(block: Html) -> str:
    return block.html


_WRITERS: dict[type, Callable[[Any], str]] = {
    Text: _text,
    Facts: _facts,
    Items: _items,
    Code: _code,
    Table: _table,
    Html: _html,
}


def _name(title: str, used: set[str]) -> str:
    """An id for a heading, which no other one has."""
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    name, number = base, 1
    while name in used or name == "find":
        number += 1
        name = f"{base}-{number}"
    used.add(name)
    return name
