"""The loaders that a stack config may name; its own module, so that workers import little."""

from typing import TYPE_CHECKING, Literal

CORE: dict[str, str] = {
    "torch": "as a checkpoint of PyTorch",
    "safetensors": "as safetensors",
    "json": "as JSON",
    "npz": "as an archive of arrays of NumPy",
    "npy": "as one array of NumPy",
    "csv": "as a table of text",
    "parquet": "as a table of Parquet",
    "command": "by the user's own check",
}
"""The loaders of the core, and what each does, in words; the others are those of the extension `formats`."""
FOLDERS: dict[str, str] = {
    "hf": "a folder, as a model of Hugging Face, in shards or whole",
    "adapter": "a folder, as an adapter of PEFT",
    "trainer": "a folder, as a checkpoint-N of Hugging Face's Trainer",
    "dcp": "a folder, as a distributed checkpoint of PyTorch",
    "zarr": "a folder, as Zarr",
    "orbax": "a folder, as a checkpoint of Orbax",
    "folder": "a folder, each file by its name",
}
"""Those that take a folder and no file; `command` takes both."""
LOADERS: dict[str, str] = {
    **CORE,
    "lightning": "as a checkpoint of Lightning",
    "jsonl": "as JSON, a value a line",
    "tsv": "as a table of text, with tabs",
    "yaml": "as YAML",
    "image": "as a PNG or JPEG image",
    "tar": "as a tar archive",
    "webdataset": "as a tar archive of samples",
    "zip": "as a zip archive",
    "gguf": "as a model in GGUF",
    "onnx": "as a model in ONNX",
    "hdf5": "as HDF5",
    "keras": "as a model of Keras (.keras)",
    "skops": "as a model of scikit-learn, saved by skops",
    "joblib": "as a pickle of scikit-learn, which is looked at and never loaded",
    "flax": "as msgpack of Flax",
    "tensorboard": "as an event file of TensorBoard",
    **FOLDERS,
}
"""All of them."""
if TYPE_CHECKING:
    Loader = str  # a type checker reads no table
else:
    Loader = Literal[tuple(LOADERS)]
"""How a file, or a folder, is read."""
