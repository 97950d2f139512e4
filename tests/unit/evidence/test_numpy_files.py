"""The readers of npy and npz: what numpy writes is read, what would mislead numpy is refused, nothing is unpickled."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.loaders import zipdir
from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load
from sweepstack.loaders.scan import BLOCK

LONG = np.linspace(-1, 1, 400_000)
F4 = "'descr': '<f4', 'fortran_order': False"
RECORD = np.dtype([("step", "i4"), ("loss", "f8"), ("pair", "f4", (2,)), ("tag", "U3")])


def npz(path: Path, *keys: str, finite: Any = "require") -> LoadResult:
    return load(str(path), PlainSpec("npz", keys, finite))


def npy(path: Path, finite: Any = "require") -> LoadResult:
    return load(str(path), PlainSpec("npy", (), finite))


def header_of(text: str, *, version: int = 1, length: int | None = None) -> bytes:
    """The beginning of an npy file, by hand."""
    size = struct.pack("<H" if version == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "file"


@pytest.fixture(params=[np.savez, np.savez_compressed], ids=["stored", "compressed"])
def save(request: pytest.FixtureRequest, path: Path) -> Callable[..., None]:
    """Writes arrays as numpy does."""

    def write(**arrays: Any) -> None:
        with path.open("wb") as handle:
            request.param(handle, **arrays)

    return write


def test_arrays_are_read_with_their_names(path: Path, save: Callable[..., None]) -> None:
    save(w=LONG, half=LONG.astype("f2"), z=LONG.astype("c8"), n=np.arange(9), flag=np.array(True), empty=np.empty(0))
    assert npz(path, "w", "half", "z", "n", "flag", "empty").ok
    assert npz(path, "w", "v").reasons == ("lacks v",)


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">f4", "<f2", ">f2", "<c8", ">c16", np.longdouble])
def test_numbers_must_be_finite_in_every_format(path: Path, save: Callable[..., None], kind: Any) -> None:
    worse = LONG.astype(kind)
    worse[[0, 131_072, -1]] = [np.nan, np.inf, -np.inf]
    save(good=LONG, worse=worse)
    assert npz(path).reasons == ("3 non-finite (worse)",)
    assert npz(path, finite="report").notes == ("3 non-finite (worse)",)
    np.save(path, worse)
    path.with_suffix(".npy").rename(path)
    assert npy(path).reasons == ("3 non-finite (array)",)


def test_a_nan_in_an_npz_is_found(path: Path) -> None:
    with path.open("wb") as handle:
        np.savez(handle, w=np.array([1.0, np.nan]))
    assert npz(path).reasons == ("1 non-finite (w)",)


def test_parts_that_python_cannot_unpack_are_refused(path: Path, save: Callable[..., None]) -> None:
    save(w=LONG)
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + offset] |= 0x20  # "compressed patched data"
    path.write_bytes(bytes(data))
    assert npz(path, "w").reasons == ("w.npy is patched data, which no library reads",)


def test_records_are_judged_field_by_field(path: Path, save: Callable[..., None]) -> None:
    table = np.zeros(100_000, RECORD)
    save(table=table)
    assert npz(path, "table").ok
    table["loss"][7] = np.nan
    table["pair"][99_999] = [np.inf, 1]
    save(table=table)
    assert npz(path).reasons == ("2 non-finite (table)",)


def test_an_element_may_be_larger_than_a_block(path: Path, save: Callable[..., None]) -> None:
    """A text of 75,000 characters takes 300 kB in each element of its array."""
    wide = np.zeros(3, [("text", "U75000"), ("loss", "f8")])
    wide["text"][2], wide["loss"][1] = "x" * 75_000, np.nan
    assert wide["text"].itemsize > BLOCK
    save(words=np.array(["x" * 75_000, "nan"]), table=wide, numbers=LONG)
    read = npz(path)
    assert read.reasons == ("1 non-finite (table)",)
    assert read.notes == ("has null or a text in place of a number (words)",)
    save(words=np.array(["x" * (1 << 17)]), numbers=LONG)
    assert npz(path).ok
    save(words=np.array(["x" * ((1 << 17) + 1)]), numbers=LONG)
    assert "words.npy has elements of 524,292 bytes, 1 to 524,288 are read" in npz(path).reasons[0]


def test_one_array(path: Path) -> None:
    with path.open("wb") as handle:
        np.lib.format.write_array(handle, np.asfortranarray(LONG.reshape(200, 2000)), version=(3, 0))
    assert npy(path).ok
    assert npz(path).reasons == ("is not an npz file: no zip file, damaged from the start, or an npy",)
    np.savez(path.with_suffix(".npz"), w=LONG)
    assert npy(path.with_suffix(".npz")).reasons == ("is an npz file: say load: npz",)


@pytest.mark.parametrize(("version", "name"), [((2, 0), "\u00e9"), ((3, 0), "\u0436")])
def test_names_of_fields_are_read_as_their_version_writes_them(path: Path, version: tuple[int, int], name: str) -> None:
    with path.open("wb") as handle:
        np.lib.format.write_array(handle, np.zeros(3, [(name, "f4")]), version=version)
    assert npy(path).reasons == ()


def test_objects_are_refused_and_never_unpickled(path: Path, save: Callable[..., None], tmp_path: Path) -> None:
    flag = tmp_path / "unpickled"

    class Trap:
        def __reduce__(self) -> Any:
            return (open, (str(flag), "w"))

    save(good=LONG, trap=np.array([Trap()], dtype=object))
    assert "trap.npy holds Python objects (dtype object): save it with a number type, or" in npz(path).reasons[0]
    assert npz(path).unsupported
    with path.open("wb") as handle:
        np.save(handle, np.array([Trap()], dtype=object), allow_pickle=True)
    assert "holds Python objects" in npy(path).reasons[0]
    assert not flag.exists()


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_file_is_not_good(path: Path, save: Callable[..., None], cut: float) -> None:
    save(w=LONG, n=np.arange(9))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)])
    assert not npz(path, "w").ok


def test_every_flipped_byte_of_an_array_is_found(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), w=np.arange(64, dtype=np.int32))
    data = path.with_suffix(".npz").read_bytes()
    where = data.index(np.arange(64, dtype=np.int32).tobytes())
    for offset in range(where, where + 256, 17):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
        assert "CRC of w.npy differs" in npz(path).reasons[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x93NUMPY\x01\x00", "is no numpy array"),
        (b"NUMPY\x93" + bytes(50), "is no numpy array"),
        (header_of("{}", version=9), "is of numpy's format 9"),
        (header_of("{}", length=60_000), "is cut off in its header"),
        (header_of("{}", version=2, length=1 << 31), "is cut off in its header"),
        (header_of("{}"), "has a header that does not read"),
        (header_of("__import__('os').abort()"), "has a header that does not read"),
        (header_of("(" * 5000), "has a header that does not read"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}"), "does not read"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': [2]}"), "does not read"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"), "does not read"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}"), "does not read"),
        (header_of("{'descr': '<q9', 'fortran_order': False, 'shape': (1,)}"), "does not read"),
        (header_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + bytes(8), "holds Python objects"),
        (
            header_of("{'descr': [('a', '<f4'), ('b', [('c', '|O')])], 'fortran_order': False, 'shape': (1,)}"),
            "holds Python objects",
        ),
        (header_of("{'descr': '|V999999999', 'fortran_order': False, 'shape': (0,)}"), "has elements of 999,999,999"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}") + bytes(7), "cut off or too long"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}") + bytes(9), "cut off or too long"),
        (header_of(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 40}, {1 << 40})}}"), "cut off or too"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}"), "holds no numbers"),
        (header_of(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({65 * '1,'})}}") + bytes(4), "65 dimensions"),
        (b"\x93NUMPY\x02\x00\x00\x00", "is of numpy's format 2"),
        (header_of(f"{{{F4}, 'shape': (2,), 'more': 1}}", version=3) + bytes(8), "does not read"),
        (header_of(f"{{{F4}, 'shape': [2]}}", version=3) + bytes(8), "does not read"),
        (header_of("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", version=3) + bytes(8), "does not read"),
        (header_of(f"{{{F4}, 'shape': (2,)}}".ljust(10_001), version=3) + bytes(8), "does not read"),
    ],
)
def test_headers_made_to_mislead_are_refused(path: Path, data: bytes, reason: str) -> None:
    path.write_bytes(data)
    assert reason in npy(path).reasons[0]
    if reason != "holds no numbers":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w.npy", data)
        assert reason in npz(path).reasons[0]
        assert npz(path).reasons[0].startswith("w.npy ")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", npy_bytes(LONG))
    data = bytearray(path.read_bytes())
    where = data.rindex(b"PK\x01\x02")
    struct.pack_into("<L", data, where + 24, 0xFFFFFFF0)  # the directory says 4 GB, the part has 3 MB
    path.write_bytes(bytes(data))
    reason = npz(path).reasons[0]
    assert "does not unpack" in reason or "cut off or too long" in reason or "shorter" in reason
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"w{number}.npy", npy_bytes(np.zeros(10)))
    data = bytearray(many.getvalue())
    where = -1
    while (where := data.find(b"PK\x01\x02", where + 1)) >= 0:
        struct.pack_into("<L", data, where + 24, 0xFFFFFFF0)
    path.write_bytes(bytes(data))
    assert "as a zip bomb does; judge it by load: command" in npz(path).reasons[0]
    assert npz(path).unsupported


def test_a_part_that_is_shorter_than_all_say_is_refused(path: Path) -> None:
    """Its own header and the directory speak of more bytes than it unpacks to, and its CRC is that of those."""
    whole = npy_bytes(LONG)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", whole[:-8])
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, data.rindex(b"PK\x01\x02") + 24, len(whole))
    path.write_bytes(bytes(data))
    assert npz(path).reasons == ("w.npy is shorter than it says",)


def test_a_part_without_a_byte_has_a_crc_too(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", npy_bytes(LONG))
        archive.writestr("notes.txt", "")
    assert npz(path).ok
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        data[data.rindex(magic) + offset] ^= 1
    path.write_bytes(bytes(data))
    assert npz(path).reasons == ("notes.txt does not unpack (BadZipFile)",)


def test_a_part_inside_of_another_one_is_refused(path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("b.npy", npy_bytes(LONG[:9]))
        info = archive.getinfo("b.npy")
    stored = inner.getvalue()[: archive.start_dir]
    outer = npy_bytes(np.frombuffer(stored, "u1"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", outer)
        info.header_offset = 30 + len("a.npy") + outer.index(stored)
        archive.filelist.append(info)
    assert npz(path).reasons == ("b.npy overlaps another part, or something stands before it",)


def test_what_zipfile_does_not_open_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy reads with it. It takes a part's name for one of another alphabet than the directory does."""
    arrays = {"\u00e9": LONG}
    np.savez(path.with_suffix(".npz"), **arrays)
    data = bytearray(path.with_suffix(".npz").read_bytes())
    data[7] &= ~0x08 & 0xFF  # of the flags in the part's own header: UTF-8
    path.write_bytes(bytes(data))
    assert npz(path).reasons == ("\u00e9.npy can't be opened (BadZipFile)",)
    monkeypatch.setattr(zipdir, "MAX_PARTS", 0)
    assert "has 1 parts, 0 at most" in npz(path).reasons[0]


def test_zeros_that_shrink_a_thousandfold_are_no_bomb(path: Path) -> None:
    with path.open("wb") as handle:
        np.savez_compressed(handle, mask=np.zeros(12_000_000))
    assert path.stat().st_size * 500 < 96_000_000
    assert npz(path, "mask").ok


def test_what_is_no_array_in_an_npz_is_read_through(path: Path, save: Callable[..., None]) -> None:
    save(w=LONG)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", "seed 3")
    assert npz(path, "w", "notes.txt").ok
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "seed 3")
    assert npz(path).reasons == ("holds no numbers",)


def npy_bytes(array: Any) -> bytes:
    """An npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1), bit=st.integers(0, 7), compressed=st.booleans())
def test_a_bit_that_flipped_before_sealing_is_seen_or_harmless(
    path: Path, share: float, bit: int, compressed: bool
) -> None:
    good = {"w": np.arange(40.0).reshape(8, 5), "n": np.arange(9)}
    with path.open("wb") as handle:
        (np.savez_compressed if compressed else np.savez)(handle, **good)
    data = bytearray(path.read_bytes())
    data[min(int(share * len(data)), len(data) - 1)] ^= 1 << bit
    path.write_bytes(bytes(data))
    if npz(path, "w", "n").ok:  # then it hit a date or the like: numpy reads what was written
        with np.load(path, allow_pickle=False) as found:
            assert all(np.array_equal(found[name], good[name]) for name in good)
