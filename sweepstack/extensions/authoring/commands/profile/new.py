"""`sweepctl profile new`: begins a platform in a checkout of sweepstack, or proposes a gotcha.

Begins a platform: its profile, and with `--api` its adapter and tests. Overwrites nothing.

All of it holds at once: each fact is the one that costs a person least if it is wrong, and each verb refuses in words
until it is written. What is to be done stands there as `TODO of DATE`, and a test finds what is left.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, Out
from sweepstack.core.spelling import camel
from sweepstack.extensions.authoring.gotcha_list import UNIVERSAL
from sweepstack.extensions.authoring.propose import keyed, propose
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.target import project_root
from sweepstack.profiles import dates


def command(
    name: Annotated[
        str | None,
        typer.Argument(help=f"As a stack config names it: lower case, digits and dashes. --gotcha: or `{UNIVERSAL}`."),
    ] = None,
    api: Annotated[
        bool, typer.Option("--api", help="It has an API that rents: also an adapter (default: entered by SSH).")
    ] = False,
    gotcha: Annotated[
        bool, typer.Option("--gotcha", help="A trap instead, as a patch for review; what is not given is asked for.")
    ] = False,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="KEY=TEXT",
            help="--gotcha: symptom (what is seen), cause (the mechanism behind it), fix (what has to change), "
            "reproduction (the command that shows it) or log (a file that does: its last lines); unlike (the id of "
            "another one), replaces (whose place it takes, where a profile is full). Repeatable.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE")] = Path("gotcha.patch"),
    json: AsJson = False,
) -> int:
    """Begin a platform in this checkout (--api: with adapter and tests), or write a trap as a patch. Edits nothing."""
    out = Out(as_json=json)
    if gotcha:
        if api:
            raise Unsure("--api begins a platform, --gotcha a trap: one at a time")
        return propose(name, keyed(texts or ()), output, out)
    if name is None or texts:
        raise Unsure("name the platform that begins; --with goes with --gotcha")
    root = project_root()
    files = write_new(root, name, api=api, day=dates.today())
    following = next_commands(name, api=api)
    out.document({"platform": name, "files": files, "page": PAGE, "next": following})
    for path in files:
        out.line(f"wrote {path}")
    out.line(f"write what each `TODO of` in them asks for, as {PAGE} says, then:")
    for line in following:
        out.line(f"  {line}", wrap=False)
    return YES


TEMPLATES = Path("sweepstack/extensions/authoring/templates")
PAGE = 'CONTRIBUTING.md, "Add a platform"'
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST_NAME = 20
CODE = ("components", "scripts", "sweepstack")
PLATFORM_PLACES = ("components/platforms", "sweepstack/extensions", "sweepstack/platforms", "sweepstack/profiles")
ADAPTER_FILES = ("__init__", "platform", "api", "create", "power", "states")
BY_A_PERSON = """\
    issued_by: person
    manual: >-
      TODO of $day: what a person does to end the bill, where, and what is lost by it
ssh:
  user: null
  flavours: [{kind: direct, address: "<user>@<host> -p <port>", files: true}]
  moves: null
network: {proxy: null}
environment: {python: python3}
stop_from_inside: unproved
stop_refused: >-
  TODO of $day: no one has seen a shutdown from inside end the bill there. What works: pull, verify, then end it
  where it was rented"""
STAMPS_BY_A_PERSON = """\
  ssh: unverified
  network: unverified
  environment: unverified
  stop_from_inside: unverified"""


def write_new(root: Path, name: str, *, api: bool, day: date) -> list[str]:
    """Writes the files of a platform and returns their paths. Raises No, and nothing was written, and OSError."""
    files = new_files(root, name, api=api, day=day)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with (root / path).open("x", encoding="utf-8") as file:
            file.write(text)
    return list(files)


def new_files(root: Path, name: str, *, api: bool, day: date) -> dict[str, str]:
    """Path → text of what is written for a platform. Raises No for a name that will not do."""
    if not (root / TEMPLATES).is_dir():
        raise No(f"{root} is no checkout of sweepstack, and a platform is added to one: go to its folder")
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise No(
            f"{name!r} is no name of a platform: at most {LONGEST_NAME} lower-case letters, digits and single dashes, "
            "a letter first"
        )
    adapter = name.replace("-", "_") if api else "ssh"
    if api and keyword.iskeyword(adapter):
        raise No(f"{name} is a word of Python, so no folder of modules can be called so. Try {name}-cloud")
    if (root / f"profiles/{name}.md").exists():
        raise No(f"profiles/{name}.md is there already, and nothing is written over it")
    if place := next(_places_of_the_word(root, name), ""):
        raise No(f"{name} is a word of our own code ({place}), where no platform may be named. Try {name}-cloud")
    title = name.replace("-", " ").title()
    words = {
        "name": name,
        "adapter": adapter,
        "title": title,
        "class_name": title.replace(" ", ""),
        "option": camel(adapter),
        "variable": name.replace("-", "_").upper(),
        "code": re.sub(r"[^A-Z]", "", name.upper())[:4],
        "kind": "cloud-api" if api else "ssh-rental",
        "day": f"{day:%Y-%m-%d}",
        "month": f"{day:%Y-%m}",
        "issued": "    issued_by: api" if api else Template(BY_A_PERSON).substitute(day=day),
        "stamps": "" if api else STAMPS_BY_A_PERSON,
    }
    made = {f"profiles/{name}.md": "profile"}
    if api:
        made |= {f"sweepstack/platforms/{adapter}/{file}.py": f"{file}.py" for file in ADAPTER_FILES}
        made[f"tests/conformance/harness_{adapter}.py"] = "harness.py"
        made[f"tests/unit/platforms/test_{adapter}_platform.py"] = "test_platform.py"
    there = [path for path in made if (root / path).exists()]
    for place in ("platforms", "extensions") if api else ():
        there += [f"sweepstack/{place}/{adapter}"] if (root / "sweepstack" / place / adapter).exists() else []
    if there:
        raise No(f"{there[0]} is there already, and nothing is written over it")
    return {path: _filled(root / TEMPLATES / f"{template}.tmpl", words) for path, template in made.items()}


def next_commands(name: str, *, api: bool) -> list[str]:
    """What says that it is done, in this order; CONTRIBUTING has the same commands."""
    tests = ["tests/unit/profiles"]
    if api:
        adapter = name.replace("-", "_")
        tests = [*tests, f"tests/unit/platforms/test_{adapter}_platform.py", f"tests/conformance -k {adapter}"]
    return [
        ".venv/bin/python docs/generate.py",
        "make check",
        *(f".venv/bin/python -m pytest -q {one}" for one in tests),
    ]


def _filled(template: Path, words: dict[str, str]) -> str:
    """The template with these words; our imports in the order that the linter asks for, which the name decides."""
    lines = Template(template.read_text(encoding="utf-8")).substitute(words).split("\n")
    ours = [index for index, line in enumerate(lines) if line.startswith("from sweepstack.")]
    in_order = sorted((lines[index] for index in ours), key=lambda line: line.split()[1])
    for index, line in zip(ours, in_order, strict=True):
        lines[index] = line
    return "\n".join(lines)


def _places_of_the_word(root: Path, name: str) -> Iterator[str]:
    """Modules in which no platform may be named, and which have the name as a word."""
    word = re.compile(rf"(?<![a-z]){re.escape(name)}(?![a-z])", re.IGNORECASE)
    for path in sorted(found for folder in CODE for found in (root / folder).rglob("*.py")):
        place = path.relative_to(root).as_posix()
        if not place.startswith(tuple(f"{folder}/" for folder in PLATFORM_PLACES)) and word.search(
            path.read_text(encoding="utf-8")
        ):
            yield place
