"""What a stack file names that needs an extra of the package, and whether that is installed here."""

from __future__ import annotations

from collections.abc import Iterator

from sweepstack.config.problems import dotted
from sweepstack.config.stack_config import StackConfig, StoreConfig
from sweepstack.core.bucket_address import SCHEME
from sweepstack.core.extras import lacks, of_platform
from sweepstack.onbox.common.errors import ConfigError


def missing_extras(config: StackConfig | StoreConfig) -> dict[str, str]:
    """Extra → what is missing for which key of the stack file, and the command that installs it. Imports nothing."""
    found: dict[str, str] = {}
    for key, extra in _named(config):
        if extra not in found and (words := lacks(extra)):
            found[extra] = f"{key}: {words}"
    return found


def refuse_missing(config: StackConfig | StoreConfig) -> None:
    """Raises ConfigError, which names the stack file, the key and the command, for each extra that is missing."""
    if problems := list(missing_extras(config).values()):
        raise ConfigError("\n".join(f"{config.file}: {problem}" for problem in problems), problems)


def _named(config: StackConfig | StoreConfig) -> Iterator[tuple[str, str]]:
    """(key, extra) for each key of the stack file that needs one."""
    folders: dict[str, str | None] = {"pull_to": config.pull_to}
    if isinstance(config, StackConfig):
        platforms = {dotted(("candidates", at)): name for at, name in enumerate(config.candidates)}
        if config.search is not None and config.search.sampler != "random":
            yield f"search.sampler ({config.search.sampler})", "search"
        folders |= {f"mounts.{path}.source": mount.source for path, mount in config.mounts.items()}
        folders |= {f"boxes.{name}.returns": box.returns for name, box in config.boxes.items()}
    else:
        platforms = {"platform": config.platform}
    yield from ((f"{key} ({name})", extra) for key, name in platforms.items() if (extra := of_platform(name)))
    yield from ((key, "s3") for key, folder in folders.items() if folder and folder.startswith(SCHEME))
