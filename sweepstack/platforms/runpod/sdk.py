"""RunPod's official SDK, entered by the modules that we ask, without its serverless half.

Its own package and its command line's import what takes 1.4 s of a core, and is nothing that a box needs.
"""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

from sweepstack.onbox.common.errors import NotAuthorized, RequestRefused
from sweepstack.platforms.common.stub_package import import_as_stub

KEY_FILE = "~/.runpod/config.toml"


def module(name: str) -> ModuleType:
    """A module of the SDK. Its package is entered as what it says without a key of its own; the key comes with each
    call. Raises RequestRefused where the SDK is not installed, NotAuthorized where it can't be loaded."""
    root = logging.getLogger()
    kept = root.level, list(root.handlers)
    try:
        import_as_stub("runpod", api_key=None)
        import_as_stub("runpod.cli")  # its own imports bring a second SSH
        return importlib.import_module(f"runpod.{name}")
    except ImportError as missing:
        raise RequestRefused(f"RunPod's SDK is not installed ({missing.name}): `uv sync` brings it") from None
    except Exception as broken:
        raise NotAuthorized(
            f"RunPod's SDK can't be loaded ({type(broken).__name__}), as a rule over its key file {KEY_FILE}: "
            f"it must be TOML with api_key under [default], or not be there"
        ) from None
    finally:  # it makes itself at home in the program's logging, on stdout, where the engine listens
        root.setLevel(kept[0])
        root.handlers[:] = kept[1]
