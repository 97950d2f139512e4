"""Writes docs/reference, and what other pages have of the code: `python docs/generate.py`.

It also writes templates/sweepstack, from which `pulumi new` begins a project. With `--check` it only says what is
stale. A test runs the check, so what these pages say of commands, resources and platform facts is what the code does.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOTE = "<!-- Made by docs/generate.py from the code: change the code, then run it. -->\n"

sys.path.insert(0, str(ROOT))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = list(head)
    lines = [" | ".join(columns), *(" | ".join(_cell(value) for value in row) for row in rows)]
    lines.insert(1, "|".join(["---"] * len(columns)))
    return "".join(
        f"| {line} |\n".replace("|  |", "| |") if at != 1 else f"|{line}|\n" for at, line in enumerate(lines)
    )


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def words_of(thing: Any) -> str:
    """The docstring, as paragraphs."""
    return inspect.cleandoc(thing.__doc__ or "").strip()


def commands_page() -> str:
    """Every command of `sweepctl` with its arguments and options."""
    from sweepstack.cli.app import all_commands

    parts = [
        NOTE,
        "# sweepctl: every command and option\n",
        "What they are for, and their JSON: [cli.md](../cli.md).\n",
    ]
    for name, command in sorted(all_commands().items()):
        shown = [parameter for parameter in command.params if not parameter.hidden and parameter.name != "help"]
        arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
        usage = " ".join([f"sweepctl {name}", *(_argument(argument) for argument in arguments), "[options]"])
        parts += [f"## {name}\n", f"`{usage}`\n", f"{inspect.cleandoc(command.help or '')}\n"]
        rows = [(f"`{_spelled(parameter)}`", _default(parameter), parameter.help or "") for parameter in shown]
        parts.append(table(("argument or option", "default", "what"), rows))
    return "\n".join(parts)


def _argument(parameter: Any) -> str:
    return _name(parameter) if parameter.required else f"[{_name(parameter)}]"


def _name(parameter: Any) -> str:
    return (parameter.metavar or parameter.name.upper()) + ("…" if parameter.nargs == -1 else "")


def _spelled(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _name(parameter)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    return f"{names} {parameter.metavar or parameter.name.upper()}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "needed"
    value = parameter.default
    if parameter.is_flag if parameter.param_type_name == "option" else False:
        return ""
    return "" if value in (None, (), [], False) else f"`{value}`"


def resources_page() -> str:
    """Inputs of every resource, what a change of each does, and what the state adds."""
    from sweepstack.core.spelling import camel
    from sweepstack.provider.dispatch import HANDLERS, handler_for
    from sweepstack.provider.resources.base import Decision
    from sweepstack.provider.schema import COMPONENTS, INTERNAL, OF_PARTS, SHAPES, inherited_docs

    meaning = {
        Decision.UPDATE: "in place",
        Decision.REPLACE: "replaces it: a destroy first, with the same check",
        Decision.MOVE: "in place for another address of the same host, once proved; any other change replaces it",
        Decision.REFUSE: "refused",
        Decision.IGNORE: "no reason for anything",
    }
    parts = [
        NOTE,
        "# The resources: every input, and what changing it does\n",
        "The idea: [resources.md](../resources.md). A program declares the components, which declare the rest.\n",
    ]
    for token, component in COMPONENTS.items():
        keys = f"Inputs: the keys of [{SHAPES[token].anchor}](../stack-config.md), in camelCase.\n"
        parts += [f"## {token.rsplit(':', 1)[-1]}\n", f"`{token}`\n", component["description"] + "\n", keys]
        outputs = component["properties"].items()
        parts.append(table(("output", "what"), ((f"`{name}`", one["description"]) for name, one in outputs)))
    for token in HANDLERS:
        handler = handler_for(token)
        parts += [f"## {token.rsplit(':', 1)[-1]}\n", f"`{token}`\n", words_of(handler.inputs_type) + "\n"]
        parts += [f"{OF_PARTS}\n"] if token in INTERNAL else []
        fields, said = handler.inputs_type.model_fields, inherited_docs(handler.state_type)
        parts.append(
            table(
                ("input", "needed", "a change is", "what"),
                (
                    (f"`{camel(name)}`", "yes" if fields[name].is_required() else "", meaning[decision], said[name])
                    for name, decision in handler.decisions.items()
                ),
            )
        )
        added = [name for name in handler.state_type.model_fields if name not in fields]
        if added:
            parts.append("The state adds:\n")
            parts.append(table(("output", "what"), ((f"`{camel(name)}`", said[name]) for name in added)))
    return "\n".join(parts)


def profiles_page() -> str:
    """The facts that a platform's profile states."""
    from sweepstack.profiles import access, layout, model

    parts = [NOTE, "# Profiles: the facts of a platform\n", words_of(model) + "\n"]
    parts.append("What each platform's profile says: [platforms.md](platforms.md).\n")
    rented = (model.Profile, model.Meter, model.Gpus, layout.Tier, layout.VerbFacts, model.Clock)
    for shape in (*rented, access.Ssh, access.SshFlavour, access.Network, access.Proxy, access.Environment):
        parts += [f"## {shape.__name__}\n", words_of(shape) + "\n"]
        rows = (
            (f"`{name}`", "yes" if field.is_required() else "", _type(field.annotation))
            for name, field in shape.model_fields.items()
        )
        parts.append(table(("key", "needed", "kind"), rows))
    return "\n".join(parts)


def platforms_page() -> str:
    """What every profile says of ending a box there: verbs, what they kill, clocks; and what is handy."""
    from sweepstack.profiles import words
    from sweepstack.profiles.load import load_profile, platforms

    profiles = [load_profile(name) for name in platforms()]
    parts = [
        NOTE,
        "# The platforms, out of their profiles\n",
        "Each name leads to the whole profile, with the date of every fact. *Not yet*: known, and refused as a\n"
        "candidate, since nothing reaches its boxes in this version. A delete issues the verb of its row and no\n"
        "other. What dies with the box is what the platform's last verb kills: where one is only parked, a clock\n"
        "ends it ([adr/012](../adr/012-what-a-delete-kills-where-it-only-parks.md)).\n",
    ]
    rows = []
    for profile in profiles:
        verb = profile.verbs[profile.meter_stop_verb]
        rows.append(
            (
                f"[{profile.platform}](../../profiles/{profile.platform}.md)",
                "yes" if not profile.unavailable else "not yet",
                words.undone(verb),
                words.issued_by(verb),
                words.stops_from_inside(profile),
                words.outlives(profile).replace("mounts", "`mounts`"),
                profile.proved_live,
            )
        )
    head = (
        "platform",
        "usable",
        "what a delete issues",
        "by whom",
        "stops from inside",
        "a tier outlives a box",
        "last proved live",
    )
    parts.append(table(head, rows))
    for profile in profiles:
        parts += [f"## {profile.platform}\n", table(("verb", "kills", "keeps", "goes on billing"), _verbs(profile))]
        clocks = [f"- **Clock**, {words.clock_words(clock)}." for clock in profile.danger_clocks]
        person = [f"- Only a person does it: {verb.manual}." for verb in profile.verbs.values() if verb.manual]
        good = [f"- {line}" for line in profile.conveniences]
        parts.append("\n".join([*person, *clocks, *good]) + "\n")
    return "\n".join(parts)


def decisions_page() -> str:
    """The list of docs/adr, by the headings of its pages."""
    pages = sorted((DOCS / "adr").glob("[0-9]*.md"))
    titles = [page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in pages]
    lines = [f"- [{title}]({page.name})" for title, page in zip(titles, pages, strict=True)]
    head = "# Decisions\n\nWhy sweepstack is built as it is: one page a decision, with what else was thought of.\n"
    return "\n".join([NOTE, head, *lines]) + "\n"


def readme_page() -> str:
    """README.md with its table of platforms made anew from the profiles."""
    from sweepstack.profiles.load import load_profile, platforms

    page = (DOCS / "../README.md").read_text(encoding="utf-8")
    rows = [(f"[{name}](profiles/{name}.md)", load_profile(name).proved_live) for name in platforms()]
    made = table(("platform", "last proved live"), rows)
    page, found = re.subn(r"\| platform \| last proved live \|\n(?:\|.*\n)+\n?", lambda _: f"{made.rstrip()}\n\n", page)
    if found != 1:
        raise SystemExit("README.md has no table of the platforms, and when each was last proved live")
    return page


def _verbs(profile: Any) -> Iterable[tuple[str, ...]]:
    from sweepstack.profiles import words

    for title, layout in words.layouts(profile):
        where = f", {title.replace('mounts', '`mounts`')}" if title else ""
        for name, verb in layout.verbs.items():
            billed = "; ".join(verb.bills_after) or "-"
            yield f"{name}: {verb.native}{where}", ", ".join(verb.kills) or "-", ", ".join(verb.keeps) or "-", billed


def _type(annotation: Any) -> str:
    text = inspect.formatannotation(_bare(annotation))
    ours = tuple(f"sweepstack.profiles.{module}." for module in ("layout", "model", "access"))
    for module in (*ours, "typing.", "NoneType"):
        text = text.replace(module, "null" if module == "NoneType" else "")
    return f"`{text}`"


def _bare(annotation: Any) -> Any:
    """The type without what is checked beside it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _bare(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, (_bare(argument) for argument in arguments))
    if origin in (dict, tuple, list):
        return origin[tuple(argument if argument is ... else _bare(argument) for argument in arguments)]
    return annotation


def stack_config_page() -> str:
    """docs/stack-config.md with its tables made anew from the models; prose, and what sweepctl writes itself, stay."""
    from sweepstack.config.model import SweepConfig
    from sweepstack.config.problems import anchor_of
    from sweepstack.config.volume_stack import StoreShape
    from sweepstack.core.records import Approval
    from sweepstack.provider.schema import attribute_docs

    page = (DOCS / "stack-config.md").read_text(encoding="utf-8")
    for shape in sorted((shapes_below(SweepConfig) | shapes_below(StoreShape)) - {Approval}, key=anchor_of):
        said = attribute_docs(shape)
        rows = []
        for name, field in shape.model_fields.items():
            what = said.get(name)
            if not what:
                raise SystemExit(
                    f"{shape.__module__}.{shape.__name__}.{name} has no docstring: what does the key mean?"
                )
            rows.append((f"`{field.alias or name}`", "yes" if field.is_required() else "", what))
        head, heading, section = page.partition(f"\n## {anchor_of(shape)}\n")
        if not heading:
            raise SystemExit(f"docs/stack-config.md has no heading {anchor_of(shape)}")
        made = table(("key", "needed", "what"), rows)
        section, found = re.subn(r"(?:^\|.*\n)+", lambda _: made, section, count=1, flags=re.MULTILINE)  # noqa: B023
        if not found:
            raise SystemExit(f"docs/stack-config.md has no table below {anchor_of(shape)}")
        page = head + heading + section
    before, fence, rest = page.partition("```\nerror: ")
    return f"{before}{fence}{two_mistakes()}\n```{rest.partition(chr(10) + '```')[2]}"


def two_mistakes() -> str:
    """What is said of the first stack of this project with two words misspelt."""
    from sweepstack.config.stack_config import StackConfig
    from sweepstack.onbox.common.errors import ConfigError

    name = "stacks/Pulumi.sweep-a.yaml"
    text = (ROOT / name).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stacks").mkdir()
        written = text.replace("cpu: ", "cpus: ", 1).replace("[local]", "[locale]", 1)
        (Path(folder) / name).write_text(written, encoding="utf-8")
        try:
            StackConfig.load(Path(folder), "sweep-a")
        except ConfigError as error:
            return str(error)
    raise SystemExit(f"{name} has no `cpu: ` or no `[local]` to misspell")


def formats_page() -> str:
    """docs/formats.md with its two tables made anew from the extension's own; prose stays."""
    from sweepstack.extensions.formats.table import CAUGHT, DAMAGES, FORMATS

    rows = [
        (f"`{name}`", one.judge, f"`{one.extra}`" if one.extra else "", one.proved, one.unseen)
        for name, one in FORMATS.items()
    ]
    first = table(
        ("`load`", "who judges", "extra", "what is proved, beside the digest", "what the format can't show"), rows
    )
    second = table(("file or folder", *DAMAGES), ((f"`{name}`", *words.split()) for name, words in CAUGHT.items()))
    page, made = (DOCS / "formats.md").read_text(encoding="utf-8"), iter((first, second))
    return re.sub(r"(?:^\|.*\n)+", lambda _: next(made), page, flags=re.MULTILINE)


def policy_page() -> str:
    """docs/policy.md with its table of keys made anew from the model; prose stays."""
    from sweepstack.config.policy import Policy
    from sweepstack.provider.schema import attribute_docs

    page, said = (DOCS / "policy.md").read_text(encoding="utf-8"), attribute_docs(Policy)
    head, heading, section = page.partition(f"\n## {Policy.anchor}\n")
    made = table(("key", "needed", "what"), [(f"`{name}`", "", said[name]) for name in Policy.model_fields])
    return head + heading + re.sub(r"(?:^\|.*\n)+", lambda _: made, section, count=1, flags=re.MULTILINE)


def shapes_below(shape: Any) -> set[Any]:
    """`shape` and every model that its fields hold, but for those inside an approval: its rows describe them."""
    from sweepstack.core.records import Approval
    from sweepstack.provider.schema import models_in

    found = {shape}
    if shape is not Approval:
        for field in shape.model_fields.values():
            found |= {below for model in models_in(field.annotation) for below in shapes_below(model)}
    return found


def template() -> dict[str, Callable[[], str]]:
    """The files of templates/sweepstack, for `pulumi new`: what `sweepctl init` writes, its name a placeholder."""
    from sweepstack.cli.commands.init import new_files

    about = """\
template:
  displayName: A sweep of training runs
  description: A sweep of training runs on this machine; nothing unverified is torn down
  quickstart: |
    The sweep is in stacks/Pulumi.sweep-a.yaml, and its job in examples/digits:
        pulumi stack select --create sweep-a && pulumi up
"""
    files = new_files("${PROJECT}", Path(".venv"), ROOT / "examples" / "digits")
    files["Pulumi.yaml"] = re.sub(r"(?m)^description: .*$", "description: ${DESCRIPTION}", files["Pulumi.yaml"]) + about
    # The engine looks for the folder of plugins before there is an environment, and refuses the project without it.
    files["Pulumi.yaml"] = files["Pulumi.yaml"].replace("path: .venv/bin", "path: plugins")
    plugin = '#!/bin/sh\n# The plugin that came with the package.\nexec "${0%/*}/../.venv/bin/${0##*/}" "$@"\n'
    files |= {f"plugins/pulumi-resource-{name}": plugin for name in ("sweepstack", "command")}
    return {f"../templates/sweepstack/{name}": functools.partial(str, text) for name, text in files.items()}


def with_version(name: str) -> str:
    """A page of Pulumi's registry as it is, with this version in its addresses and commands."""
    from sweepstack.core.version import VERSION

    text = (DOCS / name).read_text(encoding="utf-8")
    return re.sub(r"(pulumi-sweepstack/(?:blob|tree)/v|sweepstack[@ ])\d+\.\d+\.\d+", rf"\g<1>{VERSION}", text)


def python_page() -> str:
    """What `import sweepstack` gives: every name with its signature and its docstring."""
    from sweepstack.extensions.library import names, sweep

    parts = [NOTE, "# Python: `import sweepstack`\n", "What it is for, with an example: [python.md](../python.md).\n"]
    parts += ["## sweepstack.open\n", f"`open{_signature(names.open)}`\n", words_of(names.open) + "\n"]
    for shape in (sweep.Sweep, sweep.CellInfo, sweep.Curve):
        parts += [f"## {shape.__name__}\n", words_of(shape) + "\n"]
        for name, value in vars(shape).items():
            if name.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            of = value.fget if isinstance(value, property) else value
            shown = f"{name}: {_returned(of)}" if isinstance(value, property) else f"{name}{_signature(of)}"
            parts += [f"### {shape.__name__}.{name}\n", f"`{shown}`\n", words_of(value) + "\n"]
        if fields := getattr(shape, "__dataclass_fields__", {}):
            parts.append(table(("field", "kind"), ((f"`{name}`", f"`{one.type}`") for name, one in fields.items())))
    return "\n".join(parts)


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()").replace("'", "")


def _returned(function: Any) -> str:
    return str(inspect.signature(function).return_annotation).strip("'")


PAGES: dict[str, Callable[[], str]] = {
    "reference/sweepctl.md": commands_page,
    "reference/python.md": python_page,
    "reference/resources.md": resources_page,
    "reference/profiles.md": profiles_page,
    "reference/platforms.md": platforms_page,
    "adr/README.md": decisions_page,
    "stack-config.md": stack_config_page,
    "policy.md": policy_page,
    "formats.md": formats_page,
    "../README.md": readme_page,
    **template(),
    **{name: functools.partial(with_version, name) for name in ("_index.md", "installation-configuration.md")},
}


def stale() -> list[str]:
    """Pages that are not what the code says now."""
    return [
        name
        for name, make in PAGES.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Writes the pages; with --check only names those that are stale, and fails if there are any."""
    if arguments == ["--check"]:
        names = stale()
        print("\n".join(f"docs/{name} is stale: python docs/generate.py" for name in names))
        return 1 if names else 0
    for name, make in PAGES.items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
