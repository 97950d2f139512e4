"""Reads the words of a shell script, and expands them as bash would, with placeholders.

No shell is started. What is not known here raises `Cant` with its line.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sweepstack.extensions.importers.found import few
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError, one_line

NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBERS: dict[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv,
}  # fmt: skip


class Cant(SweepstackError):
    """A line of a script that is not understood."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, one_line(what)


@dataclass(frozen=True)
class Value:
    """A text as it is in this cell, and with placeholders in place of what varies."""

    text: str
    template: str

    def __add__(self, other: Value) -> Value:
        return Value(self.text + other.text, self.template + other.template)


@dataclass
class Scope:
    """Variables and arrays. `root`: the folder that names of files are of."""

    root: Path
    values: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, list[Value]] = field(default_factory=dict)


SLOT = re.compile("\x02(\\w+)\x03")
"""A placeholder in a template, as no text of a script is spelled."""


def slot(name: str) -> str:
    """The placeholder of a variable, in a template."""
    return f"\x02{name}\x03"


def plain(text: str) -> Value:
    """A text in which nothing varies."""
    return Value(text, text)


def statements(text: str) -> list[tuple[int, str]]:
    """(line, statement), without comments; separated by `;`, `&` and ends of lines outside of quotes and brackets."""
    found, line, begin, piece, quote, depth, at = [], 1, 1, "", "", 0, 0
    while at < len(text):
        one, two = text[at], text[at : at + 2]
        if two == "\\\n":
            at, line, piece = at + 2, line + 1, piece + " "
            continue
        if one == "\\" and quote != "'":
            piece, at = piece + two, at + 2
            continue
        if quote:
            quote = "" if one == quote else quote
        elif one in "'\"`":
            quote = one
        elif one == "#" and (not piece.strip() or piece[-1].isspace()) and not depth:
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        elif one in "({":
            depth += one == "(" or piece.endswith("$")
        elif one in ")}":
            depth -= (one == ")" or "${" in piece) and depth > 0
        elif not depth and (one in ";\n" or (one == "&" and two != "&&" and piece[-1:] not in "&><")):
            found.append((begin, piece.strip()))
            piece, at, line = "", at + 1, line + (one == "\n")
            begin = line
            continue
        if not piece.strip():
            begin = line
        line += one == "\n"
        piece, at = piece + one, at + 1
    found.append((begin, piece.strip()))
    return [(number, one) for number, one in found if one]


def words_of(text: str) -> list[str]:
    """The words of a statement, with their quotes."""
    found, piece, quote, depth, at = [], "", "", 0, 0
    while at < len(text):
        one = text[at]
        if one == "\\" and quote != "'":
            piece, at = piece + text[at : at + 2], at + 2
            continue
        if quote:
            quote = "" if one == quote else quote
        elif one in "'\"`":
            quote = one
        elif one in "({":
            depth += 1
        elif one in ")}":
            depth -= 1
        elif one.isspace() and depth <= 0:
            if piece:
                found.append(piece)
            piece, at = "", at + 1
            continue
        piece, at = piece + one, at + 1
    return [*found, piece] if piece else found


def expand(word: str, scope: Scope, line: int) -> Value:
    """One word as one text."""
    made, at, quote = plain(""), 0, ""
    while at < len(word):
        one = word[at]
        if quote == "'" and one != "'":
            made += plain(one)
        elif one in "'\"" and quote in ("", one):
            quote = "" if quote else one
        elif one == "\\" and at + 1 < len(word):
            made, at = made + plain(word[at + 1]), at + 1
        elif one == "$" or one == "`":
            value, at = _dollar(word, at, scope, line)
            made += value
            continue
        else:
            made += plain(one)
        at += 1
    return made


def several(word: str, scope: Scope, line: int) -> list[Value]:
    """The words that one word of a list (`for x in …`, `A=(…)`) becomes."""
    bare = word.strip('"')
    if found := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", bare):
        if found[1] not in scope.arrays:
            raise Cant(line, f"{word}: an array that is not set above")
        return scope.arrays[found[1]]
    if found := re.fullmatch(r"\$\{!(\w+)\[@\]\}", bare):
        return [plain(str(index)) for index in range(len(scope.arrays.get(found[1], [])))]
    if found := re.fullmatch(r"\$\((.*)\)|`(.*)`", bare, re.DOTALL):
        return [plain(one) for one in _command(found[1] or found[2], scope, line).split()]
    if "'" not in word and '"' not in word:
        braces = few(_braces(word), f"line {line}: {word}")
        if braces != [word]:
            return [value for one in braces for value in several(one, scope, line)]
        if re.search(r"[*?\[]", re.sub(r"\$\{[^}]*\}", "", word)):
            pattern = expand(word, scope, line).text
            names = sorted(str(path.relative_to(scope.root)) for path in scope.root.glob(pattern.removeprefix("./")))
            if not names:
                raise Cant(line, f"{word}: no such file in {scope.root.name}/")
            return [plain(name) for name in names]
        if re.fullmatch(r"\$\w+|\$\{\w+\}", word):
            value = expand(word, scope, line)
            return [value] if value.text != value.template else [plain(one) for one in value.text.split()]
    return [expand(word, scope, line)]


def _braces(word: str) -> Iterator[str]:
    """`{0..4}`, `{0..10..2}` and `{a,b}`."""
    found = re.search(r"(?<!\$)\{([^{}$]*)\}", word)
    if found is None or not re.search(r"\.\.|,", found[1]):
        yield word
        return
    before, after = word[: found.start()], word[found.end() :]
    if "," in found[1]:
        inside: Iterable[str] = found[1].split(",")
    else:
        ends = found[1].split("..")
        if not all(re.fullmatch(r"-?\d+", one) for one in ends):
            yield word
            return
        low, high = int(ends[0]), int(ends[1])
        step = abs(int(ends[2])) if len(ends) > 2 else 1
        width = max(map(len, ends[:2])) if any(re.match(r"-?0\d", one) for one in ends[:2]) else 0
        numbers = range(low, high + 1, step or 1) if low <= high else range(low, high - 1, -(step or 1))
        inside = (str(number).zfill(width) for number in numbers)
    for one in inside:
        yield from _braces(before + one + after)


def _dollar(word: str, at: int, scope: Scope, line: int) -> tuple[Value, int]:
    """What a `$…` at this place is, and where it ends."""
    rest = word[at:]
    if rest.startswith("$(("):
        end = _closing(word, at + 1)
        return computed(word[at + 3 : end - 2], scope, line), end
    if rest.startswith("$("):
        end = _closing(word, at + 1)
        return plain(_command(word[at + 2 : end - 1], scope, line)), end
    if rest.startswith("`"):
        end = word.index("`", at + 1) + 1
        return plain(_command(word[at + 1 : end - 1], scope, line)), end
    if rest.startswith("${"):
        end = _closing(word, at + 1)
        return _braced(word[at + 2 : end - 1], scope, line), end
    found = NAME.match(rest, 1)
    if found is None:
        if rest[1:2] in "@*#?!$" or rest[1:2].isdigit():
            raise Cant(line, f"{rest[:2]}: an argument of the script")
        return plain("$"), at + 1
    return _variable(found[0], scope, line), at + found.end()


def _closing(word: str, at: int) -> int:
    depth = 0
    for place in range(at, len(word)):
        depth += (word[place] in "({") - (word[place] in ")}")
        if not depth:
            return place + 1
    return len(word)


def _variable(name: str, scope: Scope, line: int) -> Value:
    if name in scope.values:
        return scope.values[name]
    if scope.arrays.get(name):
        return scope.arrays[name][0]
    raise Cant(line, f"${name} is not set in this file")


def _braced(inside: str, scope: Scope, line: int) -> Value:
    if found := re.fullmatch(r"#(\w+)\[[@*]\]", inside):
        if found[1] not in scope.arrays:
            raise Cant(line, f"${{{inside}}}: an array that is not set above")
        return plain(str(len(scope.arrays[found[1]])))
    if found := re.fullmatch(r"(\w+)\[(.+)\]", inside):
        array = scope.arrays.get(found[1])
        index = arithmetic(found[2], scope, line)
        if array is None or not -len(array) <= index < len(array):
            raise Cant(line, f"${{{inside}}}: the array has no such value")
        return Value(array[index].text, _VARIES if _varies(found[2], scope) else array[index].template)
    if found := re.fullmatch(r"(\w+):?-(.*)", inside):
        return scope.values[found[1]] if found[1] in scope.values else expand(found[2], scope, line)
    if NAME.fullmatch(inside):
        return _variable(inside, scope, line)
    raise Cant(line, f"${{{inside}}}")


_VARIES = "\0"
"""Stands in a template for a value that was computed of what varies: it becomes a parameter of its own."""


def computed(expression: str, scope: Scope, line: int) -> Value:
    """`$((…))`."""
    number = str(arithmetic(expression, scope, line))
    return Value(number, _VARIES if _varies(expression, scope) else number)


def varies(value: Value) -> bool:
    """Whether a computed value is in it."""
    return _VARIES in value.template


def _varies(expression: str, scope: Scope) -> bool:
    return any(
        name in scope.values and scope.values[name].text != scope.values[name].template
        for name in NAME.findall(expression)
    )


def arithmetic(expression: str, scope: Scope, line: int) -> int:
    """A whole number by the rules of the shell. Raises Cant."""
    text = re.sub(r"\$\{#(\w+)\[[@*]\]\}", lambda match: str(len(scope.arrays.get(match[1], []))), expression)
    while (shorter := re.sub(r"\$\(\(([^()]*)\)\)", r"(\1)", text)) != text:
        text = shorter
    text = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda match: match[1] or match[2], text)
    text = NAME.sub(lambda match: _variable(match[0], scope, line).text or "0", text)
    try:
        return _whole(ast.parse(text.strip().strip('"'), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        raise Cant(line, f"{expression.strip()}: arithmetic that is not understood") from None


def _whole(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_whole(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
        return int(_NUMBERS[type(node.op)](_whole(node.left), _whole(node.right)))
    raise ValueError


def _command(text: str, scope: Scope, line: int) -> str:
    """What a command between `$(` and `)` prints: seq, echo, basename, and one line of a file."""
    pipe = text.strip()
    words = [expand(word, scope, line).text for word in words_of(pipe.split("|")[0])]
    if "|" not in pipe and words[:1] == ["seq"] and all(re.fullmatch(r"-?\d+(\.\d+)?", word) for word in words[1:]):
        return _seq(words[1:])
    if "|" not in pipe and words[:1] == ["echo"]:
        return " ".join(words[1:])
    if "|" not in pipe and words[:1] == ["basename"] and len(words) > 1:
        return Path(words[1]).name.removesuffix(words[2] if len(words) > 2 else "")
    row = (
        re.fullmatch(r"(\d+)p", words[2])
        if words[:2] == ["sed", "-n"] and len(words) == 4 and "|" not in pipe
        else None
    )
    if row is not None:
        try:
            lines = (scope.root / words[3]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise Cant(line, f"{words[3]} does not read") from None
        if int(row[1]) > len(lines):
            raise Cant(line, f"{words[3]} has no line {row[1]}")
        return lines[int(row[1]) - 1]
    raise Cant(line, f"$({pipe}): what a command prints")


def _seq(words: list[str]) -> str:
    if any("." in word for word in words):
        from decimal import Decimal

        numbers = [Decimal(word) for word in words]
    else:
        numbers = [int(word) for word in words]  # type: ignore[misc]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) > 2 else 1
    made: list[str] = []
    now = first
    while step and len(made) < 100_000 and (now <= numbers[-1] if step > 0 else now >= numbers[-1]):
        made.append(str(now))
        now += step
    return "\n".join(made)
