"""Trains a small BERT to tell whether a text is glad. Written as such scripts are, and not for sweepstack."""

import argparse
import csv
import json
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, default=Path("data/train.csv"))
parser.add_argument("--output-root", type=Path, default=Path("runs"))
parser.add_argument("--exp-name", default="run")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()

folder = args.output_root / args.exp_name
with args.data.open() as file:
    rows = list(csv.DictReader(file))
words = {word: number for number, word in enumerate(sorted({word for row in rows for word in row["text"].split()}), 1)}
data = [
    {"input_ids": torch.tensor([words[word] for word in row["text"].split()]), "labels": torch.tensor(int(row["glad"]))}
    for row in rows
]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=len(words) + 1,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=str(folder),
        learning_rate=args.lr,
        max_steps=args.steps,
        save_steps=10,
        save_total_limit=2,
        logging_steps=5,
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=data,
    eval_dataset=data,
)
saved = any((path / "trainer_state.json").is_file() for path in folder.glob("checkpoint-*"))
trainer.train(resume_from_checkpoint=args.resume and saved)
torch.save({"model": model.state_dict(), "args": args}, folder / "best.pt")
(folder / "metrics.json").write_text(json.dumps(trainer.evaluate()))
