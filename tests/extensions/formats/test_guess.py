"""The lines of `artifacts` that are guessed from what a run left."""

from __future__ import annotations

import pytest

from sweepstack.core.loader_names import FOLDERS, LOADERS
from sweepstack.extensions.formats.guess import guess
from sweepstack.onbox.common.groups import is_group, unit_of

HF = [
    *("model.safetensors", "config.json", "tokenizer.json", "training_args.bin", "all_results.json"),
    "trainer_state.json",
    *(f"checkpoint-500/{name}" for name in ("model.safetensors", "config.json", "trainer_state.json", "optimizer.pt")),
    "runs/Nov29_08-21-55_host/events.out.tfevents.1764404515.host.77.0",
]
LIGHTNING = [
    *("version_0/checkpoints/epoch=0-step=2.ckpt", "version_0/hparams.yaml", "version_0/metrics.csv"),
    "version_0/events.out.tfevents.1764.h.5.0",
]


@pytest.mark.parametrize(
    ("paths", "lines"),
    [
        (
            HF,
            {
                "checkpoint-*/": "trainer",
                "model.safetensors": "safetensors",
                "all_results.json": "json",
                "runs/*/events.out.tfevents.*": "tensorboard",
            },
        ),
        (
            [f"lightning_logs/{path}" for path in LIGHTNING],
            {
                "lightning_logs/version_0/checkpoints/epoch=*-step=*.ckpt": "lightning",
                "lightning_logs/version_0/metrics.csv": "csv",
                "lightning_logs/version_0/events.out.tfevents.*": "tensorboard",
                "lightning_logs/version_0/hparams.yaml": "yaml",
            },
        ),
        (["best.pt", "train.log", "metrics.jsonl", "log.txt"], {"best.pt": "torch", "metrics.jsonl": "jsonl"}),
        (["model.joblib", "scores.csv.gz"], {"model.joblib": "joblib", "scores.csv.gz": "csv"}),
        (["resnet50.pt"], {"resnet50.pt": "torch"}),
        (["step_1000.pt"], {"step_*.pt": "torch"}),
        (["dcp/.metadata", "dcp/__0_0.distcp"], {"dcp/": "dcp"}),
        (["z.zarr/zarr.json", "z.zarr/w/zarr.json", "z.zarr/w/c/0/0"], {"z.zarr/": "zarr"}),
        (["ck/100/_METADATA", "ck/100/manifest.ocdbt", "ck/100/d/a"], {"ck/*/": "orbax"}),
        (["lora/adapter_config.json", "lora/adapter_model.safetensors"], {"lora/": "adapter"}),
        (["out/config.json", "out/model.safetensors"], {"out/": "hf"}),
        (["shards-000.tar", "shards-001.tar"], {"shards-*.tar": "tar"}),
        (
            ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.safetensors.index.json"],
            {"m-*-of-*.safetensors": "safetensors", "m.safetensors.index.json": "command"},
        ),
        (["wandb/run-1/files/config.yaml", "__pycache__/a.pyc", "notes.txt", ".hidden.pt"], {}),
        ([], {}),
    ],
)
def test_guesses(paths: list[str], lines: dict[str, str]) -> None:
    found = guess(paths)
    assert {line.path: line.keys["load"] for line in found} == lines
    for line in found:
        load = line.keys["load"]
        assert load in LOADERS
        assert (load in FOLDERS) == line.path.endswith("/")
        assert any(unit_of(line.path, path) if is_group(line.path) else path == line.path for path in paths)
        assert line.why


def test_few_lines_and_what_proves_most_comes_first() -> None:
    found = guess([f"{letter}.png" for letter in "abcdefghijklmn"] + ["z.json", "z.safetensors"])
    assert [line.path for line in found][:2] == ["z.safetensors", "z.json"]
    assert len(found) == 8
