"""Reads which options a training script takes, from its source and from the `--help` of a trial.

argparse, click, typer, tyro, Hugging Face's HfArgumentParser, Hydra. Reading the source runs nothing of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.config.file import parse_document
from sweepstack.extensions.importers.found import Found, quoted
from sweepstack.extensions.importers.python_file import assigned, called, dotted, parsed
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import ConfigError, No

OUT = re.compile(
    r"(output|out|results?|save|logs?|log|exp|experiment|work|run|ckpt|checkpoints?|model|default_root|target|store)?"
    r"_?(dir|directory|folder|path|root|to)|output|out|logdir|outdir"
)
SMALL = re.compile(r"(num_|n_|max_|total_|train_)*(epochs?|steps|iters?|iterations|train_epochs|train_steps|updates)")
RATE = re.compile(r"lr|learning_?rate|optim(izer)?\.lr|model\.lr")
TRAINER = {"learning_rate": 5e-5, "num_train_epochs": 3.0, "seed": 42, "output_dir": "trainer_output"}
"""What TrainingArguments of transformers takes, of which a stack file says something."""


@dataclass
class Option:
    """`flag`: as it is typed, `--lr` or, with `joined`, `lr=`. `default`: None where none is known."""

    flag: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    needed: bool = False
    switch: bool = False

    @property
    def name(self) -> str:
        """The name alone, with `_`."""
        return self.flag.lstrip("-+").rstrip("=").replace("-", "_")

    def word(self, value: str) -> str:
        """The option with a value, as words of a command."""
        return f"{self.flag}{value}" if self.flag.endswith("=") else f"{self.flag} {value}"


@dataclass
class Takes:
    """The options of a script; `by`: which parser it has, "" where none is seen. `goes_on`: whether it looks for
    checkpoints where it writes, and goes on from them."""

    by: str = ""
    options: list[Option] = field(default_factory=list)
    goes_on: bool = False

    def first(self, pattern: re.Pattern[str]) -> Option | None:
        """The first option of such a name that takes a value."""
        named = [(one, one.name.lower()) for one in self.options if not one.switch]
        return next(
            (one for one, name in named if pattern.fullmatch(name) or pattern.fullmatch(name.split(".")[-1])), None
        )


def alone(source: str, here: Path) -> Found:
    """A sweep of a script, before it was tried: its seeds and rates as axes, where it has such options."""
    found = Found("script", source, program=source)
    compose(found, takes(source, here))
    return found


def give(found: Found, source: str, here: Path) -> None:
    """Has a sweep that names no script, or another one, run this one."""
    old = found.program or "train.py"
    found.program = source
    found.run = (
        found.run.replace(old, quoted(source), 1) if old in found.run else f"python {quoted(source)} {found.run}"
    )
    found.notes = [note for note in found.notes if not note.endswith("a guess")]
    known = takes(source, here)
    spelled = {one.name: one for one in known.options}
    for name, safe in found.names.items():  # --batch-size where the file says batch_size
        option = spelled.get(name.replace("-", "_"))
        if option is not None and option.flag != f"--{name}":
            found.run = re.sub(rf"--{re.escape(name)}(?=[ =]\{{{safe}\}})", option.flag, found.run)


def compose(found: Found, known: Takes) -> None:
    """`run`, axes and base of a script with these options."""
    words = ["python", quoted(found.program)]
    rate, small = known.first(RATE), known.first(SMALL)
    seed = next((one for one in known.options if one.name.lower() in ("seed", "random_seed", "random_state")), None)
    if (
        rate is not None
        and isinstance(rate.default, int | float)
        and not isinstance(rate.default, bool)
        and rate.default > 0
    ):
        found.axis(rate.name, [_short(rate.default), _short(rate.default / 3)])
        words.append(rate.word(found.slot(rate.name)))
    if seed is not None:
        found.axis(seed.name, [0, 1, 2])
        words.append(seed.word(found.slot(seed.name)))
    if small is not None and isinstance(small.default, int | float) and small.default > 0:
        whole = int(small.default) if small.default == int(small.default) else small.default
        found.fixed[found.name(small.name)] = whole
        words.append(small.word(found.slot(small.name)))
    named = [one for one in (rate, seed, small) if one is not None]
    out = out_option(known)
    for one in known.options:
        if one.needed and one not in named and one is not out:
            value = one.choices[0] if one.choices else ""
            found.fixed[found.name(one.name)] = value
            words.append(one.word(found.slot(one.name)))
            if not one.choices:
                found.lose(0, f"{one.flag}: needed, and what it is can't be seen: write it into cells.base")
    if out is not None:
        words.append(out.word(where(out)))
    elif known.by == "Hydra":
        words.append("hydra.run.dir={out}")
    found.run = " ".join(words)
    keep(found, known)
    if found.grid:
        found.note(f"the values of {' and '.join(found.grid)} are a beginning: write yours")


def keep(found: Found, known: Takes) -> None:
    """Has a script that goes on from its checkpoints write to {checkpoints}, which is kept between the tries of a cell,
    and all of it copied to {out} when it has ended well. Nothing where it writes to a file, or does so already."""
    words = re.split(r"(?<=[ =])", found.run)
    if known.goes_on and " && " not in found.run and words.count("{out}") + words.count("{out} ") == 1:
        found.run = found.run.replace("{out}", "{checkpoints}") + " && cp -r {checkpoints}/. {out}/"
        found.note(
            f"{found.program} goes on from its checkpoints: it writes to {{checkpoints}}, kept between the tries of a "
            "cell, and all of it is copied to {out}"
        )


ORDER = ("output", "out", "result", "save", "exp", "work", "run", "ckpt", "checkpoint", "default_root", "log", "model")
"""How the name of an option begins that says where a script writes, the most telling first."""


def is_out(name: str) -> bool:
    """Whether an option of this name says where the script writes."""
    plain = name.lower().replace("-", "_")
    begins = plain.startswith(ORDER) and not plain.startswith(("model_path", "run_name"))
    return begins and OUT.fullmatch(plain) is not None


def out_option(known: Takes) -> Option | None:
    """The option that says where the script writes: the most telling name first."""
    fitting = [one for one in known.options if is_out(one.name) and not one.switch]
    return min(
        fitting, key=lambda one: next(at for at, word in enumerate(ORDER) if one.name.startswith(word)), default=None
    )


def where(out: Option) -> str:
    """`{out}`, or a file in it where the option names a file."""
    default = str(out.default or "")
    name = default.rpartition("/")[2]
    return f"{{out}}/{quoted(name)}" if re.search(r"\.[A-Za-z]\w{0,10}$", name) else "{out}"


def _short(number: float) -> Any:
    return float(f"{number:.1g}") if isinstance(number, float) else number


def takes(source: str, here: Path) -> Takes:
    """The options by the source alone. Raises No where it does not parse."""
    try:
        tree = parsed((here / source).read_text(encoding="utf-8-sig"), source)
    except (OSError, ValueError) as error:
        raise No(f"{source}: {error}") from error
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    known = assigned(tree)
    return replace(_takes(tree, calls, here / source), goes_on=any(_goes_on(call, known) for call in calls))


def _goes_on(call: ast.Call, known: dict[str, ast.expr]) -> bool:
    """Whether a call has Hugging Face's Trainer or Lightning go on from what the script finds by itself. An option that
    a person gives (`args.resume`), or a file that the script names, is no such thing; `True` fails at a first start."""
    if called(call) == "get_last_checkpoint":
        return True
    said = [one.value for one in call.keywords if one.arg in ("resume_from_checkpoint", "ckpt_path")]
    said = [known.get(one.id, one) if isinstance(one, ast.Name) else one for one in said]
    found = [one for one in said if not isinstance(one, ast.Attribute | ast.Constant) or _value(one) == "last"]
    return called(call) in ("train", "fit") and bool(found)


def _takes(tree: ast.Module, calls: list[ast.Call], path: Path) -> Takes:
    names = {called(call) for call in calls}
    decorators = [one for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for one in node.decorator_list]
    if any(dotted(one.func if isinstance(one, ast.Call) else one).endswith("hydra.main") for one in decorators):
        return _hydra(tree, path)
    if "HfArgumentParser" in names:
        return _classes(tree, calls, "HfArgumentParser", "_")
    if any(dotted(call.func) in ("tyro.cli", "tyro.extras.overridable_config_cli") for call in calls):
        return _classes(tree, calls, "tyro", "-")
    if "add_argument" in names:
        return Takes("argparse", list(_arguments(calls)))
    imports = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    if "typer" in imports or "Typer" in names:
        return _typer(tree, calls)
    if any(dotted(call.func).endswith("option") for call in calls):
        return Takes("click", list(_click(calls)))
    return Takes()


def of_help(text: str, known: Takes) -> Takes:
    """The options by the text of `--help`, which counts where the source does not say as much. Pure."""
    found: dict[str, Option] = {one.flag: one for one in known.options}
    made: list[Option] = []
    for row in re.sub(r"[│┃|╭╮╰╯─]", " ", text).splitlines():
        match = re.match(r"\s*\*?\s*(?:-\w(?:[ =]\S+)?,\s+)?(--[A-Za-z][\w.-]*)(?:[ =,/]|$)(.*)", row)
        if match is None or match[1] in ("--help", "--version", "--install-completion", "--show-completion"):
            continue
        rest = match[2]
        default = re.search(r"[\[(]default:?\s+([^\])]+)[\])]", rest)
        known_one = found.get(match[1])
        value = _read(default[1].strip()) if default else None
        if known_one is None:
            made.append(
                Option(match[1], value, needed="[required]" in rest or "(required)" in rest, switch=not rest.strip())
            )
        elif known_one.default is None and value is not None:
            found[match[1]] = replace(known_one, default=value)
    by = known.by or ("Hydra" if "Powered by Hydra" in text else "--help" if made else "")
    return Takes(by, [*found.values(), *made], known.goes_on)


def _read(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None if text == "None" else text


def _value(node: ast.AST | None) -> Any:
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def _arguments(calls: list[ast.Call]) -> Iterator[Option]:
    for call in calls:
        flags = [one for one in map(_value, call.args) if isinstance(one, str) and one.startswith("--")]
        if not dotted(call.func).endswith("add_argument") or not flags:
            continue
        said = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
        yield Option(
            flags[0], said.get("default"), tuple(said.get("choices") or ()), bool(said.get("required")),
            "action" in said,
        )  # fmt: skip


def _click(calls: list[ast.Call]) -> Iterator[Option]:
    for call in calls:
        flags = [one for one in map(_value, call.args) if isinstance(one, str) and one.startswith("--")]
        if not dotted(call.func).endswith("option") or not flags:
            continue
        said = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
        choices = next(
            (_value(one.value.args[0]) for one in call.keywords
             if one.arg == "type" and isinstance(one.value, ast.Call) and one.value.args), (),
        )  # fmt: skip
        switch = bool(said.get("is_flag")) or "/" in flags[0]
        yield Option(flags[0], said.get("default"), tuple(choices or ()), bool(said.get("required")), switch)


def _typer(tree: ast.Module, calls: list[ast.Call]) -> Takes:
    """The parameters of the function that typer runs."""
    named = {dotted(call.args[0]) for call in calls if dotted(call.func) == "typer.run" and call.args}
    options: list[Option] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        decorated = any(
            isinstance(one, ast.Call) and dotted(one.func).endswith(".command") for one in node.decorator_list
        )
        if node.name in named or decorated:
            options += _parameters(node, "-")
    return Takes("typer", options)


def _parameters(node: ast.FunctionDef, dash: str) -> Iterator[Option]:
    args = node.args
    defaults: list[ast.expr | None] = [None] * (len(args.args) - len(args.defaults)) + list(args.defaults)
    pairs = [*zip(args.args, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    for one, default in pairs:
        flag, value = f"--{one.arg.replace('_', dash)}", _value(default)
        if isinstance(default, ast.Call) and dotted(default.func).endswith(("Option", "Argument")):
            value = _value(default.args[0]) if default.args else None
            flag = next((str(text) for text in map(_value, default.args[1:]) if str(text).startswith("--")), flag)
            if dotted(default.func).endswith("Argument"):
                continue
        elif default is None and dash == "-" and "Option" not in ast.dump(one.annotation or ast.Constant(None)):
            continue  # typer: an argument without a name
        yield Option(flag, value, (), default is None, isinstance(value, bool))


def _classes(tree: ast.Module, calls: list[ast.Call], by: str, dash: str) -> Takes:
    """The fields of the dataclasses, or the parameters of the function, that the parser is given."""
    last = "HfArgumentParser" if by == "HfArgumentParser" else "cli"
    given = [call.args[0] for call in calls if called(call) == last and call.args]
    names = [dotted(one) for node in given for one in (node.elts if isinstance(node, ast.Tuple | ast.List) else [node])]
    options: list[Option] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in names:
            options += _fields(node, dash)
            if any(dotted(base).endswith("TrainingArguments") for base in node.bases):
                names.append("TrainingArguments")
        elif isinstance(node, ast.FunctionDef) and node.name in names:
            options += _parameters(node, dash)
    if any(name.endswith("TrainingArguments") for name in names):
        options += [Option(f"--{name}", value, needed=name == "output_dir") for name, value in TRAINER.items()]
    return Takes(by, options)


def _fields(node: ast.ClassDef, dash: str) -> Iterator[Option]:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            value = one.value
            if isinstance(value, ast.Call) and dotted(value.func).endswith("field"):
                value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
                needed = not any((keyword.arg or "").startswith("default") for keyword in one.value.keywords)  # type: ignore[union-attr]
            else:
                needed = value is None
            default = _value(value)
            yield Option(f"--{one.target.id.replace('_', dash)}", default, (), needed, isinstance(default, bool))


def _hydra(tree: ast.Module, path: Path) -> Takes:
    """The keys of the config that `hydra.main` names."""
    folder, name = ".", "config"
    for call in (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and dotted(node.func).endswith("hydra.main")
    ):
        said = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
        folder, name = str(said.get("config_path") or "."), str(said.get("config_name") or "config")
    file = path.parent / folder / f"{name.removesuffix('.yaml')}.yaml"
    try:
        data = parse_document(file.read_text(encoding="utf-8"), file.name).data
    except (OSError, UnicodeDecodeError, ConfigError):
        data = {}
    return Takes("Hydra", list(_keys(data, "")))


def _keys(data: dict[str, Any], above: str) -> Iterator[Option]:
    for key, value in data.items():
        if key in ("defaults", "hydra"):
            continue
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")
        else:
            yield Option(f"{above}{key}=", value, needed=value == "???")
