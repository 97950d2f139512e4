"""Reads which options a training script takes, from its source and from the `--help` of a trial.

argparse, click, typer, tyro, Hugging Face's HfArgumentParser, Hydra, LightningCLI. Reading the source runs nothing of
it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.config.file import parse_document
from sweepstack.core.paths import docs_page
from sweepstack.extensions.importers.found import Found, quoted
from sweepstack.extensions.importers.python_file import called, dotted, parsed
from sweepstack.extensions.importers.resume import Resumes, resumes
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import ConfigError, No

OUT = re.compile(
    r"(output|out|results?|save|logs?|log|exp|experiment|work|run|ckpt|checkpoints?|model|default_root|target|store)?"
    r"_?(dir|directory|folder|path|root|to)|output|out|logdir|outdir"
)
SMALL = re.compile(r"(num_|n_|max_|total_|train_)*(epochs?|steps|iters?|iterations|train_epochs|train_steps|updates)")
RATE = re.compile(r"lr|learning_?rate|optim(izer)?\.lr|model\.lr")
SEEDS = ("seed", "random_seed", "random_state", "seed_everything")
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
    """The options of a script; `by`: which parser it has, "" where none is seen. `first_words`: what stands between the
    script and its options. `resumes`: whether it looks for checkpoints where it writes, and goes on from them."""

    by: str = ""
    options: list[Option] = field(default_factory=list)
    first_words: str = ""
    resumes: Resumes = field(default_factory=Resumes)

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
    if known.by == LIGHTNING and not known.first_words:  # run=False: it has no subcommands
        found.run = found.run.replace(f" {SUBCOMMAND} --config ", " --config ", 1)
    spelled = {one.name: one for one in known.options}
    for name, safe in found.names.items():  # --batch-size where the file says batch_size
        option = spelled.get(name.replace("-", "_"))
        if option is not None and option.flag != f"--{name}":
            found.run = re.sub(rf"--{re.escape(name)}(?=[ =]\{{{safe}\}})", option.flag, found.run)


def compose(found: Found, known: Takes) -> None:
    """`run`, axes and base of a script with these options."""
    words = ["python", quoted(found.program), *known.first_words.split()]
    rate, small = known.first(RATE), known.first(SMALL)
    seed = next((one for one in known.options if one.name.lower() in SEEDS), None)
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
    words, resumes = re.split(r"(?<=[ =])", found.run), known.resumes
    one_folder = " && " not in found.run and words.count("{out}") + words.count("{out} ") == 1
    if resumes.sure and one_folder:
        given = f" {resumes.switch}" if resumes.switch and resumes.switch not in words else ""
        found.run = found.run.replace("{out}", "{checkpoints}") + f"{given} && cp -r {{checkpoints}}/. {{out}}/"
        found.note(
            f"{found.program} goes on from its checkpoints: it writes to {{checkpoints}}, kept between the tries of a "
            "cell, and all of it is copied to {out}"
        )
    elif (resumes.sure or resumes.doubt) and "{checkpoints}" not in found.run:
        why = resumes.doubt or "it goes on from a checkpoint, and this line has no one folder that it writes to"
        found.note(
            f"{found.program}: {why}: a cell that is tried again begins at 0, unless what it loads lies in "
            f"{{checkpoints}} ({docs_page('checkpoints.md')})"
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
    plain = [(one.name.removeprefix("trainer.") if known.by == LIGHTNING else one.name, one) for one in known.options]
    fitting = [(name, one) for name, one in plain if is_out(name) and not one.switch]
    told = [(next(at for at, word in enumerate(ORDER) if name.startswith(word)), one) for name, one in fitting]
    return min(told, key=lambda pair: pair[0])[1] if told else None


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
    known = _takes(tree, calls, here / source)
    out, flags = out_option(known), {one.name: one.flag for one in known.options}
    switches = [one.name for one in known.options if one.switch]
    return replace(known, resumes=resumes(tree, out.name if out is not None else None, flags, switches))


def _takes(tree: ast.Module, calls: list[ast.Call], path: Path) -> Takes:
    names = {called(call) for call in calls}
    decorators = [one for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for one in node.decorator_list]
    if any(dotted(one.func if isinstance(one, ast.Call) else one).endswith("hydra.main") for one in decorators):
        return _hydra(tree, path)
    if clis := names & _lightning_clis(tree):
        return _lightning(tree, calls, clis, path)
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
        default = re.search(r"(?:[\[(]|, )default:?\s+([^\])]+)[\])]", rest)
        known_one = found.get(match[1])
        value = _read(default[1].strip()) if default else None
        if known_one is None:
            made.append(
                Option(match[1], value, needed="[required]" in rest or "(required)" in rest, switch=not rest.strip())
            )
        elif known_one.default is None and value is not None:
            found[match[1]] = replace(known_one, default=value)
    by = known.by or ("Hydra" if "Powered by Hydra" in text else "--help" if made else "")
    return replace(known, by=by, options=[*found.values(), *made])


def _read(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None if text in ("None", "null") else text


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
    data = _config(path.parent / folder / f"{name.removesuffix('.yaml')}.yaml")
    values = {key: value for key, value in _keys(data).items() if key.partition(".")[0] not in ("defaults", "hydra")}
    return Takes("Hydra", [Option(f"{key}=", value, needed=value == "???") for key, value in values.items()])


def _config(file: Path) -> dict[str, Any]:
    """A config that the script reads; {} where there is none that reads."""
    try:
        found: dict[str, Any] = parse_document(file.read_text(encoding="utf-8"), file.name).data
    except (OSError, UnicodeDecodeError, ConfigError):
        return {}
    return found


def _keys(data: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Its values by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= _keys(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


LIGHTNING = "LightningCLI"
SUBCOMMAND = "fit"
KEPT_BY_LIGHTNING = {"seed_everything": True, "trainer.max_epochs": None, "trainer.default_root_dir": None}
"""What each of its programs takes, of which a stack file says something."""


def _lightning_clis(tree: ast.Module) -> set[str]:
    """Names of LightningCLI and of the script's own classes of it."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes if any(dotted(base).endswith(LIGHTNING) for base in node.bases)}
    return {LIGHTNING, *own}


def _lightning(tree: ast.Module, calls: list[ast.Call], clis: set[str], path: Path) -> Takes:
    """The parameters of its model and data, as far as they are classes of the script; what its class adds; and what the
    config says that it reads by itself."""
    cli = next(call for call in calls if called(call) in clis)
    said = {keyword.arg: keyword.value for keyword in cli.keywords}
    words = "" if _value(said.get("run")) is False else SUBCOMMAND
    given = dict(zip(("model_class", "datamodule_class"), cli.args, strict=False)) | said
    found = {name: Option(f"--{name}", value) for name, value in KEPT_BY_LIGHTNING.items()}
    for key, group in (("model_class", "model"), ("datamodule_class", "data")):
        shown = said.get(f"subclass_mode_{group}")
        for one in _of_class(tree, dotted(given[key])) if key in given and _value(shown) is not True else ():
            found[f"{group}.{one.name}"] = replace(one, flag=f"--{group}.{one.name}", switch=False)
    found |= {one.name: one for one in _arguments(calls)}
    for call in calls:
        if called(call) == "link_arguments" and len(call.args) > 1:
            found.pop(str(_value(call.args[1])), None)
    for name, value in _lightning_defaults(calls, said, path).items():
        old = found.get(name, Option(f"--{name}"))
        found[name] = replace(old, default=value, needed=False)
    return Takes(LIGHTNING, list(found.values()), words)


def is_lightning_config(data: Mapping[str, Any]) -> bool:
    """Whether a document is the config of a LightningCLI."""
    own = data.get(SUBCOMMAND, data)
    return isinstance(own, dict) and isinstance(own.get("trainer"), dict) and isinstance(own.get("model"), dict)


def of_lightning_config(data: Mapping[str, Any], source: str) -> Found:
    """A sweep of the script that is named beside it: its rate and seed as axes."""
    found = Found("LightningCLI config", source, program="train.py")
    values = {**KEPT_BY_LIGHTNING, **_keys(data.get(SUBCOMMAND, data))}
    options = [Option(f"--{key}", value) for key, value in values.items() if not isinstance(value, list)]
    compose(found, Takes(LIGHTNING, options, f"{SUBCOMMAND} --config {quoted(source)}"))
    return found


def _of_class(tree: ast.Module, name: str) -> Iterator[Option]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            made = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
            yield from (one for init in made for one in _parameters(init, "_") if one.name != "self")


def _lightning_defaults(calls: list[ast.Call], said: Mapping[str | None, ast.expr], path: Path) -> dict[str, Any]:
    """Values that the script sets instead of those of its classes; what its own config says counts most."""
    seed = _value(said.get("seed_everything_default"))
    found = {f"trainer.{key}": value for key, value in (_value(said.get("trainer_defaults")) or {}).items()}
    found |= {"seed_everything": seed} if seed is not None else {}
    for call in calls:
        if called(call) == "set_defaults":
            for one in call.args:
                found |= _value(one) if isinstance(_value(one), dict) else {}
    asked = _value(said.get("parser_kwargs")) or {}
    asked = asked.get(SUBCOMMAND, asked) if isinstance(asked, dict) else {}
    for name in asked.get("default_config_files", ()):
        config = _config(path.parent / str(name))
        found |= _keys(config.get(SUBCOMMAND, config))
    return {key: value for key, value in found.items() if not isinstance(value, dict | list)}
