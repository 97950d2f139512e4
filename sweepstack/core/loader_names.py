"""The loaders that a stack config may name. A module of its own: loader processes import no more than they need."""

from typing import Literal

Loader = Literal["torch", "safetensors", "json", "npz", "npy", "csv", "parquet", "command"]
"""How a file is read."""
