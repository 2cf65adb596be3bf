#!/usr/bin/env bash
# A day's work on one machine: a sweep with an evaluation after it, a failure and what is run again, a TPU gang and a job that waits for it,
# a job file, a nightly job, and looks at everything from this terminal. It takes about a minute, needs no cloud, and leaves nothing behind:
#
#     examples/day.sh
#
# `iris` must be on the PATH: run "make env; . .venv/bin/activate", or install it with the extra "local".
# shellcheck disable=SC2016 # variables in single quotes belong to the tasks
set -euo pipefail

desk=$(mktemp -d "${TMPDIR:-/tmp}/day-XXXXXX")
cp -R "$(dirname "$0")/day" "$desk/work"
cd "$desk/work"
# A state directory of its own, so that your other clusters are not touched.
export IRIS_STATE_DIR=$desk/state IRIS_CLUSTER=day
leave() {
    iris cluster stop day --yes > "$desk/stopped.txt" 2>&1 || cat "$desk/stopped.txt"
    cd / && rm -rf "$desk"
}
trap leave EXIT

# Says what happens next; shows a command as one would type it; runs it, too; runs it into a file; runs one that has to fail.
at() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
show() {
    printf '\n\033[1m$'
    for word in "$@"; do
        case $word in '>') printf ' >' ;; *[!A-Za-z0-9_./:=,%@+-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\033[0m\n'
}
run() { show "$@" && "$@"; }
into() { show "${@:2}" '>' "$1" && "${@:2}" > "$1"; }
fails() { if run "$@"; then echo "this should have failed" && exit 1; fi; }

at "09:00  A cluster on this machine: one host with four cores, and a simulated TPU slice of four hosts"
run iris cluster start --local --name day --cpu 4 --memory 8g --tpu v5litepod-16 -d
run iris config
run bash -c 'eval "$(iris completion bash)"; complete -p iris' # for a shell of its own; in ~/.bashrc the first half is enough
run iris host list

at "09:10  A sweep: a task for each row of a table, at most three at once; then an evaluation, whatever became of the tasks"
mkdir data && seq 1 9 > data/books && seq 3 5 > data/code # data/web is still on its way
run cat params.csv
export DATA=$PWD/data
run iris submit -d -n sweep --tag study=lr --note 'three data sets' --array params.csv%3 --cpu 0.5 --env "DATA=$DATA" \
    -- python3 train.py --lr '{lr}' --data '{data}'
run iris submit -d -n compare --tag study=lr --after-any sweep -- python3 evaluate.py sweep
run iris explain compare
run iris submit -d -n check-data --after-fail sweep -- ls "$DATA"
run iris jobs --all --tag study=lr

at "09:20  One more job, as a file that a colleague can read, check and submit"
into baseline.yaml iris submit -n baseline --cpu 0.5 --env "DATA=$DATA" --print-yaml -- python3 train.py --lr 0.2 --data books
run cat baseline.yaml
run iris job check baseline.yaml
run iris submit -f baseline.yaml --tag study=lr

at "09:30  A nightly job, five minutes of work for the next months; it is tried once now"
run iris schedule create -n nightly --cron '0 2 * * *' --time-zone Europe/Berlin --env "DATA=$DATA" -- python3 train.py --lr 0.1 --data books
run iris schedule trigger nightly

at "10:00  How did the sweep go? A wait says so with its exit code: 125, a job failed"
fails iris wait sweep
run iris status sweep
run iris logs sweep --task 5 --tail 1
run iris wait compare
run iris logs compare
run iris wait check-data
run iris logs check-data
run iris open sweep --print

at "10:15  The data have arrived: only what failed runs again, and the evaluation of everything follows its end"
seq 2 8 > data/web
run iris rerun sweep --failed -n sweep-web
run iris submit -n compare --after-ok sweep-web -- python3 evaluate.py sweep sweep-web

at "11:00  Training on a whole TPU slice, a task on each of its hosts; the next gang waits, and says why"
run iris submit -d -n train --tag size=16 --tpu v5litepod-16 -- sh -c 'echo "task $IRIS_TASK_INDEX of $IRIS_NUM_TASKS"; sleep 3600'
run iris submit -d -n next --tag size=16 --tpu v5litepod-16 --priority batch \
    -- sh -c 'echo "task $IRIS_TASK_INDEX has waited long enough"'
run iris explain next
run iris top --once
if [ -t 1 ] && command -v timeout > /dev/null; then # until Ctrl-C; here for some seconds
    run timeout --foreground -s INT 5 iris watch -n 1s jobs || true
fi

at "14:00  A look at a running task from inside; then the first gang makes way for the next"
run iris exec train:2 -- sh -c 'echo "beside task $IRIS_TASK_INDEX on $TPU_NAME"'
run iris cancel --tag size=16 --dry-run
run iris cancel train
run iris wait next
run iris logs next

at "17:00  What the day has left: results, the nightly job, old files"
run iris fetch sweep -o results
run iris jobs --all --filter sweep
run iris schedule pause nightly --reason 'the power is off tonight'
run iris schedule list
run iris schedule resume nightly
run iris schedule show nightly
run iris jobs --all
run iris cluster gc --older-than 7d
run iris schedule delete nightly
run iris version

at "18:00  Home"
run iris cluster status
