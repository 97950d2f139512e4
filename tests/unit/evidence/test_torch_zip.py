"""The restricted reader: what it reads, and what a hostile checkpoint can't make it do."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load
from tests.unit.evidence.torchzip import Blob, Calls, Global, Parameter, View, bf16, dump, save, tensor

ONES = np.ones((4, 6), np.float32)
V3 = Global("torch._utils", "_rebuild_tensor_v3")


def prove(
    path: Path, root: Any = None, *, keys: tuple[str, ...] = (), finite: Any = "require", **settings: Any
) -> LoadResult:
    """Writes `root` and reads it."""
    if root is not None:
        save(root, path, **settings)
    return load(str(path), PlainSpec("torch", keys, finite))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the checkpoint goes."""
    return tmp_path / "best.pt"


def bad(*values: float, fill: float = 1.0, kind: type = np.float32, size: int = 24) -> np.ndarray:
    array = np.full(size, fill, kind)
    array[3 : 3 + len(values)] = values
    return array


def test_a_training_state_is_read(path: Path) -> None:
    momentum = {"step": tensor(np.float32(7)), "exp_avg": tensor(ONES), "exp_avg_sq": tensor(ONES)}
    root = {
        "model": OrderedDict(w=Parameter(tensor(ONES)), b=bf16([1, 2, 3])),
        "optimizer": {
            "state": {0: momentum, 1: momentum},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "fused": None, "maximize": False, "params": [0, 1]}],
        },
        "scheduler": {"milestones": Calls(Global("collections", "Counter"), ({30: 1},)), "best": float("inf")},
        "rng": [tensor(np.arange(8, dtype=np.uint8), "u1"), Calls(Global("torch", "device"), ("cuda", 0))],
        "shape": Calls(Global("torch", "Size"), ((4, 6),)),
        "dtype": Global("torch", "float32"),
        "tags": {"a", "b"},
        "blob": b"\x00\xff",
        "epoch": 3,
        "big": 1 << 80,
    }
    keys = ("model", "epoch", "model.w", "optimizer.state.0.exp_avg", "rng.0")
    assert prove(path, root, keys=keys).ok
    assert prove(path, keys=("model.x", "epoch", "lr")).reasons == ("lacks model.x, lr",)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: bad(np.nan, np.inf, -np.inf), "f4"),
        (lambda: bad(np.nan, np.inf, -np.inf, kind=np.float64), "f8"),
        (lambda: bad(np.nan, np.inf, -np.inf, kind=np.float16), "f2"),
        (lambda: np.array([0x7F80, 0xFF80, 0x7FC1, 0x3F80, 0x7F7F], np.uint16), "bf16"),
        (lambda: np.array([1, complex(np.nan, 0), complex(0, np.inf), complex(0, -np.inf)], np.complex64), "c8"),
        (lambda: np.array([1, complex(np.nan, 0), complex(0, np.inf), complex(0, -np.inf)], np.complex128), "c16"),
    ],
)
def test_non_finite_numbers_are_counted(path: Path, make: Any, kind: str) -> None:
    root = {"model": {"good": tensor(ONES), "bad": tensor(make(), kind)}}
    assert prove(path, root).reasons == ("3 non-finite (model.bad)",)
    assert prove(path, root, finite="report").notes == ("3 non-finite (model.bad)",)
    assert prove(path, root, compression=zipfile.ZIP_DEFLATED).reasons == ("3 non-finite (model.bad)",)


@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
def test_the_largest_numbers_are_finite(path: Path, kind: str) -> None:
    largest = np.finfo(kind).max
    assert prove(path, {"w": tensor(np.array([largest, -largest, 0, np.finfo(kind).tiny], kind), kind)}).ok


def test_integers_that_look_like_nan_are_integers(path: Path) -> None:
    noise = np.full(64, 0x7FC07FC0, np.uint32)
    roots = [(noise.view(np.int64), "i8"), (noise.view(np.int32), "i4"), (noise.view(np.uint8), "u1")]
    assert prove(path, {kind: tensor(array, kind) for array, kind in roots}).ok


@pytest.mark.parametrize(
    ("dtype", "values", "count"),
    [
        ("float8_e4m3fn", [0x7F, 0xFF, 0x7E, 0x00], 2),
        ("float8_e5m2", [0x7C, 0xFC, 0x7F, 0x7B], 3),
        ("float8_e5m2fnuz", [0x80, 0x7F, 0xFF], 1),
        ("float8_e8m0fnu", [0xFF, 0x7F], 1),
        ("float8_e4m3fnuz", [0x80, 0x80], 2),
        ("uint16", [0x7C, 0x7F], 0),
    ],
)
def test_untyped_storages_have_the_numbers_of_their_tensors(
    path: Path, dtype: str, values: list[int], count: int
) -> None:
    untyped = Blob(bytes(values), "u1", global_=Global("torch.storage", "UntypedStorage"))
    length = len(values) // (2 if dtype == "uint16" else 1)
    view = View(untyped, 0, (length,), (1,), V3, (False, OrderedDict(), Global("torch", dtype)))
    result = prove(path, {"w": view})
    assert result.reasons == ((f"{count} non-finite (w)",) if count else ())


def test_numbers_that_no_tensor_shows_do_not_count(path: Path) -> None:
    blob = Blob(bad(np.nan, np.nan).tobytes())
    assert prove(path, {"w": View(blob, 5, (19,), (1,))}).ok
    assert prove(path, {"w": View(blob, 4, (20,), (1,))}).reasons == ("1 non-finite (w)",)
    assert prove(path, {"w": View(blob, 0, (3, 2), (8, 1))}).ok  # columns 0 and 1 of rows of 8
    assert prove(path, {"w": View(blob, 0, (3, 4), (8, 1))}).reasons == ("1 non-finite (w)",)
    assert prove(path, {"w": View(blob, 0, (2, 3), (1, 4))}).reasons == ("1 non-finite (w)",)  # 4 is row 0, column 1
    assert prove(path, {"w": View(blob, 3, (1000, 1000), (0, 0))}).reasons == ("1 non-finite (w)",)
    assert prove(path, {"w": View(blob, 0, (9, 9), (1, 1))}).reasons == ("2 non-finite (w)",)


def test_many_bad_tensors_are_not_all_named(path: Path) -> None:
    root = {f"layer{n}": tensor(bad(np.nan)) for n in range(9)}
    assert prove(path, root).reasons == ("9 non-finite (layer0, layer1, layer2 and 6 more)",)


def test_big_endian_files_are_read_as_such(path: Path) -> None:
    root = {"w": tensor(bad(np.nan).astype(">f4"))}
    assert prove(path, root, byteorder=b"big").reasons == ("1 non-finite (w)",)
    assert prove(path, root, byteorder=b"middle").reasons == ("has no proper byte order",)


@pytest.mark.parametrize("root", [{"epoch": 1}, 7, "x", None, [None], {"w": tensor(np.empty((0, 3), np.float32))}])
def test_without_a_tensor_it_is_noted_and_no_checkpoint_where_keys_are_asked_for(path: Path, root: Any) -> None:
    save(root, path)
    found = prove(path)
    assert (found.ok, found.notes) == (True, ("holds no tensor",))
    assert "holds no tensor" in load(str(path), PlainSpec("torch", keys=("w",))).reasons
    assert load(str(path), PlainSpec("torch", plausible="require")).reasons == ("holds no tensor",)


@pytest.mark.parametrize("root", [{}, [], OrderedDict(), {"state_dict": OrderedDict(), "more": [{}, ()]}])
def test_with_nothing_in_it_it_is_no_result(path: Path, root: Any) -> None:
    save(root, path)
    assert prove(path).reasons == ("holds nothing: no tensor, and no other value",)


def test_a_storage_that_no_tensor_shows_is_there_too(path: Path) -> None:
    """torch.load reads each that the pickle names."""
    blob = Blob(ONES.tobytes(), count=ONES.size + 1)
    save({"w": tensor(ONES), "bare": blob}, path)
    assert "storage 1 holds" in prove(path).reasons[0] or "storage 0 holds" in prove(path).reasons[0]


@pytest.mark.parametrize(
    "what",
    [
        Global("os", "system"),
        Global("posix", "system"),
        Global("builtins", "eval"),
        Global("__builtin__", "getattr"),
        Global("torch.storage", "_load_from_bytes"),
        Global("torch", "load"),
        Global("torch.hub", "load"),
        Global("numpy", "load"),
        Global("numpy.core.multiarray", "scalar"),
        Global("collections", "OrderedDict.fromkeys"),
        Global("functools", "partial"),
        Global("sweepstack.loaders.torch_files.unpickle", "_GLOBALS"),
        Global("torch._utils", "_rebuild_tensor_v2.__globals__"),
    ],
)
def test_every_other_name_is_refused_and_nothing_runs(path: Path, what: Global, tmp_path: Path) -> None:
    result = prove(path, {"w": tensor(ONES), "x": Calls(what, (f"touch {tmp_path / 'pwned'}",))})
    assert "is not on the reader's list: nothing was loaded" in result.reasons[0]
    assert what.name.split(".")[0] in result.reasons[0]
    assert (result.ok, result.unsupported) == (False, True)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "helps"),
    [
        ("argparse.Namespace", "save vars(args) in its place"),
        ("pathlib.PosixPath", "save str(path) in its place"),
        ("pathlib._local.PosixPath", "save str(path) in its place"),
        ("numpy.core.multiarray.scalar", "save float(x) in its place"),
        ("numpy._core.multiarray._reconstruct", "save torch.from_numpy(x) in its place"),
        ("collections.defaultdict", "save dict(d) in its place"),
        ("__main__.Config", "save its state_dict, or plain values, in its place"),
        ("torch.nn.modules.linear.Linear", "save its state_dict"),
        ("torch._utils._rebuild_wrapper_subclass", "SWEEPSTACK_TORCH_READER=torch reads it"),
        ("posix.system", "It could run any program: open it with nothing that unpickles"),
        ("subprocess.Popen", "It could run any program"),
        ("__builtin__.eval", "It could run any program"),
    ],
)
def test_what_helps_is_said_with_each_name_that_is_refused(path: Path, name: str, helps: str) -> None:
    save({"w": tensor(ONES), "x": Calls(Global(*name.rsplit(".", 1)), ())}, path)
    said = prove(path).reasons[0]
    assert said.startswith(f"names {name}, which is not on the reader's list")
    assert helps in said
    assert ("load: command" in said) == ("in its place" in helps or "state_dict" in helps)


@pytest.mark.parametrize(
    ("compression", "reason"),
    [
        (zipfile.ZIP_STORED, "was damaged before it was sealed: CRC of {} differs"),
        (zipfile.ZIP_DEFLATED, "{} does not unpack"),
    ],
)
def test_damage_is_damage_also_in_a_file_that_this_reader_does_not_take(
    path: Path, compression: int, reason: str
) -> None:
    noise = np.random.default_rng(0).standard_normal(400).astype(np.float32)
    save({"w": tensor(noise), "x": Calls(Global("argparse", "Namespace"), ())}, path, compression=compression)
    good = path.read_bytes()
    for part, behind in (("archive/data/0", 900), ("archive/data.pkl", 100)):
        data = bytearray(good)
        data[data.index(part.encode()) + behind] ^= 1
        path.write_bytes(bytes(data))
        found = prove(path)
        assert found.reasons[0].startswith(reason.format(part)), found.reasons
        assert not found.unsupported


def protocol2(*parts: bytes) -> bytes:
    return b"\x80\x02" + b"".join(parts) + b"."


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


@pytest.mark.parametrize(
    "data",
    [
        protocol2(REBUILD, b"}X\x0c\x00\x00\x00__defaults__Nsb"),  # BUILD: state dict onto a function
        protocol2(REBUILD, b"N}X\x09\x00\x00\x00_function)s\x86b"),  # BUILD: slots onto a function
        protocol2(REBUILD, b"N}X\x08\x00\x00\x00__call__)s\x86b"),
        protocol2(b"ccollections\nOrderedDict\n", b"N}X\x05\x00\x00\x00itemsNs\x86b"),  # onto a builtin class
        protocol2(b"ctorch\nFloatStorage\n", b"N}X\x06\x00\x00\x00formatNs\x86b"),
        protocol2(REBUILD, b")\x81"),  # NEWOBJ of a function
        protocol2(b"N", b"Q"),  # persistent id that is none
        protocol2(b"(X\x07\x00\x00\x00storageNNNNtQ"),
        protocol2(b"\x88", REBUILD, b")R"),
        protocol2(b"0"),
        b"",
        b".",
        b"\x80\x05\x95" + struct.pack("<Q", 1 << 60) + b".",  # a frame longer than the file
        protocol2(b"\x8d" + struct.pack("<Q", 1 << 62)),  # a string longer than the file
        protocol2(*[b"("] * 100_000),
        protocol2(b"]" * 10_000 + b"a" * 9_999),
        protocol2(b"\x82\x01"),  # extension registry
        protocol2(b"cos\nsystem\n(X\x02\x00\x00\x00idtR"),
        protocol2(b"(X\x02\x00\x00\x00idios\nsystem\n"),  # INST
    ],
)
def test_hostile_pickles_end_in_a_reason(path: Path, data: bytes) -> None:
    save({"w": tensor(ONES)}, path, pickle_bytes=data)
    before = dict(vars(OrderedDict))
    result = prove(path)
    assert not result.ok
    assert result.sha256  # the bytes were hashed all the same
    assert dict(vars(OrderedDict)) == before
    assert prove(path.with_name("next.pt"), {"w": tensor(ONES)}).ok  # the next file is read as ever


def test_shared_and_endless_structures_come_once(path: Path) -> None:
    layer: Any = {"w": tensor(ONES)}
    for _ in range(60):  # 2^60 paths
        layer = [layer, layer]
    assert prove(path, {"x": layer}).ok
    loop: list[Any] = [tensor(ONES)]
    loop.append(loop)
    assert prove(path, loop).ok


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (View(Blob(ONES.tobytes()), 1, (24,), (1,)), "reaches beyond its storage"),
        (View(Blob(ONES.tobytes()), 0, (5, 6), (6, 1)), "reaches beyond its storage"),
        (View(Blob(ONES.tobytes()), 0, (2,), (1 << 62,)), "reaches beyond its storage"),
        (View(Blob(ONES.tobytes()), 0, (1 << 62,), (1,)), "reaches beyond its storage"),
        (View(Blob(ONES.tobytes()), -1, (2,), (1,)), "no sizes"),
        (View(Blob(ONES.tobytes()), 5, (2,), (-1,)), "no sizes"),
        (View(Blob(ONES.tobytes()), 0, (-2,), (1,)), "no sizes"),
        (View(Blob(ONES.tobytes()), 0, (1 << 64,), (0,)), "no sizes"),
        (View(Blob(ONES.tobytes()), 0, (2.0,), (1,)), "no sizes"),  # type: ignore[arg-type]
        (View(Blob(ONES.tobytes()), True, (2,), (1,)), "no sizes"),
        (View(Blob(ONES.tobytes()), 0, (2,), (1, 1)), "sizes and strides"),
        (View(Blob(ONES.tobytes()), 0, (1,) * 65, (1,) * 65), "sizes and strides"),
        (View(Blob(ONES.tobytes(), count=25), 0, (24,), (1,)), "holds 96 bytes, not 100"),
        (View(Blob(ONES.tobytes(), count=23), 0, (23,), (1,)), "holds 96 bytes, not 92"),
        (View(Blob(ONES.tobytes(), count=-1), 0, (0,), (1,)), "no proper size"),
        (View("no storage", 0, (1,), (1,)), "typed storage"),  # type: ignore[arg-type]
        (View(Blob(b"abc", "u1", global_=Global("torch", "UntypedStorage")), 0, (3,), (1,)), "typed storage"),
        (View(Blob(ONES.tobytes()), 0, (3,), (1,), V3, (False, {}, Global("torch", "int8"))), "disagree"),
        (View(Blob(ONES.tobytes()), 0, (3,), (1,), V3, (False, {}, "float32")), "no number type"),
    ],
)
def test_tensors_that_leave_their_storage_are_refused(path: Path, view: View, reason: str) -> None:
    assert reason in prove(path, {"good": tensor(ONES), "w": view}).reasons[0]


class Same(Blob):
    """Another storage that is called as the one before it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob)

    __hash__ = None  # type: ignore[assignment]


def untyped(data: bytes, *dtypes: str) -> list[View]:
    """One storage without a type, looked at as numbers of each type."""
    blob, rest = Blob(data, "u1", global_=Global("torch.storage", "UntypedStorage")), (False, OrderedDict())
    return [View(blob, 0, (1,), (1,), V3, (*rest, Global("torch", dtype))) for dtype in dtypes]


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        (
            [View(one(ONES.tobytes(), kind), 0, (24,), (1,)) for one, kind in ((Blob, "f4"), (Same, "i4"))],
            "is said to be",
        ),
        (untyped(ONES.tobytes(), "int32", "float32"), "is looked at as two number types"),
        (untyped(b"abc", "float16"), "does not hold whole numbers"),
    ],
)
def test_a_storage_is_of_one_number_type(path: Path, views: list[View], reason: str) -> None:
    """Else its numbers would be judged as what they are not: a NaN is a whole number, too."""
    found = prove(path, views)
    assert reason in found.reasons[0]
    assert found.unsupported


def calls(name: str, *arguments: Any) -> Calls:
    """Calls a function of torch."""
    module, _, last = f"torch.{name}".rpartition(".")
    return Calls(Global(module, last), arguments)


def sparse(layout: str, *data: Any) -> Calls:
    """A sparse tensor; a list in `data` is an index."""
    parts = [tensor(np.array(one), "i8") if isinstance(one, list) else one for one in data]
    return calls("_utils._rebuild_sparse_tensor", calls("serialization._get_layout", layout), tuple(parts))


def quantized(numbers: int, *quantizer: Any) -> Calls:
    """A tensor of so many bytes, quantized."""
    return calls("_utils._rebuild_qtensor", Blob(bytes(numbers), "i1"), 0, (numbers,), (1,), quantizer, False, {})


def ones(count: int) -> View:
    """So many numbers."""
    return tensor(np.ones(count, np.float32))


NAN = tensor(np.array([np.nan, 1], np.float32))
FIT = "whose indices do not fit its size"
REBUILD_V2 = Global("torch._utils", "_rebuild_tensor_v2")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (sparse("torch.sparse_coo", [[0, 0, 1, 1], [0, 1, 0, 1]], ones(4), (2, 2), True), ""),
        (sparse("torch.sparse_coo", [[1, 0], [0, 1]], ones(2), (2, 2), True), FIT),
        (sparse("torch.sparse_coo", [0, 1], ones(2), (3,)), FIT),
        (sparse("torch.sparse_coo", [[0, 1]], ones(3), (3,)), FIT),
        (sparse("torch.sparse_csr", [0, 1, 2], [[0], [1]], ones(2), (2, 2)), FIT),
        (sparse("torch.sparse_csr", [0, 1, 2], [0, 1], ones(3), (2, 2)), FIT),
        (sparse("torch.sparse_csr", [0, 2], [0, 1], ones(2), (2, 2)), FIT),
        (sparse("torch.sparse_odd", [0, 2], [0, 1], ones(2), (2, 2)), "of a layout that this reader does not take"),
        (sparse("torch.sparse_coo", 7, ones(2), (3,)), "is not made of tensors and a size"),
        (sparse("torch.sparse_coo", [[0, 1]], ones(2), (-3,)), "is not made of tensors and a size"),
        (quantized(3, Global("torch", "per_tensor_affine"), 0.1, 0), ""),
        (quantized(3, Global("torch", "per_tensor_affine"), np.nan, 0), "1 non-finite (x)"),
        (quantized(3, Global("torch", "per_tensor_symmetric"), 0.1, 0), "quantized in a way that this reader"),
        (quantized(3, Global("torch", "per_channel_affine"), ones(3), ones(3), 0), ""),
        (quantized(3, Global("torch", "per_channel_affine"), ones(2), ones(2), 0), "not one scale and one zero point"),
        (quantized(3, Global("torch", "per_channel_affine"), ones(3), ones(3), 1), "not one scale and one zero point"),
        (calls("_utils._rebuild_parameter", "text", True, {}), "a parameter is not made of a tensor"),
        (
            calls("_tensor._rebuild_from_type_v2", REBUILD_V2, Global("torch", "Tensor"), NAN.__reduce__()[1], {}),
            "1 non-finite (x)",
        ),
        (
            calls("_tensor._rebuild_from_type_v2", REBUILD_V2, Global("torch", "int8"), NAN.__reduce__()[1], {}),
            "of a class that is not on the reader's list",
        ),
        (Calls(Global("collections", "Counter"), ({"m": NAN},)), "1 non-finite (x.m)"),
        (Calls(Global("_codecs", "encode"), ("text", "utf-8")), "bytes are not written the way"),
        (Calls(Global("builtins", "bytearray"), ("text",)), "a bytearray is not made of bytes"),
    ],
)
def test_what_torch_s_functions_build_is_judged_as_torch_does(path: Path, value: Calls, reason: str) -> None:
    found = prove(path, {"w": tensor(np.arange(3, dtype=np.float32)), "x": value})
    assert found.ok == (not reason), found.reasons
    assert reason in "".join(found.reasons)


@pytest.mark.parametrize("data", [b"", b"\x80\x02}", b"\x80\x02X\xff\x00\x00\x00."])
def test_a_pickle_that_is_cut_is_damaged(path: Path, data: bytes) -> None:
    save({"w": tensor(ONES)}, path, pickle_bytes=data)
    found = prove(path)
    assert (found.unsupported, found.reasons[0].startswith("data.pkl does not unpickle")) == (False, True), found


def test_what_a_pickle_refers_to_is_a_storage(path: Path) -> None:
    root = {"w": tensor(ONES)}
    data = dump(root)[0]
    assert data.count(b"storage") == 1
    save(root, path, pickle_bytes=data.replace(b"storage", b"modules"))
    assert prove(path).reasons == ("data.pkl refers to something that is not a storage",)


def test_a_pickle_that_torch_s_own_reader_refuses_says_by_what(path: Path) -> None:
    save({"w": tensor(ONES)}, path, pickle_bytes=protocol2(b"}N0"))
    found = prove(path)
    assert found.reasons[0].startswith("is pickled with POP, which torch.load(weights_only=True) refuses")
    assert found.unsupported


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (b"3".ljust(33), "archive/version is too large: 33 bytes, 32 at most"),
        (b"99", "is of torch's format"),
        (b"0", "is of torch's format"),
        (b"three", "is of torch's format"),
    ],
)
def test_a_version_that_torch_does_not_know_is_refused(path: Path, version: bytes, reason: str) -> None:
    assert reason in prove(path, {"w": tensor(ONES)}, extra={"version": version}).reasons[0]


def test_missing_parts_are_missed(path: Path) -> None:
    root = {"w": tensor(ONES)}
    assert prove(path, root, lacking=("data/0",)).reasons == ("lacks the data of storage 0",)
    assert "one data.pkl" in prove(path, root, lacking=("data.pkl",)).reasons[0]
    assert prove(path, root, lacking=("byteorder",)).ok
    assert "lacks the version of its format" in prove(path, root, lacking=("version",)).reasons[0]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9, 0.99, 0.9999])
def test_a_truncated_file_is_seen(path: Path, share: float) -> None:
    save({"w": tensor(np.ones(5000, np.float32))}, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "is cut off or damaged" in prove(path).reasons[0]


def test_a_zip_bomb_is_refused_before_it_is_unpacked(path: Path) -> None:
    zeros = Blob(b"\0" * (96 << 20))
    save({"w": View(zeros, 0, (24 << 20,), (1,))}, path, compression=zipfile.ZIP_DEFLATED)
    assert "a zip bomb" in prove(path).reasons[0]
    small = Blob(b"\0" * (8 << 20))
    assert prove(path, {"w": View(small, 0, (2 << 20,), (1,))}, compression=zipfile.ZIP_DEFLATED).ok


def rewrite(path: Path, old: bytes, new: bytes, *, last: bool = False) -> None:
    data = path.read_bytes()
    at = data.rindex(old) if last else data.index(old)
    path.write_bytes(data[:at] + new + data[at + len(old) :])


def central(path: Path, name: bytes) -> int:
    """Where the directory's entry of a part begins."""
    return path.read_bytes().rindex(name) - 46


def patch(path: Path, offset: int, layout: str, value: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, offset, value)
    path.write_bytes(bytes(data))


def test_directories_made_to_mislead_are_refused(path: Path) -> None:
    root = {"a": tensor(ONES), "b": tensor(ONES * 2)}
    save(root, path)
    good = path.read_bytes()
    entry = central(path, b"archive/data/1")
    first = central(path, b"archive/data/0")
    offset = struct.unpack_from("<L", good, first + 42)[0]
    for place, layout, value, reason in (
        (entry + 42, "<L", offset, "is not where the zip directory says"),
        (entry + 42, "<L", 0xFFFFFF0, "outside of the file"),
        (entry + 42, "<L", offset + 1, "is not where the zip directory says"),
        (entry + 8, "<H", 1, "is encrypted"),
        (entry + 10, "<H", 12, "method 12"),
        (entry + 24, "<L", 4, "has two sizes"),
    ):
        path.write_bytes(good)
        patch(path, place, layout, value)
        result = prove(path)
        assert not result.ok
        assert reason in result.reasons[0] or "overlaps" in result.reasons[0]
    path.write_bytes(good)
    patch(path, entry + 20, "<L", 1 << 20)
    patch(path, entry + 24, "<L", 1 << 20)
    assert "runs into the zip directory" in prove(path).reasons[0] or "overlaps" in prove(path).reasons[0]
    path.write_bytes(b"#!/bin/sh\n" + good)
    assert "is not a torch zip file" in prove(path).reasons[0]


END = "has a damaged end of its zip directory"
WALK = "has a damaged zip directory"


@pytest.mark.parametrize(
    ("part", "place", "layout", "value", "reason"),
    [
        (b"archive/data/0", 34, "<H", 1, "archive/data/0 lies in another file of several"),
        (b"archive/data/0", 38, "<L", 0x10, "archive/data/0 is a folder"),
        (
            b"archive/data/0",
            46 + len("archive/data/"),
            "<B",
            ord("7"),
            "archive/data/7 is not where the zip directory says",
        ),
        (b"archive/.data/serialization_id", 20, "<Q", 99 | 99 << 32, "serialization_id runs into the zip directory"),
        (None, 4, "<H", 1, END),  # in another file of several
        (None, 8, "<H", 1, END),  # of six entries one is here
        (None, 12, "<L", 1 << 20, "is cut off or damaged: no zip directory"),
        (None, 16, "<L", 1, END),
        (None, 20, "<H", 5, END),  # a comment that is not there
        (None, 8, "<L", 4 | 4 << 16, WALK),
        (None, 8, "<L", 6 | 6 << 16, WALK),
    ],
)
def test_each_field_of_the_directory_and_of_its_end_has_to_fit(
    path: Path, part: bytes | None, place: int, layout: str, value: int, reason: str
) -> None:
    save({"a": tensor(ONES)}, path)
    patch(path, place + (central(path, part) if part else path.stat().st_size - 22), layout, value)
    assert reason in prove(path).reasons[0]


def test_two_parts_of_one_name_are_refused(path: Path) -> None:
    save({"a": tensor(ONES), "b": tensor(ONES * np.nan)}, path)
    rewrite(path, b"archive/data/1", b"archive/data/0")
    rewrite(path, b"archive/data/1", b"archive/data/0", last=True)
    assert "two parts named archive/data/0" in prove(path).reasons[0]


def test_what_is_no_torch_zip_says_so(path: Path, tmp_path: Path) -> None:
    path.write_bytes(pickle.dumps({"w": 1}))
    found = prove(path)
    assert (found.ok, found.unsupported) == (False, True)
    assert "is a pickle, and not one of torch.save" in found.reasons[0]
    path.write_bytes(b"\x00" * 4096)
    found = prove(path)
    assert (found.reasons, found.unsupported) == (("is not a torch zip file: damaged from the start",), False)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "not one of torch" in prove(path).reasons[0]
    path.unlink()
    assert prove(path).reasons == ("is not there",)
    path.symlink_to(tmp_path / "x")
    assert prove(path).reasons == ("is a link, not a copy",)
    path.unlink()
    path.mkdir()
    assert prove(path).reasons == ("is not a regular file",)


def test_sizes_and_digests_come_first(path: Path) -> None:
    save({"w": tensor(ONES)}, path)
    size = path.stat().st_size
    spec = PlainSpec("torch")
    assert load(str(path), spec, "0" * 64).reasons[0].startswith("differs from what was sealed: sha256")
    assert load(str(path), spec, expected_size=size + 1).reasons == (f"truncated: {size:,} of {size + 1:,} bytes",)
    assert load(str(path), spec, expected_size=size - 1).reasons[0].startswith("too long")
    assert "is too small" in load(str(path), PlainSpec("torch", min_bytes=size + 1)).reasons[0]
    assert load(str(path), PlainSpec("torch", min_bytes=size)).ok
    assert load(str(path), None).ok
    path.write_bytes(b"")
    assert load(str(path), PlainSpec("torch", min_bytes=0)).reasons == ("is empty (zero bytes)",)
    assert load(str(path), None).ok
