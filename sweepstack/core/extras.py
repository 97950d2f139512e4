"""The extras of the package: what only some sweeps need is not installed with every one.

What an extra brings is in pyproject.toml. Imports none of it, and of an adapter only its empty package.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from importlib.util import find_spec

from sweepstack.core.extensions import module_of
from sweepstack.core.paths import installed

MODULES = {
    "flax": "msgpack",
    "hdf5": "h5py",
    "image": "PIL",
    "orbax": "tensorstore",
    "parquet": "pyarrow",
    **{name: name for name in ("gguf", "onnx", "pandas", "polars", "skops", "tensorboard", "zarr")},
    "report": "bokeh",
    "s3": "boto3",
    "search": "optuna",
    "sign": "cryptography",
}
"""Extra → the module by which it is seen. That of a platform has its adapter's name, and so has its module: the package
of the adapter says `SDK = True`."""


def of_platform(platform: str) -> str:
    """The extra that a platform needs; "" where its adapter needs no SDK of the vendor."""
    adapter = platform.replace("-", "_")
    package = (module_of(adapter, "__init__") or "").removesuffix(".__init__")
    return adapter if package and getattr(importlib.import_module(package), "SDK", False) else ""


def lacks(extra: str) -> str:
    """What is not installed here, and the command that installs it; "" where it is there."""
    module = MODULES.get(extra, extra)
    return "" if find_spec(module) is not None else f"the package {module} is not installed here. Next: {fix(extra)}"


def fix(extra: str) -> str:
    """The command that installs an extra beside the Python that runs this."""
    if installed():
        return f"{shlex.quote(sys.executable)} -m pip install 'sweepstack[{extra}]'"
    return f"scripts/setup --extra {extra}"
