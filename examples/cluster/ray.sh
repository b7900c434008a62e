#!/bin/sh
# The paper's tables on machines one can log in to, which share /shared and have TRIDENT in /shared/venv:
#     sh ray.sh node1 node2 node3
set -eu
BIN=/shared/venv/bin
HEAD=$(hostname -f):6379
export RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0   # Ray runs its workers at niceness 15 otherwise

"$BIN/ray" start --head --port 6379 --disable-usage-stats
for node in "$@"; do
    ssh "$node" "RAY_worker_niceness=0 $BIN/ray start --address $HEAD --disable-usage-stats"
done

# Ctrl-C, or the loss of a machine: nothing is lost, the same command goes on.
"$BIN/trident" bench paper --launcher ray --address "$HEAD" --cores 2 --out /shared/paper --yes

for node in "$@"; do
    ssh "$node" "$BIN/ray stop"
done
"$BIN/ray" stop
