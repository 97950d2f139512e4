"""What other programs read of this one, and what it says of itself: the plugin's schema, what a golden sweep's state
would be written as now, the settings that its boxes would be sent, and the help of every command."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.golden.outputs.masks import masked
from tests.golden.outputs.moments import K4
from tests.golden.outputs.sweeps import GOLDEN, files_of

KINDS = (K4, "schema-1-2026-11-27-K3-host.tar.xz", "schema-1-2026-11-27-K3-slurm.tar.xz")
"""The newest golden sweep on this machine, on a host, and on a cluster."""
OF_THE_PACKAGE = ("version", "description", "keywords", "license", "homepage", "repository", "pluginDownloadURL")
"""What the schema repeats of the package's metadata, as they were when it was installed."""


def helps() -> str:
    """The help of every command and verb."""
    from sweepstack.cli.app import all_commands, app, command_names

    lines = ["-h", *(f"{name} -h" for name in sorted({*command_names(), *all_commands()}))]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for line in lines:
            print(f"$ sweepctl {line}")
            with contextlib.suppress(SystemExit):
                app(line.split(), prog_name="sweepctl")
            print()
    return shown.getvalue()


def schema() -> str:
    """The plugin's schema."""
    from sweepstack.provider.schema import schema_json

    return _json({key: value for key, value in json.loads(schema_json()).items() if key not in OF_THE_PACKAGE})


def records() -> str:
    """Of each kind of golden sweep: each resource's inputs and outputs, read by this version and written again, and
    the `spec.json` of each box."""
    return masked("\n".join(part for archive in KINDS for part in _records(archive)))


def _records(archive: str) -> Iterator[str]:
    from sweepstack.launch.ship import settings
    from sweepstack.provider import dispatch
    from sweepstack.provider.resources.queue import launch_spec
    from sweepstack.provider.session import Operation, Session

    resources = json.loads(files_of(GOLDEN / archive)["locked.json"])["deployment"]["resources"]
    for resource in sorted(resources, key=lambda one: str(one["urn"])):
        if resource["type"] not in dispatch.HANDLERS:
            continue
        handler = dispatch.handler_for(resource["type"])
        given = {key: value for key, value in resource["inputs"].items() if key != "__defaults"}
        inputs = dispatch.to_properties(handler.inputs_type.model_validate(given))
        state = dispatch._state(handler, given, resource["outputs"])
        name = (
            f"{archive.partition('.')[0]}: {resource['type'].rpartition(':')[2]} {resource['urn'].rpartition(':')[2]}"
        )
        yield f"# {name}, inputs\n{_json(inputs)}"
        yield f"# {name}, outputs\n{_json(dispatch._written(handler, state))}"
        if resource["type"].endswith(":Queue"):
            op, platform = Operation(Session(Path("/"), lambda *_: None), resource["urn"]), _NoPlatform()
            yield f"# {name}, spec.json\n{_json(settings(launch_spec(op, state, platform), 'python3'))}"


class _NoPlatform:
    """None of these sweeps has a lease, which is all that a platform would be asked about here."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the platform was asked for {name}")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


TEXTS: dict[str, Callable[[], str]] = {"help": helps, "schema": schema, "records": records}
"""File → what makes its text."""
