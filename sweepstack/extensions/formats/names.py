"""Which loader a file has by its name."""

from __future__ import annotations

import fnmatch

from sweepstack.core.loader_names import Loader

_BY_NAME: tuple[tuple[str, Loader], ...] = (
    ("*.safetensors", "safetensors"),
    ("*.ckpt", "lightning"),
    ("*.pt", "torch"),
    ("*.pth", "torch"),
    ("pytorch_model*.bin", "torch"),
    ("adapter_model.bin", "torch"),
    ("*events.out.tfevents.*", "tensorboard"),
    ("*.jsonl", "jsonl"),
    ("*.jsonl.gz", "jsonl"),
    ("*.json", "json"),
    ("*.npz", "npz"),
    ("*.npy", "npy"),
    ("*.csv", "csv"),
    ("*.csv.gz", "csv"),
    ("*.tsv", "tsv"),
    ("*.tsv.gz", "tsv"),
    ("*.parquet", "parquet"),
    ("*.yaml", "yaml"),
    ("*.yml", "yaml"),
    ("*.png", "image"),
    ("*.jpg", "image"),
    ("*.jpeg", "image"),
    ("*.tar", "tar"),
    ("*.tar.gz", "tar"),
    ("*.tgz", "tar"),
    ("*.zip", "zip"),
    ("*.gguf", "gguf"),
    ("*.onnx", "onnx"),
    ("*.h5", "hdf5"),
    ("*.hdf5", "hdf5"),
    ("*.keras", "keras"),
    ("*.skops", "skops"),
    ("*.joblib", "joblib"),
    ("*.pkl", "joblib"),
    ("*.msgpack", "flax"),
)


def loader_of(path: str) -> Loader | None:
    """The loader for a file of this name; None where its name tells nothing."""
    name = path.rpartition("/")[2].lower()
    return next((loader for pattern, loader in _BY_NAME if fnmatch.fnmatchcase(name, pattern)), None)


def is_pickled(name: str) -> bool:
    """Whether the Trainer pickles objects into a file of this name: such a file is never loaded."""
    last = name.rpartition("/")[2]
    return last == "training_args.bin" or (last.startswith("rng_state") and last.endswith(".pth"))
