"""Reads the words below each field of a class out of its source.

They cost nothing at run time: Python drops them when it compiles the class.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import typing


def attribute_docs(cls: type) -> dict[str, str]:
    """Field → the string that stands below it in the class. Needs the source file, as a wheel has it."""
    (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    return {
        statement.target.id: " ".join(following.value.value.split())
        for statement, following in itertools.pairwise(body.body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
        and isinstance(following.value.value, str)
    }


def inherited_docs(cls: type) -> dict[str, str]:
    """The same, with the fields of the classes of ours that it builds on."""
    found: dict[str, str] = {}
    ours = cls.__module__.partition(".")[0]
    for one in reversed(cls.__mro__):
        if one.__module__.partition(".")[0] == ours:
            found |= attribute_docs(one)
    return found


def models_in(annotation: typing.Any) -> list[typing.Any]:
    """The models that an annotation names: `Box` in `tuple[Box, ...] | None`."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in models_in(argument)]
