#!/bin/bash
# The paper's tables on Slurm: this job only drives; the runs are an array job of two cores each.
#     sbatch slurm.sh
#SBATCH --job-name=trident-paper
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=14-00:00:00
#SBATCH --output=/shared/paper-%j.log
#SBATCH --requeue
set -eu

# A run that meets its time limit saves, is queued again and goes on; so does this job.
/shared/venv/bin/trident bench paper --launcher slurm --slurm partition=cpu time=1440 mem-per-cpu=2G \
    --cores 2 --jobs 200 --out /shared/paper --yes
