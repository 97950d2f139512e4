"""The bodies that the simulated vast.ai takes, field by field: anything else is no request of this API.

Source: vast.ai's API reference; its limits are taken where the SDK or its guides say another one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from tests.simulators.core import Request, parse
from tests.simulators.vastai.replies import Strange, invalid_args, refusal

SSH_WORDS = {  # what was asked at create → what is read back
    "ssh": "ssh ssh_proxy",
    "ssh_proxy": "ssh ssh_proxy",
    "ssh_direct": "ssh ssh_direc ssh_proxy",
    "ssh_direc ssh_proxy": "ssh ssh_direc ssh_proxy",
    "jupyter": "jupyter ssh_proxy",
    "jupyter_proxy": "jupyter ssh_proxy",
    "jupyter_proxy ssh_proxy": "jupyter ssh_proxy",
    "jupyter_direct": "jupyter_direc ssh_direc ssh_proxy",
    "jupyter_direc ssh_direc ssh_proxy": "jupyter_direc ssh_direc ssh_proxy",
    "args": "args",
}
LABEL_AT_CREATE = 256
COMMANDS, IMAGE, ENV_TOTAL, PORTS = 4096, 1024, 32768, 64
LEAST_DISK = 8.0
Number = Annotated[float, Field(ge=0)]


M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class VolumeInfo(Body):
    mount_path: str
    create_new: bool = False
    volume_id: int
    name: str | None = None
    size: int | None = None


class Create(Body):
    """PUT /asks/{id}/: what the SDK sends, and what the API page has beside it."""

    client_id: Literal["me"] = "me"
    image: str | None = None
    env: dict[str, str] | str | None = None
    price: Number | None = None
    disk: Number = 10.0
    label: str | None = None
    extra: str | None = None
    onstart: str | None = None
    image_login: str | None = None
    python_utf8: bool = False
    lang_utf8: bool = False
    use_jupyter_lab: bool = False
    jupyter_dir: str | None = None
    force: bool = False
    cancel_unavail: bool | None = None
    template_hash_id: str | None = None
    user: str | None = None
    runtype: str | None = None
    args: list[str] | None = None
    args_str: str | None = None
    vm: bool = False
    volume_info: VolumeInfo | None = None
    target_state: Literal["running", "stopped"] | None = None


class Manage(Body):
    """PUT /instances/{id}/"""

    state: Literal["running", "stopped"]


class Bid(Body):
    client_id: Literal["me"] = "me"
    price: float | None


class Key(Body):
    id: int | None = None
    ssh_key: str | None = None


class RentVolume(Body):
    id: int
    size: int = 15
    name: str | None = None


class Nothing(Body):
    """Endpoints whose body is {} or none."""


def read(model: type[M], request: Request) -> M:
    """The body as its model. An unknown field or a wrong type is Strange; no JSON is the vendor's 400."""
    try:
        told: Any = request.json()
    except ValueError:
        raise refusal(400, "invalid_request", "Invalid json body") from None
    found = parse(model, {} if told is None else told)
    if isinstance(found, list):
        raise Strange("; ".join(text for text, _ in found))
    return found


def check(body: Create, ask: int) -> None:
    """The vendor's own limits: a client that checks nothing meets them here."""
    if not body.image and not body.template_hash_id:
        raise invalid_args("image", ask_id=ask)
    if body.disk < LEAST_DISK:
        raise invalid_args(f"disk {body.disk:g} < {LEAST_DISK:g}", ask_id=ask)
    if len(body.image or "") > IMAGE:
        raise invalid_args("image too long", ask_id=ask)
    if len(body.label or "") > LABEL_AT_CREATE:
        raise refusal(400, "label_too_long", f"Please limit label length to {LABEL_AT_CREATE} characters", ask_id=ask)
    if len(body.onstart or "") + len(body.args_str or "") + sum(map(len, body.args or [])) > COMMANDS:
        raise invalid_args(f"onstart and args are longer than {COMMANDS}", ask_id=ask)
    if isinstance(body.env, dict):
        if sum(len(name) + len(value) for name, value in body.env.items()) > ENV_TOTAL:
            raise invalid_args(f"env is longer than {ENV_TOTAL}", ask_id=ask)
        if sum(name.startswith("-p ") for name in body.env) > PORTS:
            raise invalid_args(f"more than {PORTS} ports", ask_id=ask)
    if body.runtype is not None and body.runtype not in SSH_WORDS:
        raise invalid_args(f"runtype {body.runtype}", ask_id=ask)
