"""What of NaN and infinities fails a file, and what is only noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.core.records import ArtifactSpec
from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load
from sweepstack.loaders.pool import FileToRead, read_all
from tests.unit.evidence.torchzip import save, tensor
from tests.unit.evidence.world import safetensors_bytes

WEIGHTS = tensor(np.arange(6, dtype=np.float32))
CHECKPOINT = (
    "ModelCheckpoint{'monitor': None, 'mode': 'min', 'every_n_train_steps': 0, 'every_n_epochs': 1, "
    "'train_time_interval': None}"
)
"""As Lightning 2.6 names the state of a callback."""


def scalar(value: float) -> Any:
    """A tensor of one number."""
    return tensor(np.float32(value))


def row(*values: float) -> Any:
    """A tensor of these numbers."""
    return tensor(np.array(values, np.float32))


def read(path: Path, root: Any, **spec: Any) -> LoadResult:
    """What the restricted reader says of a checkpoint."""
    save(root, path)
    return load(str(path), PlainSpec("torch", **spec))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is written."""
    return tmp_path / "best.pt"


def test_lightning_s_checkpoint_is_good_and_the_note_has_the_whole_name(path: Path) -> None:
    callbacks = {CHECKPOINT: {"kth_value": scalar(np.inf)}, "EarlyStopping{}": {"best_score": scalar(-np.inf)}}
    found = read(path, {"state_dict": {"w": WEIGHTS}, "callbacks": callbacks}, keys=("state_dict",))
    assert found.ok, found.reasons
    names = f"callbacks.{CHECKPOINT}.kth_value, callbacks.EarlyStopping{{}}.best_score"
    assert found.notes == (f"2 non-finite ({names})",)


def test_what_lightning_itself_wrote() -> None:
    """Lightning 2.6.6 with torch 2.15: a Trainer with EarlyStopping (which saw no validation) and its default callbacks
    on a Linear(4, 2), one epoch, `trainer.save_checkpoint`; the second with `save_hyperparameters()` of a Path."""
    real = Path(__file__).parent / "real"
    found = load(str(real / "lightning-2.6.6.ckpt"), PlainSpec("torch", keys=("state_dict",)))
    assert found.ok, found.reasons
    assert "best_score" in found.notes[0]
    assert "kth_value" in found.notes[0]
    found = load(str(real / "lightning-2.6.6-hparams.ckpt"), PlainSpec("torch"))
    assert found.unsupported
    assert "save str(path) in its place" in found.reasons[0]


def test_of_a_name_that_is_too_long_the_middle_is_left_out(path: Path) -> None:
    (reason,) = read(path, {"a" * 190: {"b" * 190: {"kth_value": row(np.nan, 1)}}}).reasons
    assert reason.startswith("1 non-finite (aaa")
    assert reason.endswith("bbb.kth_value)")
    assert len(reason) < 200


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (scalar(np.nan), "1 non-finite (x)"),
        (row(1, np.nan), "1 non-finite (x)"),
        (row(np.inf, np.nan), "2 non-finite (x)"),
        (row(1, np.inf), "1 non-finite (x), none of them NaN; if that is by design, say infinite: [x]"),
    ],
)
def test_what_is_no_single_infinity_fails(path: Path, bad: Any, reason: str) -> None:
    assert read(path, {"w": WEIGHTS, "x": bad}).reasons == (reason,)


def test_a_single_infinity_is_noted_beside_other_numbers_alone(path: Path) -> None:
    assert read(path, {"w": WEIGHTS, "best": scalar(np.inf)}).notes == ("1 non-finite (best)",)
    assert not read(path, {"best": scalar(np.inf)}).ok
    assert not read(path, {"w": row(np.inf, 1), "best": scalar(np.inf)}).ok
    for save_as in (np.savez, np.savez_compressed):
        save_as(path.with_suffix(".npz"), w=np.arange(3.0), best=np.float64(np.inf))
        assert load(str(path.with_suffix(".npz")), PlainSpec("npz")).notes == ("1 non-finite (best)",)
        save_as(path.with_suffix(".npz"), w=np.arange(3.0), m=np.array([np.inf, 1]))
        assert not load(str(path.with_suffix(".npz")), PlainSpec("npz")).ok
    np.save(path.with_suffix(".npy"), np.float64(np.inf))
    assert not load(str(path.with_suffix(".npy")), PlainSpec("npy")).ok
    path.write_bytes(safetensors_bytes({"w": np.arange(3, dtype="f4"), "best": np.full((1,), np.inf, "f4")}))
    assert load(str(path), PlainSpec("safetensors")).notes == ("1 non-finite (best)",)
    path.write_text('{"w": [1, 2], "best": Infinity}')
    assert not load(str(path), PlainSpec("json")).ok


def test_finite_may_name_what_has_to_be(path: Path) -> None:
    root = {"state_dict": {"w": WEIGHTS}, "optimizer": {"m": row(np.nan, 1)}, "best": scalar(np.inf)}
    assert read(path, root, finite=("state_dict",)).notes == ("2 non-finite (optimizer.m, best)",)
    assert read(path, root, finite=("m",)).reasons == ("1 non-finite (optimizer.m)",)
    assert "(best)" in read(path, root, finite=("best",)).reasons[0], "one that is named is meant"
    typo = read(path, root, finite=("state_dict", "optimiser")).reasons
    assert typo == ("holds nothing that is named optimiser, which must be finite",)
    assert not read(path, {"state_dict2": {"w": WEIGHTS}}, finite=("state_dict",)).ok


def test_masks_may_be_infinite_by_design_and_never_nan(path: Path) -> None:
    masks = {"blocks": {"0": {"mask": row(-np.inf, 0)}, "1": {"mask": row(0, -np.inf)}}, "w": WEIGHTS}
    (reason,) = read(path, masks).reasons
    assert reason.endswith("say infinite: [mask]")
    assert read(path, masks, infinite=("mask",)).notes == ("2 non-finite (blocks.0.mask, blocks.1.mask)",)
    assert not read(path, masks, infinite=("blocks.0",)).ok
    assert not read(path, masks, infinite=("mas",)).ok
    masks["blocks"]["0"]["mask"] = row(-np.inf, np.nan)
    assert read(path, masks, infinite=("mask",)).reasons == ("2 non-finite (blocks.0.mask)",)


def test_a_worker_is_told_the_names(path: Path) -> None:
    save({"w": WEIGHTS, "m": row(np.nan, 1), "mask": row(-np.inf, 0)}, path)
    spec = ArtifactSpec(path="best.pt", load="torch", finite=("w", "mask"), infinite=("mask",))
    ((_, found),) = read_all([FileToRead(str(path), spec, None, None)])
    assert (found.ok, found.notes) == (True, ("2 non-finite (m, mask)",))


def test_infinities_and_nan_are_told_apart_in_every_format(path: Path) -> None:
    for kind, infinite, nan in (("f2", 0x7C00, 0x7C01), ("bf16", 0xFF80, 0x7F81)):
        for bits, good in ((infinite, True), (nan, False)):
            one = tensor(np.array(bits, np.uint16), kind)
            assert read(path, {"w": WEIGHTS, "x": one}).ok == good, (kind, hex(bits))


VALUES = st.lists(st.sampled_from([0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=3)
SPECS = st.builds(
    PlainSpec,
    load=st.just("torch"),
    finite=st.sampled_from(["require", ("a",), ("a", "b.c")]),
    infinite=st.sampled_from([(), ("a",), ("b",), ("c", "a")]),
)


@settings(max_examples=60, deadline=None)
@given(values=st.tuples(VALUES, VALUES, VALUES), spec=SPECS)
def test_nan_is_never_let_pass_where_it_was_refused(
    tmp_path_factory: pytest.TempPathFactory, values: tuple[list[float], ...], spec: PlainSpec
) -> None:
    """The rule of before: any number that is not finite failed. What passes now has single infinities, or what the
    stack file names; never a NaN in what has to be finite."""
    path = tmp_path_factory.getbasetemp() / "generated.pt"
    a, c, d = (np.array(one, np.float32) for one in values)
    save({"a": tensor(a), "b": {"c": tensor(c)}, "d": tensor(d)}, path)
    found = load(str(path), spec)
    everywhere = {"a": a, "b.c": c, "d": d}
    required = everywhere if spec.finite == "require" else {name: everywhere[name] for name in spec.finite}
    if any(np.isnan(one).any() for one in required.values()):
        assert not found.ok
    if all(np.isfinite(one).all() for one in required.values()):
        assert found.ok
    if found.ok and not spec.infinite and spec.finite == "require":
        assert all(np.isfinite(one).all() or one.size == 1 for one in everywhere.values())
