"""The facts of a platform that a stack config replaces, also those of its network.

And a person's word that an old fact of a profile counts: that fact, of that month, for a while.
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from sweepstack.config.pods import ContextName, ObjectName, QualifiedName, Tolerations
from sweepstack.config.types import (
    Count,
    Day,
    EnvName,
    EnvValue,
    HostPath,
    HostProgram,
    Hours,
    Names,
    PriceOrZero,
    Shape,
    Text,
    wrong,
)

Route = Literal["huggingface", "modelscope", "pip", "conda", "apt"]
"""The services that a mirror replaces: each is set alone."""

_MONTH = re.compile(r"\d{4}-\d{2}(-\d{2})?|unverified")
_NAME = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_]*")


def _line_or_flag(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and value.strip() and "\0" not in value):
        return value
    raise wrong("true, false, or a shell line such as `export https_proxy=http://10.0.0.1:3128`")


def _off_or_variables(value: Any) -> Any:
    if value is False or (isinstance(value, dict) and value):
        return value
    raise wrong('false, or variables, such as {PIP_INDEX_URL: "https://mirror/simple"}')


def _off_or_path(value: Any) -> Any:
    if value is False or (isinstance(value, str) and value.startswith(("/", "~/"))):
        return value
    raise wrong("false, or a path such as /data/hf or ~/hf")


class NetworkOverride(Shape):
    """Proxy, mirrors and caches of one platform, instead of those in its profile."""

    anchor: ClassVar[str] = "network"
    proxy: Annotated[bool | Text | None, BeforeValidator(_line_or_flag)] = None
    """`false`: the platform's proxy is not used; `true`: every set-up and every cell uses it, even if the profile uses
    it for single calls only; a shell line: used instead of the platform's"""
    mirrors: dict[Route, Annotated[Literal[False] | dict[EnvName, EnvValue], BeforeValidator(_off_or_variables)]] = (
        Field(default_factory=dict)
    )
    """route (`huggingface`, `modelscope`, `pip`, `conda`, `apt`) → `false`, or the variables that point to another
    mirror: `{pip: {PIP_INDEX_URL: "https://mirror/simple"}, huggingface: false}`"""
    caches: dict[EnvName, Annotated[Literal[False] | Text, BeforeValidator(_off_or_path)]] = Field(default_factory=dict)
    """variable → the folder for downloads on the box, or `false`: `{HF_HOME: /data/hf}`"""


class Override(Shape):
    """Facts that replace those of the platform's profile."""

    anchor: ClassVar[str] = "overrides"
    price_per_hour: PriceOrZero | None = None
    """USD per hour and box, for a platform that quotes no price (`local`), so that costs are shown; needed if boxes
    cost money without a quoted price, such as hosts that are entered by SSH"""
    stopped_price_per_hour: PriceOrZero | None = None
    """the same while the box is stopped"""
    egress_per_gb: PriceOrZero | None = None
    """USD per GB that leaves its boxes, where its traffic costs and the platform names no price: what a pull costs is
    then shown. 0: nothing"""
    purge_days: Count | None = None
    """after how many days the site of a cluster removes files that were not used"""
    price_per_gpu_hour: PriceOrZero | None = None
    """on a cluster: USD for an hour of one GPU that its jobs hold: the preview and `status` show what that comes to"""
    gpu_hours: Hours | None = None
    """on a cluster: how many GPU-hours of your allocation the sweep may take. `status` counts them; it stops nothing"""
    network: NetworkOverride | None = None
    """proxy, mirrors and caches of its boxes: [network](#network)"""
    places: dict[Literal["scratch", "data", "durable"], HostPath] = Field(default_factory=dict)
    """tier → its path on the hosts of this platform, if it is not the one in the profile: `{durable: /data/keep}`. It
    is checked when a box is made"""
    python: HostProgram | None = None
    """the Python that runs on its hosts before the queue starts: `/opt/conda/bin/python`; else the profile's"""
    keep: Names | None = None
    """packages of the image that `job.setup` can't replace, if they are not those in the profile (`torch`,
    `torchvision`, `torchaudio`): `[]` for none"""
    context: ContextName | None = None
    """on a cluster of pods: the context of your kubeconfig; by default the current one"""
    namespace: ObjectName | None = None
    """on a cluster of pods: where boxes are made; by default the context's own"""
    storage_class: ObjectName | None = None
    """on a cluster of pods: the class of the boxes' storage; by default the cluster's own. Its size is
    `resources.disk`. Another one is another box"""
    service_account: ObjectName | None = None
    """on a cluster of pods: whom the pods run as there; by default `default`, without its token"""
    priority_class: ObjectName | None = None
    """on a cluster of pods: the priority class of the workers"""
    tolerations: Tolerations = ()
    """on a cluster of pods: taints of nodes that the workers bear: [tolerations](#tolerations)"""
    queue: ObjectName | None = None
    """on a cluster of pods: the local queue of Kueue that the workers wait in"""
    gpu_resource: QualifiedName | None = None
    """on a cluster of pods: what its GPUs are called as a resource; by default `nvidia.com/gpu`"""
    gpu_label: QualifiedName | None = None
    """on a cluster of pods: the label of nodes that has the name of their GPUs, which `resources.gpu.name` is compared
    with; by default `nvidia.com/gpu.product`"""
    pod: dict[str, Any] = Field(default_factory=dict)
    """on a cluster of pods: further fields of the pods, as the API spells them: `{nodeSelector: {disk: ssd}}`. What
    sweepstack sets itself is refused, with the key that sets it"""


def _month(value: Any) -> str:
    if not isinstance(value, str) or not _MONTH.fullmatch(value):
        raise wrong('the month that the profile gives for the fact, such as "2026-06", or unverified')
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise wrong("PLATFORM.FACT, as `sweepctl profile check --old` names it")
    return value


FactName = Annotated[str, BeforeValidator(_name)]


class AcceptedFact(Shape):
    """An old or unverified fact of a profile that a person takes as it is."""

    anchor: ClassVar[str] = "accept_facts"
    month: Annotated[str, BeforeValidator(_month)]
    """the month that the profile gave for the fact then: `"2026-06"`, or `unverified`. Once the profile gives another
    one, this acceptance counts no more"""
    accepted: Day
    """the day on which it was accepted; it counts for six months"""
