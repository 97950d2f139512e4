"""Where boxes lie: a namespace of a cluster, which is named by a context of the kubeconfig.

Inputs and state have it as `kubernetes:NAMESPACE/CONTEXT`. A namespace has no `/`, a context may have one (the ARN of a
cluster on EKS has). What a person leaves out is that of the kubeconfig.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, one_line

ADAPTER = "kubernetes"
CONTEXT = f"overrides.{ADAPTER}.context"
NO_CONFIG = "no kubeconfig names a cluster: kubectl config get-contexts shows what it has; KUBECONFIG names the file"


@dataclass(frozen=True)
class Address:
    """`namespace`, `context`: "" for that of the kubeconfig."""

    namespace: str = ""
    context: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Of `NAMESPACE/CONTEXT`. Raises ConfigError."""
        namespace, slash, context = text.partition("/")
        if not slash:
            raise ConfigError(f"{ADAPTER}:{text} is no address: NAMESPACE/CONTEXT is, such as ml/kind-kind")
        return cls(namespace, context)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.context}"


def completed(address: Address, files: Mapping[str, Any] | None = None) -> Address:
    """The address with what the kubeconfig of this machine adds, as kubectl reads it: of several files the first one
    that names a current context counts. Sends nothing. Raises ConfigError where there is none, or no such context."""
    known = list((_files() if files is None else files).values())
    contexts = {str(one.get("name")): one for file in reversed(known) for one in file.get("contexts") or ()}
    name = address.context or next((str(now) for file in known if (now := file.get("current-context"))), "")
    if not contexts:
        raise ConfigError(NO_CONFIG)
    if name not in contexts:
        asked = f"no context {name}" if name else "no current context"
        near = did_you_mean(name, list(contexts)) or "."
        there = f"it has: {', '.join(sorted(contexts))}"
        raise ConfigError(f"the kubeconfig has {asked} ({there}){near} Write {CONTEXT} as one of these, then pulumi up")
    return Address(address.namespace or str((contexts[name].get("context") or {}).get("namespace") or "default"), name)


def config_files(address: Address) -> str:
    """The files of the kubeconfig, as KUBECONFIG names them now (the client reads it once), without such as are empty,
    which the client does not take. Raises ConfigError for one that does not read, and where none has this context."""
    files = _files()
    completed(address, files)
    return os.pathsep.join(files)


def _files() -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    found: dict[str, Any] = {}
    for path in map(os.path.expanduser, (os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)):
        if not os.path.exists(path):
            continue  # as kubectl does
        try:
            with open(path, encoding="utf-8") as file:
                known = yaml.safe_load(file) or {}
            if not isinstance(known, dict) or not all(isinstance(one, dict) for one in known.get("contexts") or ()):
                raise ValueError("it is none, or a context in it is none")
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"the kubeconfig {path} can't be read: {one_line(error)}. Next: mend it") from error
        found |= {path: known} if known else {}
    return found
