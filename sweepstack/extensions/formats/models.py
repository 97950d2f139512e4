"""The readers of models in one file: Lightning, GGUF, ONNX, Flax, skops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sweepstack.core.printable import printable
from sweepstack.extensions.formats.numbers import NUMBERS, Numbers, add_array
from sweepstack.extensions.formats.shared import LibraryFile, leaves
from sweepstack.loaders.base import Bad, Content, NonFinite, OpenFile, Spec, Unreadable, Unsupported, some
from sweepstack.loaders.finite import FORMATS
from sweepstack.loaders.numpy_files import NpzFile
from sweepstack.loaders.scan import Region, Scan
from sweepstack.loaders.torch_files.archive import TorchZip


class Lightning(TorchZip):
    """A checkpoint of Lightning: one of torch, with what `Trainer.fit(ckpt_path=…)` asks for."""

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        super().__init__(file)

    def content(self, scanned: Scan) -> Content:
        """As of torch. Raises Unreadable without a state_dict that holds tensors, or the version of Lightning."""
        found = super().content(scanned)
        if lacking := sorted({"state_dict", "pytorch-lightning_version", "epoch", "global_step"} - found.names):
            raise Unreadable(f"is a torch file, and no checkpoint of Lightning: it lacks {some(lacking)}")
        if not any(name.startswith("state_dict.") for name, _ in self.tensors):
            raise Unreadable("has a state_dict without a tensor")
        return found


class Gguf:
    """A model in GGUF: the library reads the header and where tensors lie, our own pass every byte."""

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        from gguf import GGMLQuantizationType as Kind
        from gguf import GGUFReader

        formats = {Kind.F64: "f8", Kind.F32: "f4", Kind.F16: "f2", Kind.BF16: "bf16"}
        if not file.begins_with(b"GGUF"):
            raise Unreadable("is no GGUF file, or damaged from the start")
        try:
            reader = GGUFReader(file.path)
            self.tensors = [(one.name, one.n_elements) for one in reader.tensors]
            self.regions = sorted(
                (
                    Region(
                        start := int(one.data_offset),
                        start + int(one.n_bytes),
                        one.name,
                        None,
                        formats.get(one.tensor_type),
                    )
                    for one in reader.tensors
                ),
                key=lambda region: region.start,
            )
            self.names = {name for name, _ in self.tensors} | {str(name) for name in reader.fields}
            self.alignment = int(reader.alignment)
        except MemoryError:
            raise
        except Exception as error:  # a damaged header makes it raise whatever numpy does
            raise Unreadable(f"gguf refuses it ({type(error).__name__})") from None

    def content(self, scanned: Scan) -> Content:
        """Names of tensors and of fields; non-finite numbers of tensors that are not quantized."""
        if not self.tensors:
            raise Unreadable("holds no tensor")
        return _of_regions(self.names, self.regions, scanned)


def _of_regions(names: set[str], regions: list[Region], scanned: Scan) -> Content:
    found = Content(names)
    for region in regions:
        if region.format is None:
            continue
        size, length = FORMATS[region.format].itemsize, region.end - region.start
        if bad := scanned.nonfinite.get(region.name):
            found.nonfinite.append(NonFinite(region.name, bad, length == size))
        if length > size:
            found.add_floats(region.name, constant=region.name in scanned.constant)
    return found


class Onnx:
    """A model in ONNX, in one file. Raises Unsupported where its weights lie in other files."""

    regions: tuple[Region, ...] = ()

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx import checker

        try:
            self.model = onnx.load_model_from_string(file.read(0, file.size))
            outside = [one.name for one in self._weights() if one.data_location == onnx.TensorProto.EXTERNAL]
            if not outside:
                checker.check_model(self.model)
        except (DecodeError, checker.ValidationError, ValueError, TypeError, RecursionError) as error:
            raise Unreadable(f"onnx refuses it ({type(error).__name__})") from None
        if outside:
            raise Unsupported(f"keeps {some(outside)} in another file: save it in one, or judge it by load: command")
        if not self.model.graph.node:
            raise Unreadable("has a graph without a node")

    def content(self, scanned: Scan) -> Content:
        """Names of weights, inputs and outputs; non-finite numbers by weight. Raises Unreadable."""
        from onnx import numpy_helper

        graph = self.model.graph
        named: list[Any] = [*graph.initializer, *graph.input, *graph.output]
        found = Content({one.name for one in named})
        for at, one in enumerate(self._weights()):
            try:
                add_array(found, one.name or f"weight {at}", numpy_helper.to_array(one))
            except (ValueError, TypeError, KeyError) as error:
                raise Unreadable(f"{printable(one.name)} does not read ({type(error).__name__})") from None
        return found

    def _weights(self) -> Iterator[Any]:
        yield from self.model.graph.initializer
        for node in self.model.graph.node:
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


class Flax(LibraryFile):
    """What flax.serialization writes: msgpack of dicts, with arrays in it. Read into memory as a whole."""

    def content(self, scanned: Scan) -> Content:
        """Dotted names of arrays and the keys above them; non-finite numbers by array. Raises Unreadable."""
        import msgpack

        try:
            root = msgpack.unpackb(
                self.file.read(0, self.file.size), ext_hook=self._extended, raw=False, strict_map_key=False
            )
        except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
            raise Unreadable(f"msgpack refuses it ({type(error).__name__})") from None
        if not isinstance(root, dict) or not root:
            raise Unreadable("is no dict of Flax, or an empty one")
        found = Content({str(key) for key in root})
        for name, value in leaves(root):
            if isinstance(value, _Array):
                found.names.add(name)
                if value.kind is not None:
                    numbers = Numbers(value.kind)
                    numbers.feed(memoryview(value.data))
                    numbers.note(found, name)
            elif isinstance(value, float) and value != value:
                found.nonfinite.append(NonFinite(name, Bad(1, 1)))
        return found

    @staticmethod
    def _extended(code: int, data: bytes) -> Any:
        import msgpack

        if code == 2:
            return complex(*msgpack.unpackb(data))
        if code not in (1, 3):
            raise ValueError(f"extension {code} is not one of Flax")
        shape, name, buffer = msgpack.unpackb(data, raw=True)
        kind = "bfloat16" if name == b"V" else bytes(name).decode()
        size = FORMATS[NUMBERS[kind]].itemsize if kind in NUMBERS else np.dtype(kind).itemsize
        count = 1
        for length in shape:
            count *= length
        if count * size != len(buffer):
            raise ValueError("an array has not the bytes that its shape needs")
        return _Array(NUMBERS.get(kind), buffer)


class _Array:
    def __init__(self, kind: str | None, data: bytes) -> None:
        self.kind, self.data = kind, data


class Skops(NpzFile):
    """A model of scikit-learn as skops saved it: each part by its CRC; built only if skops' audit trusts each type."""

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        super().__init__(file)
        if "schema.json" not in self.directory.parts:
            raise Unreadable("is a zip archive, and not one of skops: it holds no schema.json")

    def content(self, scanned: Scan) -> Content:
        """Names of array files, and non-finite numbers by these. Raises Unreadable, and Unsupported for types that the
        audit does not trust: then nothing is built."""
        from skops import io

        found = super().content(scanned) if self.headers else Content()
        data = self.file.read(0, self.file.size)
        try:
            foreign = io.get_untrusted_types(data=data)
        except MemoryError:
            raise
        except Exception as error:
            raise Unreadable(f"skops refuses it ({type(error).__name__})") from None
        if foreign:
            raise Unsupported(
                f"names {some(sorted(map(str, foreign)))}, which skops' audit does not trust: nothing was loaded; "
                "judge it by load: command"
            )
        try:
            model = io.loads(data, trusted=[])
        except MemoryError:
            raise
        except Exception as error:
            raise Unreadable(f"skops refuses it ({type(error).__name__})") from None
        found.names |= {str(name) for name in getattr(model, "__dict__", {})}
        return found
