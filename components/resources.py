"""The resources as the program sees them: named inputs go in, typed outputs come out, no logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from sweepstack.core import resources as models
from sweepstack.core.spelling import camel, outside


class Component(pulumi.ComponentResource):
    """A group in the engine's list, of the type `sweepstack:index:<its class>`."""

    outputs: Mapping[str, Any]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None, *, called: str) -> None:
        """`called`: its name in a program that leaves it to us. The engine takes such an entry over with all that lies
        below it; also one of before it could be had from each language, which has another type."""
        token = f"sweepstack:index:{type(self).__name__}"
        aliases = [pulumi.Alias(type_=models.FIRST_TYPES[token], name=called)]
        aliases += [pulumi.Alias(name=called)] if name != called else []
        merged = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=[*aliases]))
        super().__init__(token, name, None, merged)

    def declared(self, **outputs: Any) -> None:
        """To be called at the end: all of it is declared, and this is what it hands out."""
        self.outputs = outputs
        self.register_outputs({camel(name): value for name, value in outputs.items()})

    def export(self) -> None:
        """What it hands out, as the stack's outputs."""
        for name, value in self.outputs.items():
            pulumi.export(name, value)


class _Resource(pulumi.CustomResource):
    """A resource of the sweepstack provider, with the outputs that it is annotated with."""

    model: type[models.Inputs]
    ended_before_replaced = False
    """Forced, since the engine's `--target-replace` asks the option and not the provider."""
    imports = False
    """Whether `pulumi import` finds it."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None, /, **inputs: Any) -> None:
        """`inputs`: values or outputs, of the fields of `model`. None is not sent. Raises TypeError for a name that it
        has not, and for one that is lacking."""
        fields = self.model.model_fields
        given = {key: value for key, value in inputs.items() if value is not None}
        wrong = [*(inputs.keys() - fields), *(key for key in fields if fields[key].is_required() and key not in given)]
        if wrong:
            raise TypeError(f"{type(self).__name__} {name}: no input, or one that is lacking: {', '.join(wrong)}")
        if self.imports:  # an import stands below no component
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=[pulumi.Alias(parent=None)]))
        if self.ended_before_replaced:
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True))
        # What the SDK shall hand out has to be among the properties, or it is dropped.
        token, outputs = f"sweepstack:index:{type(self).__name__}", dict.fromkeys(type(self).__annotations__)
        super().__init__(token, name, outside(token, {**outputs, **given}), opts)
        for output in outputs:  # the SDK's own translation would rename the keys of people's maps, too
            setattr(self, output, getattr(self, camel(output)))


class Provider(pulumi.ProviderResource):
    """A provider with keys of its own, for resources of another account: `opts=ResourceOptions(provider=…)`."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None, /, **keys: pulumi.Input[str]) -> None:
        """`keys`: as the provider's configuration has them, in snake_case. Secret from here on."""
        given = {camel(key): pulumi.Output.secret(value) for key, value in keys.items()}
        super().__init__("sweepstack", name, given, opts)


class Identity(_Resource):
    """The random name of a sweep, made once, and the place of its evidence."""

    model = models.IdentityInputs
    identity: pulumi.Output[str]
    evidence: pulumi.Output[str]


class Volume(_Resource):
    """A volume: found by its tag, or made. Removed only by the stack that keeps it, by its own check."""

    model = models.VolumeInputs
    imports = True
    native_id: pulumi.Output[str]
    location: pulumi.Output[str]
    price_per_month: pulumi.Output[float | None]
    clearance: pulumi.Output[str | None]


class Box(_Resource):
    """One rented machine. Ended before it is replaced: a refusal comes before a second one is rented."""

    model = models.BoxInputs
    ended_before_replaced = True
    imports = True
    native_id: pulumi.Output[str]
    account: pulumi.Output[str]
    generation: pulumi.Output[int]
    tag: pulumi.Output[str]
    phase: pulumi.Output[str]
    host_keys: pulumi.Output[Sequence[str] | None]
    price_per_hour: pulumi.Output[float | None]
    created_at: pulumi.Output[str | None]
    clearance: pulumi.Output[str]


class Queue(_Resource):
    """The cells of one box."""

    model = models.QueueInputs
    ended_before_replaced = True
    launched_at: pulumi.Output[str]


class Gate(_Resource):
    """What stands between a box and its end, for order and for people. A changed `box` replaces it."""

    model = models.GateInputs
    ended_before_replaced = True
    box: pulumi.Output[str]
    clearance: pulumi.Output[str]
