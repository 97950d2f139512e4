"""Good files of each format, as the real libraries write them: `SAMPLES[loader](path)` writes a file or a folder.

Those of `HEAVY` need `scripts/setup --dev --torch --trainer`, and are played in make proof alone.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Made = Callable[[Path], None]


def numbers(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def arrays(seed: int = 7) -> dict[str, Any]:
    draw = numbers(seed)
    return {"w1": draw.standard_normal((16, 24), np.float32), "w2": draw.standard_normal(24, np.float32)}


def jsonl(path: Path) -> None:
    draw = numbers()
    rows = ({"step": step, "loss": float(draw.random()), "kind": "train"} for step in range(60))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def jsonl_gz(path: Path) -> None:
    jsonl(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def table(path: Path, separator: str = ",") -> None:
    draw = numbers()
    with path.open("w", newline="") as handle:
        rows = csv.writer(handle, delimiter=separator)
        rows.writerow(["step", "loss", "name"])
        rows.writerows([step, draw.random(), f"run {step}"] for step in range(60))


def tsv(path: Path) -> None:
    table(path, "\t")


def csv_gz(path: Path) -> None:
    table(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def yaml(path: Path) -> None:
    import yaml as library

    draw = numbers()
    path.write_text(
        library.safe_dump(
            {"lr": 0.001, "model": {"layers": [64, 64]}, "loss": [float(draw.random()) for _ in range(40)]}
        )
    )


def _picture(seed: int = 7) -> Any:
    from PIL import Image

    return Image.fromarray(numbers(seed).integers(0, 255, (24, 32, 3), np.uint8))


def png(path: Path) -> None:
    _picture().save(path, "PNG")


def jpeg(path: Path) -> None:
    _picture().save(path, "JPEG", quality=80)


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for name in ("a.bin", "b/c.bin"):
            _add(archive, name, numbers().bytes(3000))


def tar_gz(path: Path) -> None:
    tar(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def webdataset(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for at in range(5):
            picture, array = io.BytesIO(), io.BytesIO()
            _picture(at).save(picture, "PNG")
            np.save(array, numbers(at).standard_normal(8))
            _add(archive, f"{at:04}.png", picture.getvalue())
            _add(archive, f"{at:04}.json", json.dumps({"label": at}).encode())
            _add(archive, f"{at:04}.npy", array.getvalue())


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "some text\n" * 200)
        archive.writestr("b/c.bin", numbers().bytes(2000), zipfile.ZIP_STORED)


def gguf(path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_name("tiny")
    for name, values in arrays().items():
        writer.add_tensor(f"blk.0.{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def onnx(path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])
    outputs = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 24])
    held = arrays()
    weights = [numpy_helper.from_array(held["w1"], "w1"), numpy_helper.from_array(held["w2"], "w2")]
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("Add", ["h", "w2"], ["y"])]
    save(helper.make_model(helper.make_graph(nodes, "tiny", [inputs], [outputs], weights)), path)


def hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as root:
        root.attrs["epoch"] = 3
        group = root.create_group("layer")
        group.create_dataset("w1", data=arrays()["w1"], chunks=(4, 24), fletcher32=True)
        group.create_dataset("w2", data=arrays()["w2"])


def skops(path: Path) -> None:
    from skops import io as library

    library.dump(_fitted(), path)


def joblib(path: Path) -> None:
    import joblib as library

    library.dump(_fitted(), path)


def joblib_z(path: Path) -> None:
    import joblib as library

    library.dump(_fitted(), path, compress=("gzip", 3))


def plain_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(_fitted()))


def _fitted() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    draw = numbers()
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(draw.standard_normal((40, 5)), np.arange(40) % 2)


def flax(path: Path) -> None:
    """As flax.serialization.to_bytes writes it; `test_libraries` compares the two."""
    import msgpack

    def packed(value: Any) -> Any:
        data = msgpack.packb((value.shape, value.dtype.name, value.tobytes()), use_bin_type=True)
        return msgpack.ExtType(1, data)

    held = arrays()
    root = {"params": {"Dense_0": {"bias": held["w2"], "kernel": held["w1"]}}, "step": 3}
    path.write_bytes(msgpack.packb(root, default=packed, strict_types=True))


def tensorboard(path: Path) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("wb") as handle:
        records = RecordWriter(handle)
        records.write(event_pb2.Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        for step in range(40):
            value = summary_pb2.Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
            event = event_pb2.Event(wall_time=2.0 + step, step=step, summary=summary_pb2.Summary(value=[value]))
            records.write(event.SerializeToString())
        records.flush()


def hf(path: Path) -> None:
    """As save_pretrained writes it; `test_libraries` asks from_pretrained of what it wrote itself."""
    from safetensors.numpy import save_file

    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    where, total = {}, 0
    for shard in (1, 2, 3):
        name = f"model-{shard:05}-of-00003.safetensors"
        held = {f"encoder.layer.{shard}.{key}": value for key, value in arrays(shard).items()}
        save_file(held, path / name, metadata={"format": "pt"})
        where |= dict.fromkeys(held, name)
        total += sum(value.nbytes for value in held.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def hf_whole(path: Path) -> None:
    from safetensors.numpy import save_file

    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    save_file(arrays(), path / "model.safetensors", metadata={"format": "pt"})


def adapter(path: Path) -> None:
    from safetensors.numpy import save_file

    path.mkdir()
    draw = numbers()
    held = {}
    for layer in ("q_proj", "v_proj"):
        base = f"base_model.model.model.layers.0.self_attn.{layer}"
        held[f"{base}.lora_A.weight"] = draw.standard_normal((4, 16), np.float32)
        held[f"{base}.lora_B.weight"] = draw.standard_normal((16, 4), np.float32)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    (path / "adapter_config.json").write_text(json.dumps(config))
    save_file(held, path / "adapter_model.safetensors", metadata={"format": "pt"})


def zarr(path: Path) -> None:
    import zarr as library

    root = library.open_group(str(path), mode="w")
    for name, values in arrays().items():
        root.create_array(name, data=values, chunks=(16,) * values.ndim)


def mixed(path: Path) -> None:
    path.mkdir()
    jsonl(path / "metrics.jsonl")
    png(path / "sample.png")
    np.savez(path / "weights.npz", **arrays())
    (path / "NOTES.md").write_text("a note\n")


def _torch_model() -> Any:
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def dcp(path: Path) -> None:
    import torch.distributed.checkpoint as library

    library.save({"model": _torch_model().state_dict(), "step": 3}, checkpoint_id=str(path))


def lightning(path: Path) -> None:
    import torch

    torch.save(
        {
            "epoch": 1,
            "global_step": 20,
            "pytorch-lightning_version": "2.6.6",
            "loops": {},
            "callbacks": {},
            "state_dict": _torch_model().state_dict(),
        },
        path,
    )


def trainer(path: Path) -> None:
    """As the Trainer leaves it."""
    import torch

    hf_whole(path)
    model = _torch_model()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    torch.save({"last_epoch": 3, "_last_lr": [0.1]}, path / "scheduler.pt")
    (path / "training_args.bin").write_bytes(pickle.dumps(object()))
    (path / "trainer_state.json").write_text(json.dumps({"global_step": 500, "log_history": [{"loss": 0.5}]}))


def keras(path: Path) -> None:
    """As model.save writes it; `test_libraries` has one that Keras wrote."""
    import h5py

    weights = io.BytesIO()
    with h5py.File(weights, "w") as root:
        for name, values in arrays().items():
            root.create_dataset(f"layers/dense/vars/{name}", data=values)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": []}}))
        archive.writestr("model.weights.h5", weights.getvalue())


def orbax(path: Path) -> None:
    import orbax.checkpoint as library

    with library.PyTreeCheckpointer() as saver:
        saver.save(path, {"params": arrays(), "step": np.int64(3)})


FILES: dict[str, tuple[str, Made]] = {
    "jsonl": ("jsonl", jsonl),
    "jsonl.gz": ("jsonl", jsonl_gz),
    "tsv": ("tsv", tsv),
    "csv.gz": ("csv", csv_gz),
    "yaml": ("yaml", yaml),
    "png": ("image", png),
    "jpg": ("image", jpeg),
    "tar": ("tar", tar),
    "tar.gz": ("tar", tar_gz),
    "wds.tar": ("webdataset", webdataset),
    "zip": ("zip", zipped),
    "gguf": ("gguf", gguf),
    "onnx": ("onnx", onnx),
    "h5": ("hdf5", hdf5),
    "keras": ("keras", keras),
    "skops": ("skops", skops),
    "joblib": ("joblib", joblib),
    "joblib.gz": ("joblib", joblib_z),
    "pkl": ("joblib", plain_pickle),
    "msgpack": ("flax", flax),
    "tfevents": ("tensorboard", tensorboard),
    "ckpt": ("lightning", lightning),
}
"""Ending → its loader, and what writes a good one."""
FOLDERS: dict[str, tuple[str, Made]] = {
    "hf": ("hf", hf),
    "hf-whole": ("hf", hf_whole),
    "adapter": ("adapter", adapter),
    "checkpoint-500": ("trainer", trainer),
    "zarr": ("zarr", zarr),
    "mixed": ("folder", mixed),
    "dcp": ("dcp", dcp),
    "orbax": ("orbax", orbax),
}
"""Name → its loader, and what writes a good folder."""
NEEDS_TORCH = frozenset({"ckpt", "checkpoint-500", "dcp"})
HEAVY = frozenset({"orbax"})
