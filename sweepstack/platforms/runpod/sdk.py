"""Imports single modules of RunPod's official SDK, without its serverless half.

The imports of its package and of its command line take 1.4 s of CPU for things that a box does not need. What else the
SDK can do goes over GraphQL, which RunPod ends in early 2027: `api` asks REST v2 by itself (ADR 9).
"""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

from sweepstack.core.extras import fix
from sweepstack.onbox.common.errors import NotAuthorized, NotInstalled
from sweepstack.platforms.common.stub_package import import_as_stub

KEY_FILE = "~/.runpod/config.toml"


def module(name: str) -> ModuleType:
    """A module of the SDK. The package itself is replaced by a stub without a key; callers pass the key with each call.
    Raises NotInstalled when the SDK is not, NotAuthorized when it can't be loaded."""
    root = logging.getLogger()
    kept = root.level, list(root.handlers)
    try:
        import_as_stub("runpod", api_key=None)
        import_as_stub("runpod.cli")  # its own imports bring a second SSH client
        return importlib.import_module(f"runpod.{name}")
    except ImportError as missing:
        raise NotInstalled(f"RunPod's SDK is not installed ({missing.name}). Next: {fix('runpod')}") from None
    except Exception as broken:
        raise NotAuthorized(
            f"RunPod's SDK can't be loaded ({type(broken).__name__}), as a rule over its key file {KEY_FILE}: "
            f"it must be TOML with api_key under [default], or not be there"
        ) from None
    finally:  # the SDK changes the root logger and writes to stdout, which the engine reads
        root.setLevel(kept[0])
        root.handlers[:] = kept[1]
