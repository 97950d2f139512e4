"""Secrets in a stack config: no message shows one, and none that a rule knows gets into the state."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.config.secrets import assigned_in, is_secret_value, may_show, secret_in, without_given, without_secrets
from sweepstack.config.stack_config import StoreConfig
from sweepstack.onbox.common.errors import ConfigError
from tests.unit.config.helpers import GOOD, broken, load, refusal, write

HF = "hf_" + "aB3dE5gH7" * 4
GH = "ghp_" + "a1B2" * 9
HEX = "b94d27b9934d3e08a52e52d7da7dabfac484efe3"
AWS = "AKIAIOSFODNN7EXAMPLE"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEA\\n-----END OPENSSH PRIVATE KEY-----"

SHOWN_NOWHERE = [
    # (what is written, instead of, what must be in no message)
    ("pull_to: results/x", f'pull_to: "s3://{AWS}:hunter2Key@bucket/x"', [AWS, "hunter2Key"]),
    ("pull_to: results/x", "pull_to: https://me:hunter2@host/x", ["hunter2"]),
    ("pull_to: results/x", "pull_to: s3://bucket/x?X-Amz-Signature=hunter2hunter2", ["hunter2"]),
    ("pull_to: results/x", f"pull_to: gs://{GH}/x", [GH]),
    ("workdir: examples/digits", f"workdir: https://{HF}@github.com/a/b@main", [HF]),
    ("workdir: examples/digits", "workdir: https://hunter2@github.com/a/b@main", ["hunter2"]),
    ("workdir: examples/digits", "workdir: https://me:hunter2@github.com/a/b@main", ["hunter2"]),
    ("workdir: examples/digits", "workdir: ssh://git:hunter2@github.com/a/b@main", ["hunter2"]),
    ("workdir: examples/digits", "workdir: https://github.com/a/b?token=hunter2", ["hunter2"]),
    ("workdir: examples/digits", "workdir: ftp://me:hunter2@host/b", ["hunter2"]),
    ("run: python", "secrets: {HF_TOKEN: hunter2}\n      run: python", ["hunter2"]),
    ("run: python", "secrets: [{HF_TOKEN: hunter2}]\n      run: python", ["hunter2"]),
    ("run: python", "secrets: [hunter2-x]\n      run: python", ["hunter2"]),
    ("run: python", "secrets: hunter2-x\n      run: python", ["hunter2"]),
    ('env: {TAG: "{cell}", THREADS: 1}', "env: [HF_TOKEN=hunter2]", ["hunter2"]),
    ('env: {TAG: "{cell}", THREADS: 1}', "env: HF_TOKEN=hunter2", ["hunter2"]),
    ("THREADS: 1", "HF_TOKEN: hunter2", ["hunter2"]),
    ("THREADS: 1", "HF_TOKEN: [hunter2]", ["hunter2"]),
    ("THREADS: 1", "HF_TOKEN: {value: hunter2}", ["hunter2"]),
    ("THREADS: 1", '"HF_TOKEN=hunter2": x', ["hunter2"]),
    ("THREADS: 1", '"hunter2-x": y', ["hunter2"]),
    ("THREADS: 1", f"X: {GH}", [GH]),
    ("THREADS: 1", f'X: "{PEM}"', ["b3BlbnNzaC1rZXktdjEA"]),
    ("run: python", f"run: HF_TOKEN={HF} python", [HF]),
    ("run: python", "run: [HF_TOKEN=hunter2 python]\n      rn: python", ["hunter2"]),
    ("run: python", "setup: pip install --password hunter2 x\n      run: python", ["hunter2"]),
    ("    metrics:", f"    mounts: {{/c: {{source: s3://{AWS}:hunter2Key@b/c}}}}\n    metrics:", [AWS, "hunter2Key"]),
    ("    metrics:", f"    mounts: {{/c: {{source: https://{GH}@h/c}}}}\n    metrics:", [GH]),
    (
        "    metrics:",
        "    mounts: {/c: {source: s3://bucket/c, endpoint: https://me:hunter2@minio}}\n    metrics:",
        ["hunter2"],
    ),
    ("{want: running}", "{host: root:hunter2@192.0.2.7:22}", ["hunter2"]),
    ("{want: running}", "{want: running, hots: root:hunter2@192.0.2.7}", ["hunter2"]),
    ("{price_per_hour: 0.12}", "{network: {proxy: [export http_proxy=http://me:hunter2@p]}}", ["hunter2"]),
    ("{price_per_hour: 0.12}", "{network: {proxy: export http_proxy=http://me:hunter2@p}}", ["hunter2"]),
    ("{price_per_hour: 0.12}", "{network: {mirrors: {pip: PIP_INDEX_URL=https://me:hunter2@m}}}", ["hunter2"]),
    ("{price_per_hour: 0.12}", '{network: {mirrors: {pip: {"PIP=https://me:hunter2@m": x}}}}', ["hunter2"]),
    ("max_price: 2.10", f"max_price: {GH}", [GH]),
    ("max_price: 2.10", f"{GH}: 1", [GH]),
    ("candidates: [local]", f"candidates: [{HF}]", [HF]),
    ("seed: [0, 1, 2]", f"seed: [{HF}, {HF}]", [HF]),
    ("finite: require", f"finite: {GH}", [GH]),
    ("max_price: 2.10", "budget: {usd: 1, webhook: https://hooks.example/hunter2}", ["hunter2"]),
    ("    job:\n", "    job: [{env: {HF_TOKEN: hunter2}}]\n    jb:\n", ["hunter2"]),
    ("encryptionsalt: v1:abc", f'"{GH}": x', [GH]),
    ("encryptionsalt: v1:abc", f'"{GH}": x\n"{GH}": x', [GH]),
    ("run: python", f"secrets: [{HF}]\n      run: python", [HF]),
    ("run: python", f"secrets: [{HEX}, B]\n      run: python", [HEX]),
    ("seed: [0, 1, 2]", "seed: [0], password: [correct-horse/x, correct-horse/x]", ["correct-horse"]),
    ("seed: [0, 1, 2]", f"seed: [0], hf_token: [{HEX}, {HEX}]", [HEX]),
    ("seed: [0, 1, 2]", f"seed: [0], hf_token: {HEX}", [HEX]),
    ("seed: [0, 1, 2]", f"seed: [0], 'API_KEY={HEX}': [1]", [HEX]),
    ("seed: [0, 1, 2]", "seed: [0], password: [correct-horse-1, x]\n      base: {cell: 1}", ["correct-horse"]),
]


@pytest.mark.parametrize(("old", "new", "secrets"), SHOWN_NOWHERE, ids=[f"{new!r:.60}" for _, new, _ in SHOWN_NOWHERE])
def test_no_message_shows_a_secret(tmp_path: Path, old: str, new: str, secrets: list[str]) -> None:
    """The message and its problems, one by one: `sweepctl doctor` prints the latter."""
    write(tmp_path, broken(old, new))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, broken(old, new))
    said = "\n".join([str(caught.value), *caught.value.problems])
    assert "Pulumi.x.yaml" in said
    assert not [secret for secret in secrets if secret in said], said


def test_no_message_about_volumes_shows_a_secret(tmp_path: Path) -> None:
    text = "config:\n  sweepstack:store:\n    platform: hunter2-\n    volumes: {a: {}}\n    pull_to: https://me:hunter2@h\n"
    write(tmp_path, text.replace("hunter2-", GH))
    with pytest.raises(ConfigError) as caught:
        StoreConfig.load(tmp_path, "x")
    assert "hunter2" not in str(caught.value)
    assert GH not in str(caught.value)


REFUSED = [
    ("THREADS: 1", f'DEPLOY_KEY: "{PEM}"', "job.env.DEPLOY_KEY a private key would stand here"),
    ("THREADS: 1", "WANDB_KEY: 0123abcd", "job.env.WANDB_KEY a secret would stand here"),
    ("THREADS: 1", "DATABASE_URL: postgres://me:hunter2@db/x", "job.env.DATABASE_URL a secret would stand here"),
    ("THREADS: 1", "PASSPHRASE: hunter", "job.env.PASSPHRASE a secret"),
    ("THREADS: 1", "MY_CREDENTIALS: abc", "job.env.MY_CREDENTIALS a secret"),
    ("THREADS: 1", 'MY_TOKEN: "secret{lr}"', "job.env.MY_TOKEN a secret"),
    (
        "THREADS: 1",
        f"HARMLESS: {AWS}",
        "job.env.HARMLESS a secret would stand here (it looks like a secret (AWS Access",
    ),
    ("THREADS: 1", f"HARMLESS: {GH}", "(it looks like a secret (GitHub Token)), in the state and in logs"),
    ("run: python", f"run: HF_TOKEN={HF} python", "job.run holds a Hugging Face token: it would stand in the state"),
    ("run: python", "run: WANDB_API_KEY=0123abcd python", "job.run WANDB_API_KEY is given a secret here"),
    ("run: python", "run: curl -u me:hunter2 h; python", "job.run holds a user and password"),
    ("run: python", "setup: wandb login --password hunter2\n      run: python", "job.setup password is given a secret"),
    ("run: python", f"smoke: {{run: x {HF}}}\n      run: python", "job.smoke.run holds a Hugging Face token"),
    ("seed: [0, 1, 2]", f"seed: [0, {HF}]", "cells.grid.seed[1] looks like a Hugging Face token"),
    (
        "{price_per_hour: 0.12}",
        "{network: {proxy: export http_proxy=http://me:hunter2@p}}",
        "overrides.local.network.proxy looks like a password in a URL: it would stand in the state",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), REFUSED, ids=[f"{new!r:.50}" for _, new, _ in REFUSED])
def test_a_secret_is_refused_where_it_would_stand(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in " ".join(refusal(tmp_path, broken(old, new)).split())


BY_PLACE = [
    (
        "seed: [0, 1, 2]",
        "seed: [0, 1], password: [correct-horse/x]",
        ["correct-horse"],
        "cells.grid.password a secret would stand here, in names of cells and folders, in the state and in manifests; "
        "take it out, write job.secrets: [PASSWORD]",
    ),
    ("{seed}", f"{{seed}} && wandb login {HEX}", [HEX], "job.run gives a command a Weights & Biases key: it would"),
    (
        "run: python",
        f"setup: wandb login --relogin {HEX}\n      run: python",
        [HEX],
        "job.setup gives a command a Weig",
    ),
    ("{seed}", "{seed} && mysql -u me -phunter2", ["hunter2"], "job.run gives a command a password"),
    ("{seed}", "{seed}; docker login -u me -p hunter2 reg", ["hunter2"], "job.run gives a command a password"),
    ("run: python", "image: me:hunter2@reg/x\n      run: python", ["hunter2"], "job.image has a user and a password"),
]


@pytest.mark.parametrize(("old", "new", "secrets", "said"), BY_PLACE, ids=[f"{new!r:.50}" for _, new, _, _ in BY_PLACE])
def test_what_its_place_tells_is_refused_for_a_new_sweep(
    tmp_path: Path, old: str, new: str, secrets: list[str], said: str
) -> None:
    """A sweep that an older version took goes on, and is told. A person says by name or text that it is none."""
    text = GOOD if old == "{seed}" else GOOD.replace("--seed", "--p {password} --seed") if "password" in old else GOOD
    assert text.count(old) == 1
    config = load(tmp_path, text.replace(old, new))
    assert config.refused_new is not None
    told = "\n".join([str(config.refused_new), *config.refused_new.problems])
    assert said in " ".join(told.split())
    assert not [secret for secret in secrets if secret in told], told
    allowed = "password" if "cells" in said else secrets[0] if "image" not in said else "me:hunter2@reg/x"
    again = load(tmp_path, text.replace(old, new).replace("env:", f"not_secret: [{allowed}]\n      env:"))
    assert again.refused_new is None or "secret" not in str(again.refused_new)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pull_to: results/x", "pull_to: s3://me:pw@bucket/prefix", "names a bucket, without keys or a server:"),
        ("workdir: examples/digits", "workdir: https://git:helper1@h/it", "leave it to git's credential helper"),
        (
            "workdir: examples/digits",
            "workdir: https://h/code?token=commit",
            "write a branch, a tag or a commit".upper(),
        ),
    ],
)
def test_our_own_words_stay_where_a_value_has_them_too(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said.lower() in " ".join(refusal(tmp_path, broken(old, new)).split()).lower()


WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=8).map(lambda word: f"{word}-horse-7x")
SECRETS = st.one_of(
    st.text("0123456789abcdef", min_size=39, max_size=39).map(lambda text: f"c{text}"),
    st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=34, max_size=40).map(
        "hf_{}".format
    ),
    WORDS,
)
NAMES = st.sampled_from(["WANDB_API_KEY", "hf_token", "password", "api_key", "DB_PASSWORD", "MY_SECRET_2"])
FREE = st.sampled_from(
    [
        "hangs with {name}={secret} set",
        "`export {name}='{secret}'` and wait",
        "train.py --{name} {secret} hangs",
        'config.json has "{name}": "{secret}", and it hangs',
        'os.environ["{name}"] = "{secret}"',
        "{name}: {secret}",
    ]
)
PLACES = st.sampled_from(
    [
        ("seed: [0, 1, 2]", "seed: [0], {name}: ['{secret}']"),
        ("seed: [0, 1, 2]", "seed: [0], {name}: ['{secret}', '{secret}']"),
        ("seed: [0, 1, 2]", "seed: [0], {name}: '{secret}'"),
        ("seed: [0, 1, 2]", "seed: [0], '{name}={secret}': [1]"),
        ("THREADS: 1", "{name}: '{secret}'"),
        ("run: python", "run: {name}='{secret}' python"),
        ("run: python", "image: 'me:{secret}@registry/x'\n      run: python"),
        ("encryptionsalt: v1:abc", "'{name}={secret}': x\n'{name}={secret}': x"),
    ]
)
NO_SECRETS = st.one_of(
    *(st.text("0123456789abcdef", min_size=size, max_size=size) for size in (7, 12, 16, 40, 64)),
    st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format),
    st.tuples(st.sampled_from(["lr0.1", "lr1e-05", "adamw", "llama-3-8b"]), st.integers(0, 99)).map(
        "{0[0]}-seed{0[1]}".format
    ),
)
OURS = st.sampled_from(
    [
        "git checkout {word} && python train.py",
        "code {word} ran here; {word} is sealed",
        "the key of the cell {word} is no secret; take out the token, write its name in job.secrets",
        "sweepctl approve --stack a --cell {word}    (after {word} is verified)",
        "export HF_TOKEN=…, and pulumi up --stack {word}",
    ]
)


@given(secret=SECRETS, name=NAMES, free=FREE, place=PLACES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_secret_is_printed_where_its_place_tells_it(
    tmp_path: Path, secret: str, name: str, free: str, place: tuple[str, str]
) -> None:
    assert secret not in without_given(free.format(name=name, secret=secret))
    old, new = place
    try:
        said = str(load(tmp_path, broken(old, new.format(name=name, secret=secret))).refused_new)
    except ConfigError as error:
        said = "\n".join([str(error), *error.problems])
    assert "Pulumi.x.yaml" in said
    assert secret not in said


@given(word=NO_SECRETS, ours=OURS)
@settings(max_examples=100)
def test_no_digest_name_or_word_of_ours_is_masked(word: str, ours: str) -> None:
    text = ours.format(word=word)
    assert without_given(text) == without_secrets(text) == text


HARMLESS_ENV = {
    "PAD_TOKEN": "<pad>",
    "MASK_TOKEN": "[MASK]",
    "EOS_TOKEN": "<|endoftext|>",
    "MAX_TOKEN": "512",
    "USE_AUTH_TOKEN": "false",
    "METRIC_KEY": "val_loss",
    "SORT_KEY": "epoch",
    "HF_TOKEN": "${HF_TOKEN}",
    "RUN_TOKEN": "{cell}-{seed}",
    "GOOGLE_APPLICATION_CREDENTIALS": "/root/keys/gcp.json",
    "KEYBOARD": "us1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_ENABLE_HF_TRANSFER": "1",
    "WANDB_PROJECT": "digits-2026",
    "WANDB_RUN_ID": "3f2b8c1e-1111-4222-8333-944455556666",
    "CODE": "sha256:" + "a1" * 32,
    "COMMIT": "5f3a0123456789abcdef0123456789abcdef0123",
    "MODEL": "meta-llama/Llama-3.1-8B-Instruct",
    "MASTER_ADDR": "127.0.0.1:29500",
    "http_proxy": "http://127.0.0.1:3128",
    "HF_ENDPOINT": "https://hf-mirror.com",
    "LD_LIBRARY_PATH": "/usr/local/cuda-12.4/lib64:/usr/lib/x86_64-linux-gnu",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
    "CUDA_LAUNCH_BLOCKING": "1",
    "OMP_NUM_THREADS": "8",
    "NCCL_SOCKET_IFNAME": "eth0,enp5s0",
}
HARMLESS_RUNS = [
    "python train.py --tokenizer gpt2 --max_tokens 512 --pad_token '<pad>' --special-token [SEP]",
    "torchrun --nproc_per_node 2 --rdzv_endpoint 127.0.0.1:29500 train.py --use_auth_token",
    "python train.py --hub_token $HF_TOKEN --wandb-key ${WANDB_API_KEY}",
    "accelerate launch --config_file configs/zero3.yaml train.py --group_by_key label",
    "git clone https://github.com/lab/digits && git checkout 5f3a0123456789abcdef0123456789abcdef0123",
    "pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124",
    "docker run -u 1000:1000 nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04 nvidia-smi",
    "PYTHONHASHSEED=0 TOKENIZERS_PARALLELISM=false python -u train.py --data s3://bucket/prefix/2026-01/",
    "python train.py --model meta-llama/Llama-3.1-8B-Instruct --sha 0123456789abcdef0123456789abcdef",
    "awk '{print $1}' x > y; cd ${HOME} && ls {a,b}",
    "python eval.py --checkpoint runs/2026-11-21T12-00-00Z/step_000123.safetensors --name exp42_lr3e-4",
]


@pytest.mark.parametrize(("name", "value"), HARMLESS_ENV.items())
def test_what_is_no_secret_in_the_environment_passes(name: str, value: str) -> None:
    assert secret_in(value) == ""
    assert not is_secret_value(name, value)


@pytest.mark.parametrize("command", HARMLESS_RUNS)
def test_what_is_no_secret_in_a_command_passes(command: str) -> None:
    assert secret_in(command) == ""
    assert [name for name, value in assigned_in(command) if is_secret_value(name, value)] == []


@pytest.mark.parametrize("path", sorted((Path(__file__).resolve().parents[3] / "stacks").glob("*.yaml")), ids=str)
def test_the_stacks_of_this_project_hold_none(path: Path) -> None:
    assert secret_in(path.read_text()) == ""


def test_a_person_says_what_is_no_secret(tmp_path: Path) -> None:
    text = GOOD.replace("THREADS: 1", f"SORT_KEY: k1, MODEL: {AWS}").replace("--lr {lr}", "--lr {lr} --merge-key k2")
    said = refusal(tmp_path, text)
    assert "list SORT_KEY in job.not_secret" in said
    assert "list merge-key in job.not_secret" in said
    config = load(tmp_path, text.replace("env:", "not_secret: [SORT_KEY, MODEL, merge-key]\n      env:"))
    assert config.job.not_secret == ("SORT_KEY", "MODEL", "merge-key")
    by_text = GOOD.replace("--lr {lr}", f"--lr {{lr}} --id {AWS}").replace("env:", f"not_secret: {AWS}\n      env:")
    assert load(tmp_path, by_text)
    assert "AWS Access Key" in refusal(tmp_path, by_text.replace(f"not_secret: {AWS}", "not_secret: other"))
    key = GOOD.replace("THREADS: 1", f'DEPLOY: "{PEM}"').replace("env:", "not_secret: DEPLOY\n      env:")
    assert "a private key would stand here" in refusal(tmp_path, key)


def test_values_that_help_are_shown() -> None:
    shown = [("pull_to", "s3://Lab_1/x"), ("workdir", "git@github.com:lab/x.git@main"), ("workdir", "http://x/y@z")]
    shown += [("host", "root@192.0.2.7:22/data"), ("image", "nvidia/cuda:12.4.1"), ("max_price", "2,10")]
    assert [value for key, value in shown if not may_show((key,), value)] == []
    assert without_secrets(f"a {GH} b") == "a … b"


def test_rules_take_linear_time() -> None:
    """Their own expressions do not: a second for the first of these would be hours."""
    for text in ("a" * 10**6, "://" * 10**5, "-u " * 10**5, "eyJ" * 10**5, "1a" * 10**5 + "://", "a:b@" * 10**5):
        secret_in(text)
        list(assigned_in(text[:100_000]))
