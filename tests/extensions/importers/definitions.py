"""Thirty sweeps as people publish them, written anew: name of the file → its text.

Of the kinds that were counted among public ones: grids and random and Bayesian sweeps of W&B, Hydra lines and configs,
arrays of Slurm, loops, submitit, Ray Tune, tables, queues, SkyPilot and dstack. `LACKS`: what a file has that a stack
file can't say, as words that have to stand in what is not carried.
"""

from __future__ import annotations

FILES: dict[str, str] = {
    "w1-grid.yaml": """\
program: train.py
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.1, 0.01, 0.001]}
  batch_size: {values: [32, 64]}
  epochs: {value: 3}
""",
    "w2-nested.yaml": """\
program: src/train.py
method: grid
command: [python3, "${program}", "--config=base.yaml", "${args}"]
parameters:
  optimizer:
    parameters:
      name: {values: [sgd, adamw]}
      wd: {values: [0.0, 0.1]}
  model: {values: [meta-llama/Llama-3-8B, "a model"]}
""",
    "w3-hydra.yaml": """\
program: train.py
method: grid
command: ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"]
parameters:
  optim.lr: {values: [0.1, 0.01]}
  trainer.max_epochs: {value: 5}
""",
    "w4-flags.yaml": """\
program: train.py
method: grid
command: ["${interpreter}", "${program}", "${args_no_boolean_flags}"]
parameters:
  amp: {values: [true, false]}
  ema: {value: true}
  depth: {values: [2, 4]}
""",
    "w5-cap.yaml": """\
program: train.py
method: grid
run_cap: 3
parameters:
  a: {values: [1, 2]}
  b: {values: [x, y]}
""",
    "w6-bayes.yaml": """\
program: train.py
method: bayes
run_cap: 12
metric: {name: val/acc, goal: maximize}
early_terminate: {type: hyperband, min_iter: 3, eta: 2}
parameters:
  lr: {distribution: log_uniform_values, min: 0.00001, max: 0.1}
  layers: {min: 2, max: 6}
  dropout: {distribution: q_uniform, min: 0.0, max: 0.5, q: 0.1}
  act: {values: [relu, gelu]}
""",
    "w7-random.yaml": """\
program: train.py
method: random
parameters:
  lr: {distribution: log_uniform, min: -9.21, max: -2.3}
  noise: {distribution: normal, mu: 0, sigma: 1}
  seed: {values: [0, 1, 2]}
""",
    "w8-none.yaml": """\
method: grid
program: run.py
project: ablation
parameters:
  pool: {values: [null, mean]}
  widths: {values: [[64, 64], [128]]}
""",
    "h1-line.sh": "python train.py -m model=resnet,vit optim.lr=0.1,0.01 seed='range(0,3)' +trainer.max_epochs=5\n",
    "h2-line.sh": """\
#!/bin/bash
# all groups
python src/train.py --multirun \\
    experiment='choice(base,large)' 'data.sizes=[64,64],[128]' optim.lr=1e-3,1e-4 hydra/launcher=joblib
""",
    "h3-config.yaml": """\
defaults: [_self_, {model: mlp}]
lr: 0.1
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      lr: 0.1,0.01
      model: choice(mlp,cnn)
      seed: range(1,4)
  launcher: {timeout_min: 120, cpus_per_task: 4, gpus_per_node: 1, mem_gb: 16, partition: gpu, array_parallelism: 2}
""",
    "h4-optuna.yaml": """\
defaults: [_self_, {override hydra/sweeper: optuna}]
hydra:
  sweeper:
    direction: maximize
    n_trials: 15
    n_jobs: 2
    params:
      lr: interval(0.001, 0.1)
      units: choice(64,128)
""",
    "s1-loop.sh": """\
#!/bin/bash
for lr in 0.1 0.01; do
  for seed in 0 1 2; do
    python train.py --lr $lr --seed $seed > log_$lr_$seed.txt 2>&1
  done
done
""".replace("$lr_", "${lr}_"),
    "s2-arrays.sh": """\
#!/usr/bin/env bash
set -euo pipefail
MODELS=(small "very large")
declare -a LRS=(0.1 0.01)
for i in "${!MODELS[@]}"; do
  python train.py --model "${MODELS[$i]}" --lr ${LRS[$i]} --name "run-${MODELS[$i]}" &
done
wait
""",
    "s3-counted.sh": """\
for ((seed=0; seed<6; seed+=2)); do
  for n in $(seq 1 3); do
    if [ $seed -eq 2 ] && [ $n -gt 1 ]; then continue; fi
    CUDA_VISIBLE_DEVICES=$((seed % 2)) python train.py --seed=$seed --n=$n --total=$((n * 10 + seed))
  done
done
""",
    "s4-read.sh": """\
while IFS=, read -r task lr; do
  python train.py --task "$task" --lr "$lr" --tag 'a  b'
done < tasks.txt
""",
    "s5-braces.sh": """\
for dataset in {cifar,mnist}-{10,100}; do
  for seed in {01..03}; do
    python prep.py $dataset && python train.py --data $dataset --seed $seed
  done
done
""",
    "a1-index.sbatch": """\
#!/bin/bash
#SBATCH --job-name=idx
#SBATCH --array=0-4
#SBATCH --time=1-00:00:00
#SBATCH --mem=16G
#SBATCH --mail-user=a@b.c
srun python train.py --task-id $SLURM_ARRAY_TASK_ID
""",
    "a2-decoded.sbatch": """\
#!/bin/bash
#SBATCH -p gpu
#SBATCH --gres=gpu:a100:2
#SBATCH -c 8
#SBATCH --array=0-11%4
lrs=(0.1 0.01 0.001)
seeds=(0 1)
opts=(sgd adam)
i=$SLURM_ARRAY_TASK_ID
lr=${lrs[$((i % 3))]}
seed=${seeds[$((i / 3 % 2))]}
opt=${opts[$((i / 6))]}
module load cuda/12.1
python train.py --lr $lr --seed $seed --opt $opt
""",
    "a3-file.sbatch": """\
#!/bin/bash
#SBATCH --array=1-3
#SBATCH --time=30
ARGS=$(sed -n "${SLURM_ARRAY_TASK_ID}p" lines.txt)
python train.py --name "$ARGS"
""",
    "a4-environ.sbatch": """\
#!/bin/bash
#SBATCH --array=0,3,7
python train.py
""",
    "a5-awk.sbatch": """\
#!/bin/bash
#SBATCH --array=1-3
NAME=$(awk "NR==$SLURM_ARRAY_TASK_ID" lines.txt)
python train.py --name "$NAME"
""",
    "j1-map.py": """\
import submitit
from work import train

if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="logs")
    executor.update_parameters(timeout_min=60, slurm_partition="gpu", gpus_per_node=1, slurm_array_parallelism=2)
    jobs = executor.map_array(train, [0.1, 0.01], ["sgd", "it's"])
""",
    "j2-loop.py": """\
import itertools
import submitit
from work import train

LRS = [0.1, 0.01]

def main():
    executor = submitit.AutoExecutor(folder="logs")
    for lr, seed in itertools.product(LRS, range(2)):
        executor.submit(train, lr, seed)

if __name__ == "__main__":
    main()
""",
    "r1-grid.py": """\
from ray import tune

WIDTHS = [64, 128]

def objective(config): ...

tuner = tune.Tuner(objective, param_space={
    "lr": tune.grid_search([0.1, 0.01]),
    "net": {"width": tune.grid_search(WIDTHS), "act": "relu"},
    "epochs": 10,
})
""",
    "r2-random.py": """\
from ray import tune
from ray.tune.schedulers import ASHAScheduler

space = {"lr": tune.loguniform(1e-4, 1e-1), "batch": tune.choice([16, 32]), "depth": tune.randint(1, 5),
         "root": where()}
tuner = tune.Tuner(
    f, param_space=space,
    tune_config=tune.TuneConfig(num_samples=8, metric="loss", mode="min", scheduler=ASHAScheduler()),
)
""",
    "t1-cells.csv": "lr,model,seed\n0.1,small,0\n0.01,meta-llama/Llama-3-8B,1\n0.05,'quoted',2\n",
    "q1-queue.txt": """\
# cfg task epochs
# start_index: 1
configs/ablation/recon/baseline.yaml reconstruction 20
configs/ablation/det/baseline.yaml detection 50
configs/ablation/seg/no_aug.yaml segmentation
""",
    "c1-lines.txt": """\
python train.py --lr 0.1 --name "first one"
python train.py --lr 0.2 --name second
""",
    "k1-sky.yaml": """\
name: tune
resources: {accelerators: "A100:8", use_spot: true, disk_size: 256, cloud: aws}
envs: {MODEL: small}
secrets: {HF_TOKEN: null}
file_mounts: {/ckpt: {source: "s3://bucket/x", mode: MOUNT}}
setup: pip install -r requirements.txt
run: python train.py --model $MODEL
""",
    "d1-dstack.yml": """\
type: task
image: nvcr.io/nvidia/pytorch
env: [HF_TOKEN, EPOCHS=2]
commands: [pip install trl, python train.py --epochs $EPOCHS]
resources: {gpu: {name: [A100, H100], memory: 24GB.., count: 2}, cpu: 8.., shm_size: 8GB}
max_price: 4.5
""",
}
BESIDE = {
    "tasks.txt": "seg,0.1\ndet,0.01\n",
    "lines.txt": "one\ntwo words\nthree\n",
    "work.py": "",
}
"""What lies beside them."""
LACKS: dict[str, tuple[str, ...]] = {
    "w6-bayes.yaml": ("early_terminate",),
    "w7-random.yaml": ("noise: distribution", "run_cap"),
    "h4-optuna.yaml": (),
    "r2-random.py": ("ASHAScheduler", "root: where()"),
    "q1-queue.txt": ("start_index", "no epochs"),
    "a2-decoded.sbatch": ("module load",),
    "a5-awk.sbatch": ("awk",),
    "k1-sky.yaml": ("resources.cloud", "file_mounts./ckpt"),
    "d1-dstack.yml": ("shm_size",),
}
SEARCHES = ("w6-bayes.yaml", "w7-random.yaml", "h4-optuna.yaml", "r2-random.py")
"""Cells that are drawn."""
