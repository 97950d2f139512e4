"""The loaders that a stack config may name; its own module, so that workers import little."""

from typing import Literal

Loader = Literal["torch", "safetensors", "json", "npz", "npy", "csv", "parquet", "command"]
"""How a file is read."""
