"""A shell script whose loops, or whose array of Slurm, start one training run each.

It is read, never run: loops over lists, ranges, arrays and files, assignments, and tests that go on with the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweepstack.extensions.importers.found import MOST_ROWS, Found, Lost, few, quoted
from sweepstack.extensions.importers.shell_words import (
    NAME,
    SLOT,
    Cant,
    Scope,
    Value,
    arithmetic,
    expand,
    plain,
    several,
    slot,
    statements,
    varies,
    words_of,
)
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import No, SweepstackError

TASK = "SLURM_ARRAY_TASK_ID"
SILENT = (
    "echo",
    "printf",
    "mkdir",
    "set",
    "wait",
    "sleep",
    "date",
    "hostname",
    "nvidia-smi",
    "exit",
    "true",
    ":",
    "sync",
)
PLACES = (
    "cd",
    "module",
    "source",
    ".",
    "conda",
    "mamba",
    "pip",
    "uv",
    "unset",
    "ulimit",
    "trap",
    "shopt",
    "rm",
    "cp",
    "mv",
)
ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
TEST = re.compile(r"\[\[?\s+(.*?)\s+\]\]?", re.DOTALL)
COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "-eq": lambda a, b: float(a) == float(b), "-ne": lambda a, b: float(a) != float(b),
    "-lt": lambda a, b: float(a) < float(b), "-le": lambda a, b: float(a) <= float(b),
    "-gt": lambda a, b: float(a) > float(b), "-ge": lambda a, b: float(a) >= float(b),
}  # fmt: skip


class _Next(SweepstackError):
    """`continue`."""


@dataclass
class Started:
    """One cell: the words of its commands, and what varies in them."""

    line: int
    commands: list[list[Value]]
    row: dict[str, str]


@dataclass
class Reader:
    """Goes through a script as bash would; `started` are the cells in their order."""

    found: Found
    scope: Scope
    started: list[Started] = field(default_factory=list)
    loops: dict[str, str] = field(default_factory=dict)
    env: dict[str, Value] = field(default_factory=dict)
    counted: int = 0
    current: Started | None = None

    def lose(self, line: int, what: str) -> None:
        """As `Found.lose`, once for a line."""
        if Lost(self.found.file, line, what) not in self.found.lost:
            self.found.lose(line, what)

    def run(self, body: list[tuple[int, str]]) -> None:
        """Statements one after the other."""
        at = 0
        while at < len(body):
            line, text = body[at]
            word = text.split(None, 1)[0] if text else ""
            if word in ("for", "while", "until"):
                end = _end(body, at, ("for", "while", "until"), "done")
                self.loop(line, text, [_do(one) for one in body[at + 1 : end]], body[end][1])
                at = end + 1
            elif word in ("if", "case"):
                end = _end(body, at, (word,), "fi" if word == "if" else "esac")
                self.condition(line, text, body[at + 1 : end])
                at = end + 1
            else:
                self.statement(line, text)
                at += 1

    def loop(self, line: int, head: str, body: list[tuple[int, str]], done: str) -> None:
        body = [(number, text) for number, text in body if text]
        for names, values in self._turns(line, head, done):
            self.counted += 1
            if self.counted > MOST_ROWS:
                raise No(f"{self.found.file}:{line}: more than {MOST_ROWS:,} turns of its loops")
            kept = dict(self.scope.values), dict(self.loops)
            for name, value in zip(names, values, strict=False):
                self.bind(name, value)
            inner = not any(re.match(r"(for|while)\b", text) for _, text in body)
            if inner:
                self.current = Started(line, [], {})
            try:
                self.run(body)
            except _Next:
                if inner and self.current is not None and not self.current.commands:
                    self.current = None
            if inner:
                self.close()
            self.scope.values, self.loops = kept

    def close(self) -> None:
        """Ends a cell."""
        if self.current is not None and self.current.commands:
            self.started.append(self.current)
        self.current = None

    def bind(self, name: str, value: Value) -> None:
        """A variable that differs from cell to cell."""
        self.loops[name] = value.text
        self.scope.values[name] = Value(value.text, slot(name))

    def _turns(self, line: int, head: str, done: str) -> list[tuple[list[str], list[Value]]]:
        if found := re.fullmatch(r"for\s+\(\((.*?);(.*?);(.*?)\)\)", head, re.DOTALL):
            return self._counted(line, found[1], found[2], found[3])
        if found := re.fullmatch(r"for\s+(\w+)\s+in\s+(.*)", head, re.DOTALL):
            words = [value for word in words_of(found[2]) for value in several(word, self.scope, line)]
            return [([found[1]], [word]) for word in words]
        if found := re.fullmatch(r"while\s+(?:IFS=\S*\s+)?read\s+(?:-r\s+)?([\w\s]+)", head):
            source = re.search(r"<\s*(\S+)\s*$", done)
            if source is None:
                raise Cant(line, "a loop over what is piped into it")
            path = self.scope.root / expand(source[1], self.scope, line).text
            names = found[1].split()
            comma = "," if re.search(r"IFS=['\"]?,", head) else None
            try:
                rows = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                raise Cant(line, f"{source[1]} does not read") from None
            return [(names, _fields(row, comma, len(names))) for row in rows if row.strip()]
        raise Cant(line, f"{head.split(chr(10))[0]}")

    def _counted(self, line: int, first: str, test: str, step: str) -> list[tuple[list[str], list[Value]]]:
        name, _, begin = first.replace(" ", "").partition("=")
        against = re.fullmatch(rf"\s*{name}\s*(<=|<|>=|>)\s*(.*)", test)
        by = re.fullmatch(rf"\s*(?:{name}(\+\+|--)|(\+\+|--){name}|{name}\s*([+-])=\s*(\d+))\s*", step)
        if not NAME.fullmatch(name) or against is None or by is None:
            raise Cant(line, f"for (({first};{test};{step}))")
        each = int(f"{by[3]}{by[4]}") if by[3] else 1 if "+" in (by[1] or by[2]) else -1
        if not each:
            raise Cant(line, f"for (({first};{test};{step})): it never ends")
        end = (
            arithmetic(against[2], self.scope, line)
            + (each > 0) * ("=" in against[1])
            - (each < 0) * ("=" in against[1])
        )
        numbers = few(range(arithmetic(begin, self.scope, line), end, each), f"{self.found.file}:{line}")
        return [([name], [plain(str(number))]) for number in numbers]

    def condition(self, line: int, head: str, body: list[tuple[int, str]]) -> None:
        """`if [ … ]; then continue; fi`, and blocks that start nothing."""
        inside = [text.removeprefix("then").strip() for _, text in body]
        inside = [text for text in inside if text]
        test = TEST.fullmatch(head.removeprefix("if").strip())
        if inside == ["continue"] and test is not None and self.holds(test[1], line):
            raise _Next
        if inside == ["continue"] and test is not None:
            return
        known = all((words_of(text) or [""])[0] in (*SILENT, "else", "fi") for text in inside)
        if known:
            return
        if head.startswith("if") and test is not None and not any(text.startswith("elif") for text in inside):
            lines = [(number, text.removeprefix("then").strip()) for number, text in body]
            cut = next((at for at, (_, text) in enumerate(lines) if re.match(r"else\b", text)), len(lines))
            rest = [(number, text.removeprefix("else").strip()) for number, text in lines[cut:]]
            part = lines[:cut] if self.holds(test[1], line) else rest
            self.run([(number, text) for number, text in part if text])
            return
        raise Cant(line, f"{head}: what is run under this condition")

    def holds(self, test: str, line: int) -> bool:
        """Whether a test of two texts or numbers is true in this cell."""
        for sign, every in (("||", any), ("&&", all)):
            if sign in test:
                parts = [re.sub(r"^\s*\[\[?|\]\]?\s*$", "", part).strip() for part in test.split(sign)]
                return every(self.holds(part, line) for part in parts)
        words = words_of(test)
        if len(words) != 3 or words[1] not in COMPARES:
            raise Cant(line, f"[ {test} ]")
        one, other = (expand(word, self.scope, line).text for word in (words[0], words[2]))
        try:
            return COMPARES[words[1]](one, other)
        except ValueError:
            raise Cant(line, f"[ {test} ]") from None

    def statement(self, line: int, text: str) -> None:
        """One simple command, or an assignment."""
        if found := re.fullmatch(r"(\[\[?\s.*?\s\]\]?(?:\s*(?:&&|\|\|)\s*\[\[?\s.*?\s\]\]?)*)\s*&&\s*continue", text):
            inside = re.sub(r"\]\]?\s*(&&|\|\|)\s*\[\[?", r"\1", found[1])
            if self.holds(re.sub(r"^\[\[?\s*|\s*\]\]?$", "", inside), line):
                raise _Next
            return
        if text == "continue":
            raise _Next
        if re.match(r"[A-Za-z_]\w*\s*\(\)", text) or text.startswith("function "):
            raise Cant(line, f"{text.split('{')[0].strip()}: a function")
        text = re.sub(
            r"^(export|local|readonly|declare(\s+-\w+)*|typeset)\s+(?=\w+=)", lambda m: self._export(m, text), text
        )
        if found := re.fullmatch(r"([A-Za-z_]\w*)(\+?)=\((.*)\)", text, re.DOTALL):
            values = [value for word in words_of(found[3]) for value in several(word, self.scope, line)]
            self.scope.arrays[found[1]] = (self.scope.arrays.get(found[1], []) if found[2] else []) + values
            return
        parts = re.split(r"\s+&&\s+", text)
        for part in parts:
            self._simple(line, part)

    def _export(self, match: re.Match[str], text: str) -> str:
        if match[1] == "export":
            name = text[match.end() :].partition("=")[0]
            self.env[name] = plain("")
        return ""

    def _simple(self, line: int, text: str) -> None:
        words = _without_redirections(words_of(text))
        if not words:
            return
        if len(words) == 1 and (found := ASSIGN.fullmatch(words[0])):
            self.assign(line, found[1], found[2])
            return
        start = next((word for word in words if not ASSIGN.fullmatch(word)), "")
        if start in SILENT:
            return
        if start in PLACES:
            self.lose(line, f"{text}: prepare a box in job.setup, or by the Python that `run` names")
            return
        values: list[Value] = []
        for word in words:
            array = re.fullmatch(r"\"?\$\{\w+\[[@*]\]\}\"?", word)
            values += several(word, self.scope, line) if array else [expand(word, self.scope, line)]
        values = [
            self.settled(f"{line}_{at}", value, values[at - 1].text if at else "") for at, value in enumerate(values)
        ]
        cell = self.current or Started(line, [], {})
        cell.commands.append(self._started(line, values))
        cell.row |= self.loops
        if self.current is None:
            self.started.append(cell)

    def _started(self, line: int, values: list[Value]) -> list[Value]:
        """Without what only starts a command on a cluster or in the background."""
        kept: list[Value] = []
        for at, value in enumerate(values):
            if value.text.startswith("CUDA_VISIBLE_DEVICES="):
                self.found.note("CUDA_VISIBLE_DEVICES is set by the box: one GPU a cell, or job.slots")
            elif value.text in ("nohup", "time", "exec", "srun", "command") and not any(
                not ASSIGN.fullmatch(one.text) for one in kept
            ):
                if value.text == "srun":
                    rest = values[at + 1 :]
                    options = 0
                    while options < len(rest) and rest[options].text.startswith("-"):
                        options += 1
                    for option in rest[:options]:
                        if option.text not in ("--unbuffered", "-u", "--exclusive"):
                            self.lose(line, f"srun {option.text}")
                    return kept + rest[options:]
            else:
                kept.append(value)
        return kept

    def settled(self, place: str, value: Value, before: str) -> Value:
        """A computed value in a word becomes a parameter of its own, by the name of its option."""
        if not varies(value):
            return value
        option = re.fullmatch(r"--?([A-Za-z][\w.-]*)", before) or re.match(r"--?([A-Za-z][\w.-]*)=", value.template)
        name = re.sub(r"\W", "_", option[1]) if option else f"value_{place}"
        name = f"{name}_{place}" if name in self.loops else name
        kept = f"{option[0]}" if option and option[0].endswith("=") else ""
        self.loops[name] = value.text.removeprefix(kept)
        return Value(value.text, f"{kept}{slot(name)}")

    def assign(self, line: int, name: str, text: str) -> None:
        """A variable. What was computed of what varies is one that varies."""
        value = expand(text, self.scope, line)
        if varies(value):
            self.bind(name, value)
        else:
            self.scope.values[name] = value
        if name in self.env:
            self.env[name] = value


def _without_redirections(words: list[str]) -> list[str]:
    kept, at = [], 0
    while at < len(words):
        word = words[at]
        if word == "|" or word == "||":
            break  # `| tee log`: the cell's log keeps what is printed
        if re.fullmatch(r"\d?>>?|&>>?|<", word):
            at += 2
            continue
        if not re.match(r"\d?>|&>|<", word) and word != "&":
            kept.append(word)
        at += 1
    return kept


def _fields(row: str, comma: str | None, count: int) -> list[Value]:
    parts = [part.strip() for part in row.split(comma, count - 1)]
    return [plain(part) for part in [*parts, *[""] * (count - len(parts))]]


def _do(one: tuple[int, str]) -> tuple[int, str]:
    return one[0], re.sub(r"^do\b\s*", "", one[1])


def _end(body: list[tuple[int, str]], at: int, opens: tuple[str, ...], closes: str) -> int:
    depth = 0
    for place in range(at, len(body)):
        text = re.sub(r"^(do|then|else)\b\s*", "", body[place][1])
        depth += bool(re.match(rf"({'|'.join(opens)})\b", text)) - bool(re.match(rf"{closes}\b", text))
        if not depth:
            return place
    raise Cant(body[at][0], f"{body[at][1]}: its {closes} is missing")


def read_loops(text: str, shown: str, root: Path) -> Found:
    """The cells of a script's loops. Raises No with the line of what is not understood."""
    found = Found("shell script", shown)
    reader = Reader(found, Scope(root))
    try:
        reader.run(statements(text))
        reader.close()
    except Cant as cant:
        raise No(f"{shown}:{cant.line}: {cant.what}. List the cells in a CSV file, or in `cells`") from None
    if not reader.started:
        raise No(f"{shown}: no command that it starts was found")
    fill(found, reader)
    return found


def fill(found: Found, reader: Reader) -> None:
    """Cells of what a script started: the command once, and in each cell what differs. Commands of different words
    become one parameter, the whole line."""
    started = reader.started
    templates = {tuple(tuple(word.template for word in command) for command in cell.commands) for cell in started}
    if len(templates) > 1:
        by_words(found, [[[word.text for word in command] for command in cell.commands] for cell in started])
        return
    template = templates.pop()
    env = {name: value.template for name, value in reader.env.items() if value.template}
    used = {name for command in template for word in command for name in SLOT.findall(word)}
    names = [name for name in started[0].row if name in used]
    rows = [tuple(cell.row.get(name, "") for name in names) for cell in started]
    if len(set(rows)) < len(rows):  # told apart by a variable that the command itself reads
        names = list(started[0].row)
        rows = [tuple(cell.row.get(name, "") for name in names) for cell in started]
        env |= {name: slot(name) for name in names if name not in used}
    safe = {name: found.name(name) for name in names}
    found.rows = [{safe[name]: typed(value) for name, value in zip(names, row, strict=True)} for row in rows]
    found.run = " && ".join(" ".join(_word(word, safe) for word in command) for command in template)
    found.program = next((w for command in template for w in command if w.endswith(".py")), "")
    if env:
        found.job["env"] = {name: _filled(found, name, text, safe) for name, text in env.items()}
    if found.rows == [{}]:
        found.rows = []


def by_words(found: Found, cells: list[list[list[str]]]) -> None:
    """Cells of commands that are written out: words that differ become parameters, by the name of their option."""
    flat = [[word for command in cell for word in [*command, "&&"]][:-1] for cell in cells]
    if len({len(words) for words in flat}) > 1:
        found.rows = [{found.name("command"): " ".join(map(quoted, words)).replace("'&&'", "&&")} for words in flat]
        found.run = "sh -c {command}"
        found.note("its commands have different options: each is one text, which is the cell's parameter")
        return
    words: list[str] = []
    rows: list[dict[str, Any]] = [{} for _ in flat]
    for column, values in enumerate(zip(*flat, strict=True)):
        if len(set(values)) == 1:
            words.append("&&" if values[0] == "&&" else quoted(values[0]))
            continue
        heads = {value.partition("=")[0] for value in values}
        option = heads.pop() if len(heads) == 1 and all("=" in value for value in values) else ""
        before = flat[0][column - 1] if column else ""
        name = found.name(option or (before if before.startswith("-") else f"arg{column}"))
        for row, value in zip(rows, values, strict=True):
            row[name] = typed(value.partition("=")[2] if option else value)
        words.append(f"{quoted(option + '=') if option else ''}{{{name}}}")
    found.rows = rows
    found.run = " ".join(words)
    found.program = next((word for word in words if word.endswith(".py")), "")


def typed(text: str) -> Any:
    """A word as a value: a number where it is spelled as one, so that the cell's name is; else the text."""
    if re.fullmatch(r"-?(0|[1-9]\d*)", text):
        return int(text)
    if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", text) and repr(float(text)) == text:
        return float(text)
    return text


def _filled(found: Found, name: str, text: str, safe: dict[str, str]) -> str:
    """A template of a variable of the environment."""
    pieces = SLOT.split(text)
    return "".join(
        f"{{{safe.get(piece, piece)}}}" if at % 2 else found.filled(f"{name}_text{at or ''}", piece)
        for at, piece in enumerate(pieces)
    )


def _word(word: str, safe: dict[str, str]) -> str:
    """A template as a word for the shell."""
    if assigned := ASSIGN.fullmatch(word):
        return f"{assigned[1]}={_word(assigned[2], safe) if assigned[2] else quoted('')}"
    pieces = SLOT.split(word)
    made = [f"{{{safe.get(piece, piece)}}}" if at % 2 else quoted(piece) for at, piece in enumerate(pieces) if piece]
    return "".join(made) or quoted("")
