"""What the real libraries write is good: transformers, PEFT, Keras, Flax. `scripts/setup --dev --torch --trainer`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweepstack.loaders.base import PlainSpec
from tests.extensions.formats import samples
from tests.extensions.formats.damage import is_good, judged

pytestmark = pytest.mark.proof  # each imports for ten seconds


def test_from_pretrained_agrees(tmp_path: Path) -> None:
    """It begins tensors that are missing anew, with a warning alone: then ours refuses."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    good = tmp_path / "model"
    transformers.BertModel(config).save_pretrained(good, max_shard_size="50KB")
    assert len(list(good.glob("*.safetensors"))) > 3
    assert is_good(good, PlainSpec("hf")), judged(good, PlainSpec("hf"))
    _, said = transformers.BertModel.from_pretrained(good, output_loading_info=True)
    assert not said["missing_keys"]
    first, second, *_ = sorted(good.glob("*.safetensors"))
    first.write_bytes(second.read_bytes())
    _, said = transformers.BertModel.from_pretrained(good, output_loading_info=True)
    assert said["missing_keys"]
    assert not is_good(good, PlainSpec("hf"))


def test_an_adapter_of_peft(tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    model = peft.get_peft_model(transformers.BertModel(config), peft.LoraConfig(r=4, target_modules=["query", "value"]))
    model.save_pretrained(tmp_path / "lora")
    results = judged(tmp_path / "lora", PlainSpec("adapter"))
    assert all(result.ok for result in results), results
    assert any("looks untrained" in note for result in results for note in result.notes), "its B is zero"


def test_flax_writes_what_our_sample_is(tmp_path: Path) -> None:
    serialization = pytest.importorskip("flax.serialization")
    held = samples.arrays()
    root = {"params": {"Dense_0": {"bias": held["w2"], "kernel": held["w1"]}}, "step": 3}
    samples.flax(tmp_path / "ours.msgpack")
    assert (tmp_path / "ours.msgpack").read_bytes() == serialization.msgpack_serialize(root)


def test_a_model_of_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.save(tmp_path / "model.keras")
    assert is_good(tmp_path / "model.keras", PlainSpec("keras")), judged(tmp_path / "model.keras", PlainSpec("keras"))
