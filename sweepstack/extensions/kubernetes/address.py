"""Where boxes lie: a namespace of a cluster, which is named by a context of the kubeconfig.

Inputs and state have it as `kubernetes:NAMESPACE/CONTEXT`. A namespace has no `/`, a context may have one (the ARN of a
cluster on EKS has). What a person leaves out is that of the kubeconfig.
"""

from __future__ import annotations

import os

from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError

ADAPTER = "kubernetes"
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


def completed(address: Address) -> Address:
    """The address with what the kubeconfig of this machine adds. Reads that file; sends nothing. Raises ConfigError
    where there is none, or it has no such context."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    try:
        contexts, current = list_kube_config_contexts(config_file())
    except ConfigException as error:
        raise ConfigError(f"{NO_CONFIG} ({error})") from error
    name = address.context or str((current or {}).get("name", ""))
    found = next((one for one in contexts if one.get("name") == name), None)
    if not name or found is None:
        known = [str(one.get("name")) for one in contexts]
        asked = f"no context {name}" if name else "no current context"
        near = did_you_mean(name, known) or "."
        there = ", ".join(known) or "none"
        raise ConfigError(f"the kubeconfig has {asked} (it has: {there}){near} Write overrides.kubernetes.context")
    return Address(address.namespace or str(found.get("context", {}).get("namespace") or "default"), name)


def config_file() -> str | None:
    """The files of the kubeconfig, as KUBECONFIG names them now (the client reads it once); None for the usual one."""
    return os.environ.get("KUBECONFIG") or None
