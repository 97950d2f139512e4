"""The formats in one table: who reads each, what is proved, and what the format itself can't show."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import cast

from sweepstack.core.extras import lacks
from sweepstack.core.loader_names import Loader
from sweepstack.extensions.formats.names import is_pickled, loader_of
from sweepstack.loaders.base import Folder, NoAnswer, OpenFile, PlainSpec, Spec
from sweepstack.loaders.load import Structure
from sweepstack.onbox.common.dataclass import dataclass

_HERE = "sweepstack.extensions.formats"


@dataclass(frozen=True)
class Format:
    """`reader`: module and class below this package. `libraries`: imported before a worker limits itself. `extra`: what
    brings them; "" where all are there. `judge`, `proved`, `unseen`: for the docs."""

    reader: str
    judge: str
    proved: str
    unseen: str
    extra: str = ""
    libraries: tuple[str, ...] = ()


FORMATS: dict[Loader, Format] = {
    "lightning": Format(
        "models.Lightning",
        "our reader of torch files",
        "as torch; it has a state_dict with tensors, a version of Lightning, an epoch and a step",
        "whether the class of the model takes it",
    ),
    "jsonl": Format(
        "text.Jsonl",
        "Python's json",
        "each line is a JSON value that names no key twice; NaN and infinity anywhere. Also as .jsonl.gz, by its CRC",
        "lines that are missing whole, another digit or letter",
    ),
    "tsv": Format(
        "text.Tsv",
        "Python's csv",
        "as csv, with tabs. Both also as .gz, by its CRC",
        "rows that are missing whole, another digit or letter",
    ),
    "yaml": Format(
        "text.Yaml",
        "PyYAML's safe loader",
        "that it reads, names no key twice and no Python type; NaN and infinity anywhere",
        "an end that is missing where a line ends, another digit or letter",
    ),
    "image": Format(
        "image.ImageFile",
        "Pillow",
        "every pixel of a PNG (by its CRCs) or a JPEG; one colour alone looks untrained",
        "in a JPEG, other colours: it has no checksum",
        "image",
        ("PIL.Image",),
    ),
    "tar": Format(
        "archives.Tar",
        "Python's tarfile",
        "each header by its checksum, each member whole, the end of the archive. Also as .tar.gz, by its CRC",
        "bytes inside a member; members that are missing whole",
        "",
        ("numpy",),
    ),
    "webdataset": Format(
        "archives.Webdataset",
        "Python's tarfile",
        "as tar; each sample has the same parts, stands together and comes once; its json, npy, png and jpg read",
        "bytes inside other parts; samples that are missing whole",
        "",
        ("numpy",),
    ),
    "zip": Format(
        "archives.Zip",
        "Python's zipfile",
        "the directory, each part's own header, its CRC",
        "nothing of its parts",
        "",
        ("numpy",),
    ),
    "gguf": Format(
        "models.Gguf",
        "gguf, the library of llama.cpp",
        "the header, where each tensor lies, every number that is not quantized",
        "another number: it has no checksum; quantized numbers",
        "gguf",
        ("gguf",),
    ),
    "onnx": Format(
        "models.Onnx",
        "onnx and its checker",
        "that it reads and the checker takes the graph; every number of every weight. In one file",
        "another number: it has no checksum",
        "onnx",
        ("onnx", "onnx.checker", "onnx.numpy_helper"),
    ),
    "hdf5": Format(
        "hdf5.Hdf5",
        "h5py",
        "each group, attribute and dataset reads; every number. Nothing in another file",
        "another number, where the file was written without fletcher32",
        "hdf5",
        ("sweepstack.extensions.formats.hdf5",),
    ),
    "keras": Format(
        "hdf5.Keras",
        "Python's zipfile, h5py",
        "CRCs, config and metadata as JSON, every number of the weights. No model is built: a config may hold code",
        "whether Keras builds the model",
        "hdf5",
        ("sweepstack.extensions.formats.hdf5",),
    ),
    "skops": Format(
        "models.Skops",
        "skops and its audit",
        "CRCs; skops trusts each type that is named, and builds it; every number of every array",
        "nothing of its parts",
        "skops",
        ("skops.io", "sklearn"),
    ),
    "joblib": Format(
        "pickles.Joblib",
        "Python's pickletools",
        "the pickle is whole, and names only types of scikit-learn, numpy and scipy; every number of joblib's arrays. "
        "It is never loaded: a pickle can run any program",
        "whether it loads; another number, where it is not compressed",
        "",
        ("numpy",),
    ),
    "flax": Format(
        "models.Flax",
        "msgpack",
        "that it reads as flax.serialization writes it, each array against its shape, every number",
        "another number: it has no checksum",
        "flax",
        ("msgpack", "numpy"),
    ),
    "tensorboard": Format(
        "events.Events",
        "tensorboard",
        "each record by its two checksums, each event; scalars that are not finite",
        "records that are missing whole at the end",
        "tensorboard",
        (
            "tensorboard.compat.proto.event_pb2",
            "tensorboard.compat.tensorflow_stub.pywrap_tensorflow",
            "tensorboard.compat.tensorflow_stub.errors",
        ),
    ),
    "hf": Format(
        "hf_folders.HfModel",
        "safetensors",
        "config.json; the index names each tensor once, each shard is the one that it names, none is missing, foreign "
        "or of another save; every number",
        "another number: safetensors has no checksum",
        "",
        ("numpy",),
    ),
    "adapter": Format(
        "hf_folders.Adapter",
        "safetensors",
        "adapter_config.json; of LoRA each A with its B, of the rank that the config says; every number. A LoRA whose "
        "every B is zero looks untrained",
        "another number; whether the base model is the right one",
        "",
        ("numpy",),
    ),
    "trainer": Format(
        "hf_folders.Checkpoint",
        "safetensors, our reader of torch files",
        "as hf or adapter; the step of trainer_state.json is that of the folder; the optimizer and scheduler",
        "what the Trainer pickles (training_args.bin, rng_state): it is compared with its seal, and never loaded",
        "",
        ("numpy",),
    ),
    "dcp": Format(
        "stores.Dcp",
        "torch.load with weights_only=True",
        "each part that .metadata names is there, reads and has its shape; all numbers of each tensor are there",
        "another number, where the part is no zip of torch with CRCs that torch asks for",
        "",
        ("torch",),
    ),
    "zarr": Format(
        "stores.Zarr",
        "zarr",
        "each array reads, every number; a codec that runs code is refused. Of version 2 and 3",
        "a chunk that is missing, which is one of fill values: it is noted; another number, without a checksum codec",
        "zarr",
        ("zarr",),
    ),
    "orbax": Format(
        "stores.Orbax",
        "tensorstore",
        "each array that _METADATA names is there and reads, every number",
        "another number in a chunk that is not compressed; files that the merged checkpoint does not need",
        "orbax",
        ("tensorstore", "numpy"),
    ),
    "folder": Format(
        "hf_folders.Files",
        "that of each file",
        "each file by its name: best.pt as torch, metrics.json as json",
        "files whose names tell nothing: they are compared with their seals alone, which is noted",
    ),
}
"""The formats of this extension; those of the core are in docs/stack-config.md."""


def structure(file: OpenFile | Folder, spec: Spec) -> Structure:
    """What `loaders.load` asks of a file or folder. Raises NoAnswer where the library that reads it is not installed,
    Unreadable."""
    one = FORMATS[spec.load]
    if one.extra and (why := lacks(one.extra)):
        raise NoAnswer(f"can't be read here: {why}")
    module, _, name = one.reader.rpartition(".")
    try:
        found = getattr(import_module(f"{_HERE}.{module}"), name)
    except ImportError as error:
        raise NoAnswer(f"can't be read here: {error}") from None
    return cast(Structure, found(file, spec))


def libraries(load: Loader) -> Sequence[str]:
    """What reading such a file imports that takes much room."""
    return FORMATS[load].libraries if load in FORMATS else ()


def member_spec(spec: Spec, path: str) -> Spec | None:
    """See `loaders.load.member_spec`: each file of a folder by its name, but for those that the folder's own reader
    reads."""
    loader = loader_of(path)
    if loader is None or spec.load in ("zarr", "orbax", "dcp") or (spec.load == "trainer" and is_pickled(path)):
        return None
    return PlainSpec(loader, finite=spec.finite, infinite=tuple(spec.infinite), plausible=spec.plausible)


DAMAGES = ("cut, or a file missing", "a flipped bit", "zeroed, or empty", "swapped parts or files")
CAUGHT: dict[str, str] = {
    "jsonl": "some some all all",
    "jsonl.gz": "all all all all",
    "tsv": "some some all all",
    "csv.gz": "all all all all",
    "yaml": "none some all some",
    "png": "all all all all",
    "jpg": "all some all all",
    "tar": "some some some some",
    "tar.gz": "all all all all",
    "wds.tar": "some some all all",
    "zip": "all some all all",
    "gguf": "all some some some",
    "onnx": "all none some some",
    "h5": "all some all all",
    "keras": "all all all all",
    "skops": "all all all all",
    "joblib": "all some all all",
    "joblib.gz": "all all all all",
    "pkl": "all some all all",
    "msgpack": "all none some all",
    "tfevents": "all all all all",
    "ckpt": "all some all all",
    "hf": "all some some all",
    "hf-whole": "all some some all",
    "adapter": "all some all all",
    "checkpoint-500": "some some some some",
    "zarr": "some some some some",
    "mixed": "some some some some",
    "dcp": "all some all all",
    "orbax": "some some some some",
}
"""Of a file before it was sealed: sample → of each of DAMAGES whether all, some or none of the damaged copies are
refused. tests/extensions/formats/test_damage.py plays them. After the seal its digest sees all."""
