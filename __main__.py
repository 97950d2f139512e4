"""The program: one stack config becomes one sweep. What may stand in the config: docs/stack-config.md."""

from __future__ import annotations

from pathlib import Path

from components.program import load_config, one_message
from components.sweep import Sweep
from profiles.load import load_profiles
from profiles.resolve import resolve

ROOT = Path(__file__).resolve().parent

with one_message():
    config = load_config(ROOT)
    plan = resolve(config, load_profiles(config.candidates))
    Sweep(plan, ROOT).export()
