"""Wraps what people read at 80 columns, and never breaks a command or a name that is copied."""

from __future__ import annotations

import re

COLUMNS = 80
IN_ENGINE = COLUMNS - 4
"""Of a message that the engine shows: it indents what stands below "Diagnostics:"."""
_WIDEST_LABEL = 18
"""With its gap. Below a longer one further lines are indented by two."""
_WORDS_BELOW = 7
"""A line that is indented by so much continues a labelled one."""

_BEGIN = (
    r"(?:[A-Z_]+=\S+ )*(?:sweepctl [a-z-]|pulumi (?:up|destroy|preview|stack|state|cancel|refresh|login)\b"
    r"|python3? -|git (?:pull|clone)|make (?:up|setup)|(?:cp|mv|install) ['/~-])"
)
_COMMAND = re.compile(rf"(?:\$ )?{_BEGIN}")
_NAMED = (
    rf"(?:(?<=: )|(?<=\bor )|(?<=\bthen ))(?={_BEGIN})"
    r"\S+(?: (?:\"[^\"]*\"|'[^']*'|[^\s,;()\"']*[^\s,;()\"'.:](?=[ ,;)]|[.:]?(?: |$))))*[.,;)]*(?!\S)"
)
_LABEL = re.compile(r"\s*(?:\S+(?: \S+)*)?\s{2,}(?=\S)")
_NEXT = re.compile(r" (?=Next(?:, [^:`]*)?: )")
_REMARK = re.compile(r"\s{4,}(?=\()")
_PHRASE = re.compile(r"(\s*)(\S+(?: \S+)*)")
_WORD = re.compile(rf"(\s*)({_NAMED}|(?:`[^`\n]*`|\S)+)")
"""A span in backquotes is a command or a name, and so one word; and a command that a sentence names is one."""


def fitted(text: str, columns: int = COLUMNS, *, taken: int = 0) -> str:
    """`text` with its long lines wrapped; what fits is left as it is. `taken`: columns that the first line has lost to
    what stands before it (`error: `).

    Further lines begin below the line's own text, right of its label. A command at the beginning of a line or behind a
    label (`next   sweepctl …`) is broken only behind ` && `, where a shell reads on; its remark (four spaces and a
    bracket) comes below it. What a sentence names as `Next: …` begins a line. So a line is longer than `columns` only
    where a single command or word is.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if taken + len(line) <= columns:
            lines.append(line)
        else:
            for part in _NEXT.split(line):
                lines += _wrapped(part, columns, taken)
                taken = 0
        taken = 0
    return "\n".join(lines)


def _wrapped(line: str, columns: int, taken: int) -> list[str]:
    if taken + len(line) <= columns:
        return [line]
    if taken > columns // 2:  # little room is left beside what stands before it
        return ["", *_wrapped(line, columns, 0)]
    indent = len(line) - len(line.lstrip())
    found = None if _COMMAND.match(line.lstrip()) else _LABEL.match(line)
    label = found[0] if found else line[:indent]
    rest = line[len(label) :]
    if _COMMAND.match(rest):
        return _command(label, rest, columns)
    if label.strip() and len(label) <= _WIDEST_LABEL:
        return _filled(label, _phrases(rest), len(label) + 2 * _in_columns(rest), columns, taken)
    below = _in_columns(line) or 0 < indent < _WORDS_BELOW or line.startswith(("* ", "Next"))
    return _filled(line[:indent], _phrases(line[indent:]), indent + 2 * below, columns, taken)


def _in_columns(text: str) -> bool:
    return re.search(r"\S\s{2,}\S", text) is not None


def _command(label: str, rest: str, columns: int) -> list[str]:
    """A chain of commands on one line where it fits, else one command a line. Below its label where it fits there, and
    where it has no room anywhere and its label is a wide one."""
    command, *remark = _REMARK.split(rest, maxsplit=1)
    parts = command.split(" && ")
    apart = [f"{part} &&" for part in parts[:-1]] + parts[-1:]
    widest = max(map(len, apart))
    hang, lower = len(label), 2 + (len(label) - len(label.lstrip()) if label.strip() else 0)
    below = hang > lower and hang + widest > columns and (lower + widest <= columns or hang > _WORDS_BELOW)
    hang = lower if below else hang
    lines = [command] if hang + len(command) <= columns else apart
    begin, shown = (label.rstrip(), lines) if below else (label + lines[0], lines[1:])
    found = [begin] * bool(begin) + [" " * hang + line for line in shown]
    for words in remark:
        if len(lines) == 1 and len(found[-1]) + 4 + len(words) <= columns:
            found[-1] += f"    {words}"
        else:
            found += _filled(" " * hang, _phrases(words), hang + 1, columns, 0)
    return found


def _phrases(text: str) -> list[list[tuple[str, str]]]:
    """Columns of a line as lists of words, each with the gap before it."""
    return [_WORD.findall(gap + words) for gap, words in _PHRASE.findall(text)]


def _filled(label: str, phrases: list[list[tuple[str, str]]], hang: int, columns: int, taken: int) -> list[str]:
    """Lines of these words. A phrase that has room on a line of its own is not broken."""
    lines: list[str] = []
    line, empty, left = label, True, columns - taken
    for phrase in phrases:
        whole = sum(len(gap) + len(word) for gap, word in phrase) if phrase else 0
        own = bool(phrase) and whole - len(phrase[0][0]) <= columns - hang
        if not empty and own and len(line) + whole > left:
            lines.append(line)
            line, empty, left = " " * hang, True, columns
        for gap, word in phrase:
            if line.strip() and len(line) + len(gap) * (not empty) + len(word) > left:
                begin = " " * (hang if hang + len(word) <= columns else min(hang, 2))
                if not empty or len(begin) < len(line):
                    lines.append(line.rstrip())
                    line, empty, left = begin, True, columns
            line += word if empty else gap + word
            empty = False
    return [*lines, line]
