"""The readers of Hugging Face's folders: a model, an adapter of PEFT, a checkpoint of the Trainer.

Each looks at what the files say of each other. The numbers in them are read file by file (`table.member_spec`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sweepstack.core.printable import printable
from sweepstack.extensions.formats.names import loader_of
from sweepstack.extensions.formats.shipped_checks import hf_shards
from sweepstack.loaders.base import Content, Folder, Spec, Unreadable, some, unique_keys
from sweepstack.loaders.scan import Region, Scan

SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class Files:
    """Any folder: each file by its name. What has no loader is compared with its seal alone, which a note says."""

    regions: tuple[Region, ...] = ()

    def __init__(self, folder: Folder, spec: Spec) -> None:
        self.folder = folder

    def content(self, scanned: Scan) -> Content:
        """Names of files. Raises Unreadable where none has a loader."""
        unread = [name for name in self.folder.members if loader_of(name) is None]
        if len(unread) == len(self.folder.members):
            raise Unreadable(f"holds no file that a loader reads by its name ({some(unread)})")
        found = Content(set(self.folder.members))
        if unread:
            found.notes.append(f"compared with the seal, and not read: {some(unread)}")
        return found

    def object(self, name: str) -> dict[str, Any]:
        """A JSON object among the files. Raises Unreadable, also where it is not there."""
        if name not in self.folder.members:
            raise Unreadable(f"holds no {name}")
        try:
            found = json.loads(Path(self.folder.file(name)).read_text("utf-8"), object_pairs_hook=unique_keys)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Unreadable(f"has a {name} that is not a JSON object")
        return found

    def tensors(self, name: str) -> dict[str, tuple[int, ...]]:
        """The tensors of a safetensors file among the files, with their shapes, by the library. Raises Unreadable."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.folder.file(name), framework="numpy") as handle:
                return {key: tuple(handle.get_slice(key).get_shape()) for key in handle.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as error:
            raise Unreadable(f"{name}: safetensors refuses it ({type(error).__name__})") from None


class HfModel(Files):
    """What `save_pretrained` writes: config.json, and the weights in one file or in shards with their index."""

    def content(self, scanned: Scan) -> Content:
        """Names of tensors (of safetensors alone). Raises Unreadable where the index and the shards disagree: see
        `shipped_checks.hf_shards`."""
        config, members = self.object("config.json"), self.folder.members
        if not config.get("model_type"):
            raise Unreadable("has a config.json without a model_type")
        weights = [name for name in (SAFE, SAFE_INDEX, BIN, BIN_INDEX) if name in members]
        if not weights:
            raise Unreadable(f"holds no weights: none of {SAFE}, {SAFE_INDEX}, {BIN}")
        if len(weights) > 1:
            raise Unreadable(f"holds {some(weights)}: which of them is the model?")
        found = Content()
        if weights == [SAFE]:
            found.names = set(self.tensors(SAFE))
        elif weights == [SAFE_INDEX]:
            note = hf_shards(Path(self.folder.file(SAFE_INDEX)))
            found.notes += [note] if note else []
            found.names = set(self.object(SAFE_INDEX)["weight_map"])
        elif weights == [BIN_INDEX]:
            found.names = self._bin_index()
        if stray := [name for name in members if "-of-" in name and weights[0] in (SAFE, BIN)]:
            raise Unreadable(f"holds {some(stray)} beside {weights[0]}: which of them is the model?")
        return found

    def _bin_index(self) -> set[str]:
        wanted = self.object(BIN_INDEX).get("weight_map")
        if not isinstance(wanted, dict) or not wanted:
            raise Unreadable(f"has a {BIN_INDEX} without a weight_map")
        named = {str(shard) for shard in wanted.values()}
        shards = {name for name in self.folder.members if name.startswith("pytorch_model-") and name.endswith(".bin")}
        if named != shards:
            raise Unreadable(f"{some(sorted(named ^ shards))} is named by {BIN_INDEX} or is there, and not both")
        return set(wanted)


class Adapter(Files):
    """What `save_pretrained` of PEFT writes: adapter_config.json, and the adapter's weights."""

    def content(self, scanned: Scan) -> Content:
        """Names of tensors. Raises Unreadable for LoRA matrices without their other half, or of another rank. A LoRA
        whose every B is zero, as it begins, counts as untrained."""
        config = self.object("adapter_config.json")
        kind = config.get("peft_type")
        if not isinstance(kind, str):
            raise Unreadable("has an adapter_config.json without a peft_type")
        if "adapter_model.safetensors" not in self.folder.members:
            if "adapter_model.bin" not in self.folder.members:
                raise Unreadable("holds no adapter_model.safetensors")
            return Content()
        shapes = self.tensors("adapter_model.safetensors")
        if not shapes:
            raise Unreadable("holds an adapter without a tensor")
        found = Content(set(shapes))
        if kind == "LORA":
            self._lora(config, shapes, found)
        return found

    def _lora(self, config: dict[str, Any], shapes: dict[str, tuple[int, ...]], found: Content) -> None:
        import numpy as np
        from safetensors import safe_open

        ranks = {config.get("r"), *(config.get("rank_pattern") or {}).values()}
        for name, shape in shapes.items():
            if ".lora_A." not in name:
                continue
            other = name.replace(".lora_A.", ".lora_B.")
            if other not in shapes:
                raise Unreadable(f"holds {printable(name)} without its lora_B")
            if shape[0] not in ranks or (len(shape) == 2 and shapes[other][1] != shape[0]):
                raise Unreadable(
                    f"{printable(name)} is of rank {shape[0]}, and adapter_config.json says {config.get('r')}"
                )
        halves = [name for name in shapes if ".lora_B." in name]
        if alone := [name for name in halves if name.replace(".lora_B.", ".lora_A.") not in shapes]:
            raise Unreadable(f"holds {some(alone)} without its lora_A")
        if not halves:
            raise Unreadable("is of LoRA, and holds no lora_A and lora_B")
        try:
            with safe_open(self.folder.file("adapter_model.safetensors"), framework="numpy") as handle:
                for name in halves:
                    found.add_floats(name, constant=not np.any(handle.get_tensor(name)))
        except (TypeError, ValueError, AttributeError):  # numbers that numpy does not have, such as bfloat16
            found.floats.clear()
            found.constant.clear()


class Checkpoint(Files):
    """A `checkpoint-N` of the Trainer: a model or an adapter, and what training goes on with."""

    def content(self, scanned: Scan) -> Content:
        """Names of tensors. Raises Unreadable where the step is not that of the folder's name. What the Trainer
        pickles (training_args.bin, rng_state) is compared with its seal alone."""
        state = self.object("trainer_state.json")
        step = state.get("global_step")
        named = _CHECKPOINT.fullmatch(Path(self.folder.path).name)
        if not isinstance(step, int) or (named and int(named[1]) != step):
            raise Unreadable(f"is named {Path(self.folder.path).name}, and its trainer_state.json is of step {step}")
        lora = "adapter_config.json" in self.folder.members
        found = (Adapter if lora else HfModel)(self.folder, None).content(scanned)  # type: ignore[arg-type]
        if lacking := {"optimizer.pt", "scheduler.pt"} - {*self.folder.members}:
            found.notes.append(f"training can't go on from it as it was: no {some(sorted(lacking))}")
        return found
