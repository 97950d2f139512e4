"""`sweepctl new`: writes a stack file to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, No, Out
from sweepstack.cli.target import Target
from sweepstack.config.edit.stack_file import valid_stack_name
from sweepstack.core.paths import docs_page, installed

TEMPLATE = """\
# {name}: a sweep on this machine. Preview it (free): pulumi preview --stack {name}
config:
  sweepstack:sweep:
    job:
      workdir: examples/digits            # the folder to ship: git-tracked files only
      run: python train.py --lr {{lr}} --seed {{seed}} --epochs {{epochs}} --out {{out}}
      # {{out}}: where this cell must write. Between braces such texts need quotes: {{run: "check.py {{file}}"}}
      # {{checkpoints}} in `run`: a folder that is kept between tries, for checkpoints to go on from
      resources: {{cpu: 1}}
    cells:                                # one training run each; names come from the axes: lr0.1-seed0 …
      base: {{epochs: 20}}                  # the same for all; adding a default renames nothing
      grid: {{lr: [0.1, 0.03], seed: [0, 1, 2]}}
      # add:  [{{lr: 0.01, seed: 0}}]       # further cells, any day: nothing that runs is restarted
      # drop: {{lr0.1-seed2: "why"}}        # stops it; stays listed, needs no waiver
    artifacts:                            # what each cell must leave behind, and how it is proved good
      model.safetensors: {{load: safetensors, keys: [w1, w2], finite: require}}
      metrics.json:      {{load: json, keys: [test_accuracy], finite: report}}
    metrics: {{file: metrics.jsonl, x: step, y: [loss, accuracy]}}
    candidates: [local]                   # platforms, in order of preference
    # overrides: {{local: {{price_per_hour: 0.25}}}}   # what this machine costs you, USD
    boxes: {{box-0: {{want: running}}}}       # running | gone; cells are split over the boxes
    pull_to: ~/sweeps/{name}               # the evidence; outside of the checkout, so that any clone finds it
"""


STORE = """\
# {name}: volumes that outlive sweeps. Preview it (free): pulumi preview --stack {name}
config:
  sweepstack:store:
    platform: local                       # where the volumes lie; may not change
    volumes:
      {volume}: {{size: 100GB}}   # a sweep gives this name in mounts.<path>.source; a volume may only grow
      # region: the data center, by the platform's own name; needed if it binds volumes to one ({page})
      # keep_until: 2027-01-31            # after it previews and `sweepctl status` warn; nothing is deleted
    pull_to: ~/sweeps/{name}               # records: which sweeps used them, what was approved; not a sweep's folder
"""


def command(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and -.")],
    store: Annotated[bool, typer.Option("--store", help="For volumes that outlive sweeps.")] = False,
    json: AsJson = False,
) -> int:
    """Write a stack file to start from: a sweep, or with --store the volumes that several sweeps use."""
    target, out = Target.find(name), Out(as_json=json)
    if not valid_stack_name(target.stack):
        raise No(
            f"\"{target.stack}\" can't be a stack's name: lower-case letters, digits and -, a letter or digit first"
        )
    text = (STORE if store else TEMPLATE).format(
        name=target.stack, volume=target.stack[:35].rstrip("-"), page=docs_page("volumes.md")
    )
    if not target.file.create(text):
        again = [f"pulumi preview --stack {target.stack}"]
        raise No(f"{target.file.shown} is there already, and was left as it is", again)
    following = [f"pulumi {words} {target.stack}" for words in ("stack init", "preview --stack", "up --stack")]
    out.document({"stack": target.stack, "file": target.file.shown, "next": following})
    made = "" if installed() else f" (make up STACK={target.stack} does the first and the last)"
    out.line(f"wrote {target.file.shown}: edit it, then{made}")
    out.next(following)
    return YES
