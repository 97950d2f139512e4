"""Trains a tiny BERT to tell whether a sentence about a film is glad, with Hugging Face's Trainer.

    python train.py --learning_rate 1e-3 --seed 0 --output_dir runs/first

Started again with the same --output_dir it goes on from the last checkpoint there.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

GLAD = ("good", "fine", "great", "funny", "warm")
SAD = ("bad", "dull", "poor", "boring", "cold")
HOW = ((), ("very",), ("rather",), ("so",))
WORDS = ("<pad>", "a", "very", "rather", "so", "film", "story", "cast", "ending", *GLAD, *SAD)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=64, metadata={"help": "Width of the network."})
    layers: int = field(default=1, metadata={"help": "How many layers it has."})


class Sentences(torch.utils.data.Dataset):
    """`a very good film`, `a dull story`: each sentence with 1 for glad, 0 for sad."""

    def __init__(self, rows: list[tuple[list[str], int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> dict[str, list[int] | int]:
        words, label = self.rows[at]
        ids = [WORDS.index(word) for word in words]
        gap = 4 - len(ids)
        return {"input_ids": ids + [0] * gap, "attention_mask": [1] * len(ids) + [0] * gap, "labels": label}


def sentences() -> tuple[Sentences, Sentences]:
    """What to train with, and what to test with: made here, the same each time."""
    told = itertools.product(HOW, GLAD + SAD, ("film", "story", "cast", "ending"))
    rows = [(["a", *how, mood, thing], int(mood in GLAD)) for how, mood, thing in told]
    random.Random(2026).shuffle(rows)
    return Sentences(rows[40:]), Sentences(rows[:40])


def accuracy(predicted) -> dict[str, float]:
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def main() -> None:
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    train, test = sentences()
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=model_args.hidden_size,
        num_hidden_layers=model_args.layers,
        num_attention_heads=2,
        intermediate_size=2 * model_args.hidden_size,
        max_position_embeddings=8,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training_args,
        train_dataset=train,
        eval_dataset=test,
        compute_metrics=accuracy,
    )
    output = Path(training_args.output_dir)
    last = get_last_checkpoint(training_args.output_dir) if output.is_dir() else None
    done = trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    trainer.save_metrics("train", done.metrics)
    trainer.save_metrics("eval", trainer.evaluate())
    trainer.save_state()


if __name__ == "__main__":
    main()
