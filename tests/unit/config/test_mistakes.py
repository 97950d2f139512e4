"""Every mistake in a stack config: its line, its key, its value, the fix; all at once, before anything is rented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweepstack.config.checks import CHECK_TORCH
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.runner import probe
from sweepstack.profiles.load import load_profiles, platforms
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, broken, load, refusal

ONE = [
    # (what is written, instead of, the line of the message without its spaces)
    *(
        (
            'env: {TAG: "{cell}"',
            f'tracker: {{mlflow: {{uri: "{uri}", experiment: a}}}}\n      env: {{TAG: "{{cell}}"',
            f'line 9 job.tracker.mlflow.uri: "{uri}" expected the address of a server without user or key',
        )
        for uri in ("http://m#a", "http://m?a", "http://m:99999", "m.lab.org")
    ),
    (
        'env: {TAG: "{cell}"',
        'tracker: {trackio: {uri: "https://t", project: a}}\n      secrets: [HF_TOKEN]\n      env: {TAG: "{cell}"',
        "line 9 job.tracker.trackio with HF_TOKEN its client asks huggingface.co at trackio.init, and waits",
    ),
    ("memory: 40GB+", "memmory: 40GB+", 'line 8 job.resources.gpu.memmory unknown key; did you mean "memory"?'),
    ("max_price: 2.10", 'max_price: "2,10"', 'line 16 max_price: "2,10" expected USD per hour, such as 2.10'),
    (
        "seed: [0, 1, 2]}",
        "seed: [0, 1, 2]}\n      retry: {lr0.1-seed7: 1}",
        'line 12 cells.retry.lr0.1-seed7: 1 no such cell on the roster; did you mean "lr0.1-seed',
    ),
    (
        "seed: [0, 1, 2]}",
        "seed: [0, 1, 2]}\n      retry: {lr0.1-seed0: 0}",
        "line 12 cells.retry.lr0.1-seed0: 0 expected how often, such as 1; one more each time",
    ),
    ("max_price: 2.10", "max_price: 0", "line 16 max_price: 0 expected USD per hour, such as 2.10"),
    ("max_price: 2.10", "max_price: .inf", "line 16 max_price: Infinity expected USD per hour, such as 2.10"),
    ("max_price: 2.10", 'max_price: "٢٠"', 'line 16 max_price: "٢٠" expected USD per hour, such as 2.10'),
    ("min: 50MB", "min: ٥٠MB", 'line 13 artifacts.best.pt.min: "٥٠MB" expected a size with its unit'),
    ("pull_to: results/x", 'pull_to: "results/x\\ny"', 'line 18 pull_to: "results/x\\ny" expected a folder, or s3://'),
    ("max_price: 2.10", "max_price: true", "line 16 max_price: true expected USD per hour, such as 2.10"),
    ("min: 50MB", "min: 50", "line 13 artifacts.best.pt.min: 50 expected a size with its unit, such as 50MB"),
    ("min: 50MB", "min: 50MB+", 'line 13 artifacts.best.pt.min: "50MB+" expected a size with its unit'),
    (
        "load: torch",
        "load: trch",
        '"orbax" or "folder"; did you mean "torch"?',
    ),
    ("load: torch,", "load: torch, run: x,", "line 13 artifacts.best.pt.run is for load: command"),
    ("load: torch,", "load: torch, trust: true,", "line 13 artifacts.best.pt.trust is for load: command"),
    (
        "finite: require",
        "finite: requires",
        'line 13 artifacts.best.pt.finite: "requires" expected require, report, or a list',
    ),
    (
        "finite: require",
        "finite: []",
        "line 13 artifacts.best.pt.finite: [] expected require, report, or a list",
    ),
    ("finite: require", "finite: {except: [a]}", "line 13 artifacts.best.pt.finite"),
    (
        "{load: torch, finite: require, min: 50MB}",
        "{load: npy, finite: [a]}",
        "line 13 artifacts.best.pt.finite an npy file is one array without a name; say require or report",
    ),
    ("load: torch,", "load: npy, keys: [a],", "line 13 artifacts.best.pt.keys an npy file is one array without a name"),
    (
        "{load: torch, finite: require, min: 50MB}",
        "{load: command, trust: true}",
        'line 13 artifacts.best.pt.run load: command needs run, such as run: "python check.py {file}"',
    ),
    (
        "{load: torch, finite: require, min: 50MB}",
        '{load: command, run: "check {file}"}',
        "line 13 artifacts.best.pt.trust a command is your own code and runs on this machine with your rights; if you "
        "want that, trust: true",
    ),
    (
        "{load: torch, finite: require, min: 50MB}",
        '{load: command, run: "check {file}", trust: false}',
        "line 13 artifacts.best.pt.trust a command is your own code",
    ),
    (
        "{load: torch, finite: require, min: 50MB}",
        '{load: command, run: "check {file}", trust: yes}',
        'line 13 artifacts.best.pt.trust: "yes" expected true or false',
    ),
    (
        "{load: torch, finite: require, min: 50MB}",
        '{load: command, run: "check ${file}", trust: true}',
        "line 13 artifacts.best.pt.run must name {file}",
    ),
    (
        "{load: torch, finite: require, min: 50MB}",
        '{load: command, run: "check {file} {seed}", trust: true}',
        "line 13 artifacts.best.pt.run {seed}: a check is given {file} and nothing else",
    ),
    (
        "{load: torch, finite: require, min: 50MB}",
        '{load: command, run: "check {file}", trust: true, keys: [a]}',
        "line 13 artifacts.best.pt.keys is for the other loaders",
    ),
    ("best.pt:", "../best.pt:", "line 13 artifacts.../best.pt expected a path below the cell's {out}"),
    ("best.pt:", "/best.pt:", "line 13 artifacts./best.pt expected a path below the cell's {out}"),
    ("best.pt:", "log.txt:", "line 13 artifacts.log.txt expected another name: log.txt is written by sweepstack"),
    ("best.pt:", '"**/a.pt":', "line 13 artifacts.**/a.pt expected a pattern of * and ?"),
    ("best.pt:", f"{'w' * 256}:", "expected names of at most 255 bytes between the slashes"),
    (
        "best.pt:",
        '"b-{sed}.pt":',
        'line 13 artifacts.b-{sed}.pt {sed}: no cell has such a parameter; did you mean "seed"',
    ),
    ("best.pt:", '"b-{out}.pt":', "line 13 artifacts.b-{out}.pt {out} is a folder; a file is named as it lies below"),
    ("best.pt:", '"b-{lr.pt":', "line 13 artifacts.b-{lr.pt {lr has no closing brace"),
    (
        "      best.pt: {load",
        "      b-0.1.pt: {load: torch}\n      b-{lr}.pt: {load",
        "line 14 artifacts.b-{lr}.pt is 'b-0.1.pt' in lr0.1-seed0; so is another artifact (b-0.1.pt)",
    ),
    (
        "best.pt:",
        '"{lr}/b.pt": {load: torch}\n      "{lr}":',
        "line 14 artifacts.{lr} is '0.1' in lr0.1-seed0; 0.1/b.pt needs",
    ),
    (
        "    artifacts:\n      best.pt:",
        '      base: {kind: ../x}\n    artifacts:\n      "{kind}.pt":',
        "line 14 artifacts.{kind}.pt is '../x.pt' in lr0.1-seed0; expected a path below the cell's {out}",
    ),
    (
        "file: metrics.jsonl",
        'file: "{sed}.jsonl"',
        'metrics.file {sed}: no cell has such a parameter; did you mean "seed"? (there are: lr, seed, cell, name)',
    ),
    ("file: metrics.jsonl", "file: ../m", 'line 14 metrics.file: "../m" expected a path below the cell\'s {out}'),
    ("candidates: [local]", "candidates: [locale]", f'did you mean "local"? (profiles: {", ".join(platforms())})'),
    ("candidates: [local]", "candidates: []", "line 15 candidates: [] expected at least one platform"),
    ("candidates: [local]", "candidates: [local, local]", 'line 15 candidates[1]: "local" is listed twice'),
    ("box-0:", "Box_0:", "line 17 boxes.Box_0 expected a box's name: lower-case letters"),
    ("{want: running}", "{want: runing}", '"runing" expected "running", "stopped" or "gone"; did you mean "running"?'),
    ("{box-0: {want: running}}", "{}", "line 17 boxes: {} expected at least one box"),
    ("local: {price_per_hour", "nimbus: {price_per_hour", "line 19 overrides.nimbus no such platform (profiles: "),
    ("price_per_hour: 0.12", "price: 0.12", "line 19 overrides.local.price unknown key"),
    (
        "price_per_hour: 0.12",
        "price_per_hour: 0.12, python: ~/conda/bin/python",
        'line 19 overrides.local.python: "~/conda/bin/python" expected the whole path of a host\'s program',
    ),
    ("--seed {seed}", "--seed {sed}", 'line 5 job.run {sed}: no cell has such a parameter; did you mean "seed"?'),
    ('"{cell}"', '"{cel}"', 'line 9 job.env.TAG {cel}: no cell has such a parameter; did you mean "cell"?'),
    ("THREADS: 1", "HF_TOKEN: abcdef", "line 9 job.env.HF_TOKEN a secret would stand here"),
    ("THREADS: 1", "SWEEPSTACK_X: 1", "line 9 job.env.SWEEPSTACK_X is set by sweepstack"),
    ("THREADS: 1", "A: [1]", "line 9 job.env.A expected text; quote it"),
    ("THREADS: 1", "THREADS: {secure: v1:x}", "line 9 job.env.THREADS an encrypted value"),
    ("count: 1", "count: 1.5", "line 8 job.resources.gpu.count: 1.5 expected a whole number from 1 on"),
    ("count: 1", "count: yes", 'line 8 job.resources.gpu.count: "yes" expected a whole number from 1 on'),
    ('cuda: "12.4+"', "cuda: 12.10", "expected a CUDA version in quotes"),
    ("cpu: 1", "cpu: no", 'line 7 job.resources.cpu: "no" expected a number of cores'),
    ("cpu: 1", "cpu: 1\n        spot: yes", 'line 8 job.resources.spot: "yes" expected true or false'),
    (
        "cpu: 1",
        "cpu: 1\n        reliability: 98",
        "line 8 job.resources.reliability: 98 expected a part between",
    ),
    ("cpu: 1", "cpu: 1\n        region: [US]", 'line 8 job.resources.region unknown key; did you mean "regions"?'),
    (
        "workdir: examples/digits",
        "workdir: https://x/y",
        "which code of https://x/y? Write a branch, a tag or a commit",
    ),
    ("workdir: examples/digits", "workdir: http://x/y@z", "http:// is not fetched; write a folder, or one of"),
    ("workdir: examples/digits", "workdir: https://me:s@x/y@z", "a name or token in the URL would stand in the state"),
    (
        "workdir: examples/digits",
        "workdir: git@x:y@z#subdirectory=../a",
        "the folder behind #subdirectory= leads out of the repository",
    ),
    ("workdir: examples/digits", "workdir: 5", "line 4 job.workdir: 5 expected text"),
    ("pull_to: results/x", "pull_to: gs://lab/x", "expected a folder, or s3://bucket/prefix"),
    ("pull_to: results/x", "pull_to: s3://lab", "write s3://lab/<prefix>, one a sweep"),
    ("pull_to: results/x", "pull_to: s3://Lab_1/x", "s3://Lab_1/x names no bucket; write s3://bucket/prefix"),
    ("pull_to: results/x", "pull_to: s3://k:s@lab/x", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ("    pull_to: results/x\n", "", "line 2 pull_to is missing"),
    ("run: python", "smoke: {}\n      run: python", "line 5 job.smoke.run is missing"),
    (
        "run: python",
        "smoke: {run: x, on: boxes}\n      run: python",
        'line 5 job.smoke.on: "boxes" expected "local" or "box"',
    ),
    (
        "run: python",
        "smoke: {run: x, timeout: 10}\n      run: python",
        "line 5 job.smoke.timeout: 10 expected a duration with its unit, such as 10m",
    ),
    (
        "run: python",
        'smoke: {run: "x {sed}"}\n      run: python',
        'line 5 job.smoke.run {sed}: no cell has such a parameter; did you mean "seed"?',
    ),
    ("max_price: 2.10", "budget: {usd: 0}", "line 16 budget.usd: 0 expected USD in all, such as 60"),
    ("max_price: 2.10", 'budget: {hours: "1h"}', 'line 16 budget.hours: "1h" expected hours, such as 30'),
    ("max_price: 2.10", "budget: {}", "line 16 budget: {} expected usd, hours, or both, such as {usd: 60, hours: 30}"),
    ("max_price: 2.10", "budget: {stop: true}", "expected usd, hours, or both"),
    (
        "max_price: 2.10",
        "budget: {usd: 1, notify: [80]}",
        "line 16 budget.notify[0]: 80 expected a part of the budget: 0.8 for 80 %, at most 2",
    ),
    ("max_price: 2.10", "budget: {usd: 1, month: 2}", "line 16 budget.month unknown key"),
    ("    metrics:", "    mounts: {ckpt: {source: a}}\n    metrics:", "line 14 mounts.ckpt expected an absolute path"),
    ("    metrics:", "    mounts: {/etc: {source: a}}\n    metrics:", "expected another path: /etc is the system's"),
    ("    metrics:", "    mounts: {/c: {source: s3://abc}}\n    metrics:", "names no folder in the bucket"),
    ("    metrics:", "    mounts: {/c: {source: a, mode: COPY}}\n    metrics:", "COPY is for a bucket"),
    ("    metrics:", "    mounts: {/c: {source: a}, /d: {source: b}}\n    metrics:", "expected one volume"),
    ("    metrics:", "    bid: 0\n    metrics:", "line 14 bid: 0 expected USD per hour"),
    (
        "    metrics:",
        "    placement: {platform: vastai, at: 2026-11-21T12:00:00Z}\n    metrics:",
        'line 14 placement.platform: "vastai" is not one of candidates; sweepctl place chooses again',
    ),
    ("    metrics:", "    placement: {platform: local}\n    metrics:", "line 14 placement.at is missing"),
    ("run: python", "setup: 3\n      run: python", "line 5 job.setup: 3 expected text"),
    ("run: python", "slots: 0\n      run: python", "line 5 job.slots: 0 expected a whole number from 1 on"),
    ("run: python", "mixing: yes\n      run: python", 'line 5 job.mixing: "yes" expected "refuse" or "allow"'),
    ("run: python", "stall: 10\n      run: python", "line 5 job.stall: 10 expected a duration with its unit, such as"),
    ("run: python", "timeout: 12\n      run: python", "job.timeout: 12 expected a duration with its unit, such as"),
    ("run: python", "retries: -1\n      run: python", "job.retries: -1 expected a whole number from 0 on"),
    ("run: python", "on_hang: kill\n      run: python", 'job.on_hang: "kill" expected "tell", "retry" or "drop"'),
    ("run: python", "stall: 0m\n      run: python", 'line 5 job.stall: "0m" expected a duration with its unit'),
    ("run: python", "min_free: 10GB\n      run: python", 'line 5 job.min_free: "10GB" expected keys and values'),
    ("run: python", "min_free: {disc: 1GB}\n      run: python", 'job.min_free.disc unknown key; did you mean "disk"?'),
    ("run: python", "min_free: {disk: 10}\n      run: python", "job.min_free.disk: 10 expected a size with its unit"),
    ("run: python", "secrets: [A, A]\n      run: python", "line 5 job.secrets[1] A is listed twice"),
    ("run: python", "secrets: [THREADS]\n      run: python", "job.secrets[0] THREADS stands in job.env too"),
    ("run: python", "secrets: SWEEPSTACK_X\n      run: python", "job.secrets[0] SWEEPSTACK_X is set by sweepstack"),
    (
        "run: python",
        "secrets: [PULUMI_A]\n      run: python",
        "PULUMI_A is the engine's, and its keys never reach a box",
    ),
    ("THREADS: 1", "HF_TOKEN: hunter", "write job.secrets: [HF_TOKEN], and export it where you run pulumi"),
    ("x: step,", "x: step, stop_on_nan: 3,", "line 14 metrics.stop_on_nan: 3 expected true or false"),
    ("lr: [0.1, 0.03]", "code: [1]", "line 11 cells.grid.code pins a cell of cells.list or cells.add"),
    (
        "      grid:",
        "      add: [{lr: 1, seed: 1, code: 12}]\n      grid:",
        "cells.add[0].code: 12 expected the first digits",
    ),
    ("      grid:", "      add: [{lr: 1, seed: 1, code: xyz}]\n      grid:", 'in quotes: code: "a1f3"'),
    ("lr: [0.1, 0.03]", "lr: 0.1", "line 11 cells.grid.lr: 0.1 expected a list, such as [0.1, 0.03]"),
    ("lr: [0.1, 0.03]", "lr: [0.1, .nan]", "cells.grid.lr[1]: NaN expected a finite number"),
    ("      grid:", "      gird:", 'line 11 cells.gird unknown key; did you mean "grid"?'),
    (
        "      grid:",
        "      add: [{lr: 0.1, seed: 1}]\n      grid:",
        "line 11 cells.add[0] cells.grid lr=0.1 seed=1 and",
    ),
    ("    cells:\n", "    cells: 3\n    cels:\n", "line 10 cells: 3 expected keys and values"),
    ("  sweepstack:sweep:", "  sweepstak:sweep:", 'line 2 sweepstak:sweep unknown namespace; "sweepstack:sweep"?'),
    ("  sweepstack:sweep:", "  sweepstack:swep:", 'line 2 sweepstack:swep unknown key; "sweepstack:sweep"?'),
    ("  sweepstack:sweep:", "  swep:", 'line 2 swep unknown key; "sweepstack:sweep"?'),
    ("  sweepstack:sweep:", "  SweepStack:sweep:", 'line 2 SweepStack:sweep unknown namespace; "sweepstack:sweep"?'),
    (
        "config:\n",
        "config:\n  sweepstack:runpodApiKey: rpa_x\n",
        "line 2 sweepstack:runpodApiKey a key stands here unencrypted: withdraw it, and `pulumi config set --secret",
    ),
    ("config:\n", "config:\n  sweepstack:runpodKey: {secure: a}\n", 'unknown key; "sweepstack:runpodApiKey"?'),
    ("config:\n", "sweep: {}\nconfig:\n", "line 1 sweep unknown key"),
    ("config:\n", "confg: {}\nconfig:\n", 'line 1 confg unknown key; did you mean "config"?'),
    (
        "    max_price: 2.10",
        "    max_price: 2.10\n    pull_to: y",
        "line 19 pull_to this key stands twice in the same mapping",
    ),
]


def test_a_key_that_is_encrypted_is_no_mistake(tmp_path: Path) -> None:
    kept = "config:\n  sweepstack:vastaiApiKey: {secure: v1:abc}\n"
    assert "vastaiApiKey" not in refusal(tmp_path, broken("config:\n", kept).replace("x: step,", "x: [],"))


@pytest.mark.parametrize(("old", "new", "said"), ONE, ids=[f"{new!r:.40}" for _, new, _ in ONE])
def test_one_mistake(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = refusal(tmp_path, broken(old, new))
    assert re.sub(r"\s+", " ", said) in re.sub(r"\s+", " ", text)
    head = text.splitlines()[0]
    assert re.fullmatch(r"stacks/Pulumi\.x\.yaml has \d+ mistakes?; nothing was rented", head)
    assert "docs/stack-config.md" in text.splitlines()[-1]


def test_the_message_as_a_whole(tmp_path: Path) -> None:
    text = broken("memory: 40GB+", "memmory: 40GB+").replace("max_price: 2.10", 'max_price: "2,10"')
    text = text.replace("encryptionsalt", "confg: {}\nencryptionsalt")
    assert refusal(tmp_path, text) == (
        "stacks/Pulumi.x.yaml has 3 mistakes; nothing was rented\n"
        "\n"
        '  line  8  job.resources.gpu.memmory  unknown key; did you mean "memory"?\n'
        '  line 16  max_price: "2,10"          expected USD per hour, such as 2.10\n'
        '  line 20  confg                      unknown key; did you mean "config"?\n'
        "\n"
        "  keys of gpu: name, count, memory, cuda      docs/stack-config.md#gpu"
    )


def test_mistakes_of_all_kinds_come_at_once(tmp_path: Path) -> None:
    text = GOOD
    for old, new in [
        ("{lr}", "{lrr}"),
        ("load: torch", "load: trch"),
        ("candidates: [local]", "candidates: [lokal]"),
        ("seed: [0, 1, 2]", "seed: [0, 1, 2], x: 3"),
        ("encryptionsalt", "encryptionsalz"),
    ]:
        text = text.replace(old, new)
    found = refusal(tmp_path, text)
    # The placeholder can't be judged while the cells don't make a roster; everything else can.
    assert all(word in found for word in ("trch", "lokal", "cells.grid.x", "encryptionsalz"))
    assert "has 4 mistakes" in found


def test_a_secret_s_value_is_never_shown(tmp_path: Path) -> None:
    assert "hunter2" not in refusal(tmp_path, broken("THREADS: 1", "WANDB_API_KEY: hunter2secret"))


def test_a_secret_s_value_under_secrets_is_never_shown(tmp_path: Path) -> None:
    """Somebody takes it for the place of the value."""
    found = refusal(tmp_path, broken("run: python", "secrets: [hunter2-secret]\n      run: python"))
    assert "hunter2" not in found
    assert "write the name alone" in found


def test_a_parameter_that_some_cells_lack_is_named(tmp_path: Path) -> None:
    text = broken("      grid: {lr: [0.1, 0.03], seed: [0, 1, 2]}", "      list: [{lr: 1, seed: 0}, {lr: 2}]")
    assert "{seed}: lr2 has no such parameter; give it a default in cells.base" in refusal(tmp_path, text)


def test_the_way_past_the_look_at_torch_may_be_written(tmp_path: Path) -> None:
    """The runner's message names it, so the file must take it."""
    config = load(tmp_path, GOOD.replace("THREADS: 1", f'{CHECK_TORCH}: "0"'))
    assert config.job.env[CHECK_TORCH] == "0"
    assert CHECK_TORCH == probe.SWITCH


def test_files_may_be_named_by_what_a_cell_is(tmp_path: Path) -> None:
    """Their names in the config, and with them the digests, stay as they are written."""
    text = broken("best.pt", '"m-{lr}/{cell}.pt"').replace("metrics.jsonl", '"{name}-{seed}.jsonl"')
    config = load(tmp_path, text)
    assert ([spec.path for spec in config.artifact_specs()], config.metrics and config.metrics.file) == (
        ["m-{lr}/{cell}.pt"],
        "{name}-{seed}.jsonl",
    )
    assert config.roster.digest == load(tmp_path, broken("best.pt", "worst.pt")).roster.digest


def test_the_shell_s_own_variables_are_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, broken("run: python", "run: cd ${HOME} && ls {a,b} && awk '{print $1}' x && python"))


def test_numbers_may_be_text_and_the_engine_s_keys_and_foreign_namespaces_pass(tmp_path: Path) -> None:
    text = GOOD.replace("max_price: 2.10", 'max_price: "2.10"').replace("count: 1", 'count: "3"')
    text = text.replace("lr: [0.1, 0.03]", 'lr: ["0.1", "0.03"]')
    text = text.replace("config:\n", "config:\n  aws:region: x\n  pulumi:tags: {a: b}\n", 1)
    text += "secretsprovider: passphrase\nencryptedkey: x\nenvironment: [a]\n"
    config = load(tmp_path, text)
    assert config.max_price == 2.10
    assert config.job.resources.gpu is not None
    assert config.job.resources.gpu.count == 3
    assert config.roster.digest == load(tmp_path, GOOD).roster.digest


def test_the_short_key_is_the_same_key(tmp_path: Path) -> None:
    assert load(tmp_path, broken("sweepstack:sweep:", "sweep:")).roster.digest == load(tmp_path, GOOD).roster.digest
    assert "keep one of them" in refusal(tmp_path, broken("config:\n", "config:\n  sweep: {}\n"))


def test_yaml_that_is_none_names_its_line(tmp_path: Path) -> None:
    assert "stacks/Pulumi.x.yaml, line 3: not valid YAML" in refusal(tmp_path, "config:\n  a: [1\n  b: 2\n")
    with pytest.raises(ConfigError, match="line 1: expected keys and values"):
        load(tmp_path, "- 1\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "config: 3\n", "config: {}\n", "config: {sweepstack:sweep: 1}\n"])
def test_files_without_a_sweep_are_refused(tmp_path: Path, text: str) -> None:
    assert "nothing was rented" in refusal(tmp_path, text)


def test_a_stack_without_a_file_names_the_others(tmp_path: Path) -> None:
    load(tmp_path, GOOD)
    with pytest.raises(ConfigError, match=r'Pulumi\.xx\.yaml does not exist; did you mean "x"\?'):
        StackConfig.load(tmp_path, "xx")


def test_an_approval_without_a_zone_is_refused(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    approval = f"""\
    approval:
      receipt: {digest}
      actions: [{{verb: destroy, box: box-0, native_id: local-x}}]
      waivers_digest: {digest}
      by: me
      at: 2026-11-21T09:00:00Z
      expires: 2026-11-24T09:00:00Z
encryptionsalt"""
    config = load(tmp_path, broken("encryptionsalt", approval))
    assert config.approval is not None
    assert config.approval.expires.isoformat() == "2026-11-24T09:00:00+00:00"
    without = broken("encryptionsalt", approval.replace("2026-11-24T09:00:00Z", "2026-11-24T09:00:00"))
    assert "should have timezone info" in refusal(tmp_path, without)
    unknown = broken("encryptionsalt", approval.replace("native_id:", "natve_id:"))
    assert "approval.actions[0].natve_id" in refusal(tmp_path, unknown)
    assert 'did you mean "native_id"?' in refusal(tmp_path, unknown)


EVENTS = [
    # (what is written, what the message says)
    ("{}", "events: {} expected webhook, ntfy, or both, such as {webhook: SWEEP_WEBHOOK}"),
    ("{kinds: [failed]}", "events expected webhook, ntfy, or both"),
    ("{webhook: HOOK, token: T}", "events expected ntfy beside token"),
    ("{webhook: HOOK, kinds: [faild]}", 'did you mean "failed"?'),
    ("{webhook: HOOK, topic: x}", "events.topic unknown key"),
    ("{webhook: https://hooks.example/hunter2}", "events.webhook expected the name of an environment variable"),
    ("{ntfy: ntfy.example/hunter2}", "events.ntfy expected a topic's address"),
    ("{ntfy: https://hunter2@ntfy.example/t}", "events.ntfy"),
    ("{ntfy: 'https://ntfy.example/t?auth=hunter2'}", "events.ntfy expected a topic's address"),
    ("{ntfy: https://ntfy.example/t, token: tk_hunter2hunter2hunter2hunter2}", "events.token expected the name of"),
]


@pytest.mark.parametrize(("written", "expected"), EVENTS)
def test_who_is_told_of_events(tmp_path: Path, written: str, expected: str) -> None:
    message = refusal(tmp_path, broken("max_price: 2.10", f"max_price: 2.10\n    events: {written}"))
    assert expected in " ".join(message.split())
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("events", "budget", "hook"),
    [
        ("{webhook: HOOK}", "{usd: 5}", "HOOK"),
        ("{webhook: HOOK}", "{usd: 5, webhook: OTHER}", "OTHER"),
        ("{webhook: HOOK, kinds: [hung]}", "{usd: 5}", None),
        ("{ntfy: https://ntfy.example/t, token: T}", "{usd: 5}", None),
    ],
)
def test_an_up_tells_the_webhook_of_events_of_the_budget(
    tmp_path: Path, events: str, budget: str, hook: str | None
) -> None:
    written = f"max_price: 2.10\n    events: {events}\n    budget: {budget}"
    plan = resolve(load(tmp_path, broken("max_price: 2.10", written)), load_profiles(["local"]))
    assert plan.budget is not None
    assert plan.budget.webhook == hook


def test_a_webhook_s_url_is_refused_and_shown_nowhere(tmp_path: Path) -> None:
    text = broken("max_price: 2.10", "budget: {usd: 1, webhook: https://hooks.example/T0/secret}")
    message = refusal(tmp_path, text)
    assert "line 16  budget.webhook  expected the name of an environment variable" in message
    assert "secret" not in message.replace("is a secret", "")
    assert "hooks.example" not in message


@pytest.mark.parametrize("said", ["0", "1"])
def test_a_key_of_hugging_face_beside_trackio_is_taken_once_it_is_said_whether_cells_go_there(
    tmp_path: Path, said: str
) -> None:
    tracked = "tracker: {trackio: {uri: https://t.lab, project: a}}\n      secrets: HF_TOKEN\n      env: {TAG: "
    text = broken('env: {TAG: "{cell}"', f'{tracked}"{{cell}}", HF_HUB_OFFLINE: "{said}"')
    load(tmp_path, text)
    assert "job.tracker.trackio" in refusal(tmp_path, text.replace("HF_HUB_OFFLINE", "OTHER"))
