"""Types commands, keeps what was typed and said, and proves that each command had been named before it was needed."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.engine import commands
from tests.engine.commands import Result
from tests.engine.harness import ROOT, Stack
from tests.engine.package_project import Project

SHOWN_LINES = 90
"""Of one command's output in the transcript; the rest is cut in the middle."""
_NOISE = re.compile(
    r"^([…⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] |Failed to open terminal|\s*@ |Duration:|\s*$|(Previewing|Updating|Destroying|Refreshing)\b.*:$)"
    r"|^ [ ~+-]*\s+(pulumi|sweepstack):\S+ \S+ +((refresh|creat|updat|delet|runn)ing\b.*|refresh\b.*)?$"
)
"""Lines that a terminal draws over: an engine's progress, and what did not change."""
_QUOTED = re.compile(r"\"[^\"]*\"")


def replacing(old: str, new: str) -> Callable[[str], str]:
    """An edit: `old`, which must be there once, becomes `new`."""

    def change(text: str) -> str:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times in\n{text}"
        return text.replace(old, new)

    return change


def without_outputs(text: str) -> Iterator[str]:
    """The lines of an engine's screen, but for the stack's outputs: the same at every turn."""
    inside = False
    for line in text.splitlines():
        if line == "Outputs:":
            inside = True
        elif inside and line[:1] not in (" ", ""):
            inside = False
        if not inside:
            yield line


@dataclass
class Play:
    """One person at a terminal in one checkout. `lines` is the transcript, in Markdown."""

    stack: Stack | Project
    folder: Path
    title: str
    lines: list[str] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    _said: str = ""

    def page(self) -> str:
        """The whole transcript as one Markdown page."""
        return "\n".join([f"# {self.title}", *self.lines, ""])

    def show(self, path: Path) -> None:
        """What stands in a file now."""
        kind = {".py": "python"}.get(path.suffix, "yaml")
        self.lines += ["", f"```{kind}", *path.read_text().rstrip().splitlines(), "```"]

    def write(self, path: Path, text: str) -> None:
        """A new file, written in an editor."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.show(path)

    def made(self, path: Path, text: str) -> None:
        """A file that a command wrote, which has to be this one."""
        assert path.read_text() == text, f"{path} is another:\n{path.read_text()}"
        self.show(path)

    def day(self, title: str) -> None:
        """A heading."""
        self.lines += ["", f"## {title}"]

    def say(self, text: str) -> None:
        """Prose between the commands; a line of a list begins with `- `."""
        self.lines += ["", *(" ".join(part.split()) for part in re.split(r"\n(?= *- )", text))]

    def type(
        self,
        command: str,
        *,
        rc: int | None = 0,
        expect: Sequence[str] = (),
        told: bool = False,
        answers: Sequence[tuple[str, str]] = (),
        shown: str | None = None,
    ) -> Result:
        """Types `command`. It must end with `rc` (None: with any) and say each of `expect`.

        `told`: the output before it named this very command. `answers`: typed on a terminal, else there is none and
        `pulumi` gets the `--yes` that CI gives it. `shown`: how the transcript spells it, where that differs.
        """
        if told:
            assert self._was_named(command), f"nobody said to type: {command}\n\nwhat was said:\n{self._said}"
        argv = shlex.split(command)
        if argv[0] == "pulumi" and argv[1] in ("up", "destroy") and not answers:
            argv.append("--yes")
        if answers:
            result = commands.on_terminal(argv, cwd=self.folder, env=self.stack.env, answers=answers, columns=80)
        else:
            result = commands.run(argv, cwd=self.folder, env=self.stack.env)
        self._record(shown or command, result, answers)
        assert rc is None or result.rc == rc, f"expected rc {rc}\n{result}"
        for words in expect:
            assert words in result.text, f"{words!r} is not said\n{result}"
        self._said = result.text
        return result

    def hang_up(self, command: str, *, after: str) -> None:
        """Types `command` on a terminal, waits until it says `after`, and closes the terminal."""
        result = commands.hung_up(shlex.split(command), cwd=self.folder, env=self.stack.env, after=after)
        self._record(command, result, answers=[("", "")])
        self.lines.insert(-1, "(the terminal is closed)")

    def edit(self, path: Path, change: Callable[[str], str]) -> None:
        """An edit in an editor, shown as a diff of the lines that differ."""
        before = path.read_text()
        after = change(before)
        assert after != before, f"the edit of {path} changes nothing"
        path.write_text(after)
        old, new = before.splitlines(), after.splitlines()
        removed = [f"-{line}" for line in old if line not in new]
        added = [f"+{line}" for line in new if line not in old]
        name = self._without_places(str(path))
        self.lines += ["", "```diff", f"# {name}", *removed, *added, "```"]

    def _was_named(self, command: str) -> bool:
        """Whether one of the commands in the last output is this one. What a person fills in ("…") may be anything."""
        wanted = self._words(command)
        named = re.findall(r"(?:sweepctl|pulumi)[ ][^\n]*", self._said)
        parts = [part for line in named for part in re.split(r"&&|\s{2,}|`|;| \(", line)]
        return any(self._words(part) == wanted for part in parts if part.strip().startswith(("sweepctl", "pulumi")))

    @staticmethod
    def _words(command: str) -> list[str]:
        text = _QUOTED.sub('"…"', command.strip().rstrip(".,)"))
        if text.count('"') % 2:  # the last word of a quoted value
            text = text.removesuffix('"')
        try:
            return sorted(shlex.split(text))
        except ValueError:
            return []

    def _record(self, command: str, result: Result, answers: Sequence[tuple[str, str]]) -> None:
        self.typed.append(command)
        text = result.out if answers else "\n".join(part for part in (result.out.rstrip(), result.err.rstrip()) if part)
        kept = [line.rstrip() for line in without_outputs(text.replace("\r", "")) if not _NOISE.match(line)]
        kept = [line for before, line in zip(["", *kept], kept, strict=False) if line != before]
        if len(kept) > SHOWN_LINES:
            cut = len(kept) - SHOWN_LINES
            kept = [*kept[: SHOWN_LINES // 2], f"… {cut} more lines …", *kept[-SHOWN_LINES // 2 :]]
        tail = [f"(exit code {result.rc})"] if result.rc else []
        self.lines += ["", "```console", f"$ {command}", *map(self._without_places, [*kept, *tail]), "```"]

    def _without_places(self, line: str) -> str:
        for place, shown in ((self.stack.base, "~"), (ROOT, "~/sweepstack"), (Path.home(), "~")):
            line = line.replace(str(place), shown)
        return re.sub(rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])", "laptop", line)
