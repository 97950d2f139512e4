"""A person who knows nothing, and types what the screen names: only the lines `next`, and `give up` where there is no
other. What the books of the platform say decides when it is over."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.engine.commands import Result
from tests.states.world import StillRunning, World

AT_MOST = 3
REASON = "a drill"
LABELS = re.compile(r"^\W*(next|give up|let go|accept)\s{2,}(\S.*)$")
ALONE = re.compile(r"^\W*(?:next|give up|let go|accept|.*\bNext(?:, [^:`]*)?:)$")
"""A label whose command had no room beside it, and stands below."""
INLINE = re.compile(r"\bNext(?:, [^:`]*)?: (.+)$")
MORE = re.compile(r"^ {7}(\S.*)$")
"""Further lines of `next`, as `Out.next` sets them."""
ASKED = 3
"""So often the screens of `status` and `next` are compared before they count as different."""
TOOLS = ("sweepctl", "pulumi", "python", "git", "cp", "install", "mv")
WANT = re.compile(r"\(after ((?:boxes\.[\w-]+\.want(?:, )?)+) is set to gone\b")
LOOKED = 2
"""So many looks in a row may lead to no command."""
LOOKS = {"status", "results", "logs", "doctor", "ledger", "audit", "curves"}
"""Commands of `sweepctl` that change nothing: a person may look as often as he likes, and is not led anywhere by it."""
TRAINS = {("pulumi", "up"), ("sweepctl", "wait"), ("sweepctl", "retry")}
GOES_ON = {*TRAINS, ("sweepctl", "adopt"), ("sweepctl", "finish")}
"""Commands with which a sweep is carried on."""
LOSES_CELLS = re.compile(r"sweepctl (drop\b|give-up .*(cell|unclaimed)/)")
LOSES_A_BOX = re.compile(r"--abandon\b|sweepctl give-up .*\bdata/")
FOUND = re.compile(r"^(note|UNKNOWN)\b", re.MULTILINE)
"""What `status` says where it found something in the way."""


class DeadEnd(AssertionError):
    """A state from which the named commands do not lead out. `kind`: `more than three`, `repeats what failed`, `rents
    for a finished sweep`, `names no way`, `never ends`, `looks in a circle`; `gives up without need`, where a
    box was offered to be given up and nothing was in the way; `loses first`, where what loses something stood before
    what loses nothing. `trains_again`: the way that was named begins with a `retry`."""

    def __init__(self, kind: str, story: list[str]) -> None:
        super().__init__(f"{kind}\n" + "\n".join(story))
        self.kind = kind
        self.trains_again = any(line.startswith("$ sweepctl retry ") for line in story)


@dataclass(frozen=True)
class Way:
    """One line that names a way: the commands, and the boxes of the stack file that are to get `want: gone` first."""

    label: str
    line: str
    commands: tuple[tuple[str, ...], ...]
    gone: tuple[str, ...] = ()

    @property
    def looks(self) -> bool:
        """Whether it changes nothing."""
        return all(is_look(command) for command in self.commands)

    @property
    def gives_up(self) -> bool:
        """Whether a person decides by it that what is on a box may be lost."""
        return any(LOSES_A_BOX.search(shlex.join(command)) for command in self.commands)

    @property
    def loses(self) -> int:
        """How much may be lost by it: 0 nothing, 1 cells, 2 all that is on a box."""
        return 2 if self.gives_up else 1 if LOSES_CELLS.search(self.line) else 0


def ways(text: str) -> list[Way]:
    """What the last lines of a screen that name ways say; `next` before the others. A command that runs others prints
    theirs, too, and ends with its own. What no person could type as it stands (`mend …`) is left out."""
    found: list[Way] = []
    label, last = "", -2
    for number, line in enumerate(unwrapped(text)):
        if match := LABELS.match(line.rstrip()):
            label, words = match[1], match[2]
        elif (match := MORE.match(line)) and last == number - 1 and match[1].split()[0] in TOOLS:
            words = match[1]
        elif match := INLINE.search(line):
            label, words = "next", match[1]
        else:
            continue
        if last != number - 1:
            found = []
        last = number
        if (way := _way(label, words)) is not None and way not in found:
            found.append(way)
    return sorted(found, key=lambda way: way.label != "next")


def unwrapped(text: str) -> list[str]:
    """The lines of a screen, where what `sweepstack.core.columns` took apart behind a label is one line again."""
    lines: list[str] = []
    column = 0  # lines that are indented so far continue the last label's; 0 where there is none
    for line in map(str.rstrip, text.splitlines()):
        words = line.strip()
        before = lines[-1].strip() if lines else ""
        labelled = LABELS.match(line)
        if column and words and not labelled and len(line) - len(words) >= column:
            if ALONE.match(before):
                lines[-1] += f"   {words}"
            elif before.endswith(("&&", ",", " then")) or words.split()[0] not in TOOLS:
                lines[-1] += f"{'    ' if words[0] == '(' else ' '}{words}"
            else:
                lines.append(f"{' ' * 7}{words}")
            continue
        lines.append(line)
        begins = labelled or ALONE.match(line) or INLINE.search(line)
        column = len(line) - len(line.lstrip()) + 2 if begins else 0
    return lines


def _way(label: str, words: str) -> Way | None:
    wanted = WANT.search(words)
    gone = tuple(re.findall(r"boxes\.([\w-]+)\.want", wanted[1])) if wanted else ()
    words = re.split(r"\s{4,}\(|, or, ", words, maxsplit=1)[0].strip().strip("`.")
    try:
        commands = tuple(tuple(shlex.split(part)) for part in words.split(" && "))
    except ValueError:
        return None
    if not all(command and command[0] in (*TOOLS, "make") for command in commands):
        return None
    return Way(label, words, commands, gone)


def filled(command: tuple[str, ...], box: str = "box-0") -> tuple[str, ...]:
    """With what a person would write for `…` and `BOX`."""
    instead = {"…": REASON, "what the console shows": REASON, "BOX": box}
    return tuple(instead.get(word, word) for word in command)


@dataclass
class Walk:
    """What one person did, and what was said; the first look included."""

    world: World
    settled: bool
    """Every cell was verified before anything was lost: nothing is worth a box any more."""
    update: Callable[[], None] | None = None
    """`git pull && make setup`: what a newer version wrote can be read."""
    passes: Callable[[], None] = lambda: None
    """Time passes: what waits for it (`sweepctl wait`) goes on."""
    next_too: bool = False
    """At each look `sweepctl status --next` is asked, too, and has to name the same commands."""
    ends: bool = False
    """This person wants no more of it: gives up where the way on would train what is left."""
    offered: list[str] = field(default_factory=list)
    """Lines of `next` that give a box up, of screens that found nothing in the way of the others."""
    failed: bool = False
    """Whether a command that was typed did not work."""
    typed: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def dead_end(self, kind: str) -> DeadEnd:
        return DeadEnd(kind, self.story)

    def to_the_end(self) -> None:
        """Follows until nothing bills; one way in any case, since what is named then may rent. Raises DeadEnd, also
        where a screen offered to give a box up without need."""
        self._follow()
        if self.needless():
            raise self.dead_end("gives up without need")

    def _follow(self) -> None:
        self.known = self.world.books()
        failed: set[tuple[str, ...]] = set()
        shown, looks = self.look(), 1
        while True:
            found = ways(shown)
            # The first line is the way on. Another one is taken where that was tried and did not work, or only looks.
            new = [way for way in found if filled(way.commands[0]) not in failed]
            if self.ends and any(command[:2] in GOES_ON for way in new[:2] for command in way.commands):
                new = self._ending(new, failed)
            way = next((one for one in new if not one.looks), new[0] if new else None)
            if way is None or way.looks:
                if way is not None and not self.world.books():
                    return
                if looks > LOOKED:
                    raise self.dead_end(
                        "looks in a circle" if way else "repeats what failed" if found else "names no way"
                    )
                audits = way is not None and way.commands[0][:2] == ("sweepctl", "audit")
                shown = self._heard(self.world.types(*way.commands[0])).text if way and audits else self.look()
                looks += 1
                continue
            looks = 0
            for name in way.gone:
                self.story.append(f"  (the stack file: boxes.{name}.want: gone)")
                self.world.edit_config(lambda sweep, name=name: sweep["boxes"][name].update(want="gone"))
            for command in map(filled, way.commands):
                result = self.type(command)
                shown = result.text
                self.failed |= result.rc != 0
                if result.rc != 0:
                    failed |= {command, *_last_step(result)}
                    break
                if not is_look(command):
                    failed.clear()  # it is another state now
            if not self.world.books():
                return

    def _ending(self, new: list[Way], failed: set[tuple[str, ...]]) -> list[Way]:
        """The ways for who wants no more of it: what gives up first. Where none does and the first trains, the plain
        end, which is refused, and says how: that changes nothing, and counts as a look."""
        destroy = ("pulumi", "destroy", "--stack", self.world.name)
        trains = any(command[:2] in TRAINS for command in new[0].commands)
        if trains and destroy not in failed and not any(way.loses for way in new):
            return [Way("next", shlex.join(destroy), (destroy,))]
        return sorted(new, key=lambda way: -way.loses)

    def needless(self) -> list[str]:
        """Lines that offered to give up a box although nothing was in the way: every command that was typed worked, and
        none gave anything up."""
        return [] if self.failed or self.gave_up else self.offered

    @property
    def gave_up(self) -> bool:
        """Whether a command was typed that gives a cell or a box up."""
        return any(LOSES_CELLS.search(command) or LOSES_A_BOX.search(command) for command in self.typed)

    def type(self, command: tuple[str, ...]) -> Result:
        """One command of three; or a look, or `pulumi stack init`, which docs/teardown.md does not count. Raises
        DeadEnd."""
        if command[0] in ("git", "make"):
            return self._updated(command)
        asks = self.ends and command[:2] == ("pulumi", "destroy") and not self.gave_up
        if not (is_look(command) or asks) and command[:3] != ("pulumi", "stack", "init"):
            if len(self.typed) == AT_MOST:
                self.story.append(f"  still to type: {shlex.join(command)}")
                raise self.dead_end("more than three")
            self.typed.append(shlex.join(command))
        if command[:2] == ("sweepctl", "wait"):
            self.passes()
        try:
            return self._heard(self.world.types(*command))
        except StillRunning as error:
            self.story.append(str(error))
            raise self.dead_end("never ends") from None

    def look(self) -> str:
        """`sweepctl status`, as a person and as a program see it, and with `--next`: all are told the same. They are
        asked again where they were not: cells that run may have ended between two of them."""
        for left in reversed(range(ASKED)):
            shown = self._heard(self.world.types("sweepctl", "status", "--stack", self.world.name)).text
            document = self.world.types("sweepctl", "status", "--stack", self.world.name, "--json")
            named = json.loads(document.out).get("next", []) if document.out.strip() else []
            other = [line for line in named if line not in shown]
            if other and not left:
                self.story.append(f"  --json says: {other[0]}")
                raise self.dead_end("tells programs another way")
            if other:
                continue
            lines = next_lines(self.world) if self.next_too and named else named
            if lines == named:
                break
            if not left:
                self.story += [f"  next --json says: {lines}", f"  status says: {named}"]
                raise self.dead_end("next tells another way than status")
        return shown

    def _heard(self, result: Result) -> Result:
        self.story.append(str(result))
        named = [way for way in ways(result.text) if way.label == "next" and "only if" not in way.line]
        if [way.loses for way in named] != sorted(way.loses for way in named):
            raise self.dead_end("loses first")
        if not FOUND.search(result.text):
            self.offered += [way.line for way in named if way.gives_up]
        new = self.world.books() - self.known
        if new and self.settled:
            raise self.dead_end("rents for a finished sweep")
        self.known |= new
        return result

    def _updated(self, command: tuple[str, ...]) -> Result:
        """Counts as none of the three: what follows is typed with a checkout that can read what there is."""
        if self.update is None:
            raise self.dead_end("names no way")
        if command[0] == "git":
            self.update()
        self.story.append(f"$ {shlex.join(command)}")
        return Result(command, 0, "", "", 0.0)


def next_lines(world: World) -> list[str]:
    """What `sweepctl status --next` names, the one command first."""
    found = world.types("sweepctl", "status", "--next", "--stack", world.name, "--json")
    document = json.loads(found.out) if found.out.strip() else {}
    return [*document.get("next", []), *document.get("otherwise", [])]


def _last_step(result: Result) -> list[tuple[str, ...]]:
    """The last command that this one ran: a person saw that it is what did not work."""
    steps = [line[2:] for line in result.out.splitlines() if line.startswith("$ sweepctl ")]
    return [filled(tuple(shlex.split(step))) for step in steps[-1:]]


def is_look(command: tuple[str, ...]) -> bool:
    return command[0] == "sweepctl" and command[1] in LOOKS and "--end" not in command
