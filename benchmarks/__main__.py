"""Runs the measurements and prints the table. The exit code is 1 when a target was missed."""

import argparse
import os
import signal
import sys
import traceback
from typing import Protocol

from benchmarks import (
    actor,
    array,
    behind,
    checkpoint,
    cold,
    command,
    evaluation,
    gang,
    gcp,
    host,
    idle,
    latency,
    ledger,
    live,
    load,
    pages,
    passes,
    policy,
    pool,
    python,
    recovery,
    restart,
    simulation,
    ssh,
)
from benchmarks.table import Row, show


class Measurement(Protocol):
    def __call__(self, *, quick: bool) -> list[Row]: ...


MEASUREMENTS: dict[str, Measurement] = {
    "load": load.measure,
    "full": load.measure_full,
    "latency": latency.measure,
    "command": command.measure,
    "idle": idle.measure_few,
    "crowd": idle.measure_many,
    "pass": passes.measure,
    "ledger": ledger.measure,
    "behind": behind.measure,
    "recovery": recovery.measure_few,
    "recovery-many": recovery.measure_many,
    "restart": restart.measure,
    "gang": gang.measure,
    "evaluation": evaluation.measure,
    "cold": cold.measure,
    "host": host.measure,
    "gcp": gcp.measure,
    "checkpoint": checkpoint.measure,
    "pool": pool.measure,
    "python": python.measure,
    "actor": actor.measure,
    "array": array.measure,
    "live": live.measure,
    "pages": pages.measure,
    "simulation": simulation.measure,
    "ssh": ssh.measure,
}
#: Those that can run on Temporal's official server, which `scripts/temporal-cluster` builds.
OFFICIAL: dict[str, Measurement] = {
    "load": load.measure_official,
    "full": load.measure_full_official,
    "latency": latency.measure_official,
    "policy": policy.measure,
    "recovery": recovery.measure_few_official,
    "recovery-many": recovery.measure_many_official,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures what Iris costs, compared with a bare Temporal workflow (the floor).",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"measurements to run: {', '.join(MEASUREMENTS)}; default: all",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer jobs, fewer hosts, shorter windows"
    )
    parser.add_argument(
        "--official",
        action="store_true",
        help=f"on Temporal's official server; only: {', '.join(OFFICIAL)}",
    )
    arguments = parser.parse_args()
    measurements = OFFICIAL if arguments.official else MEASUREMENTS
    unknown = [name for name in arguments.names if name not in measurements]
    if unknown:
        parser.error(f"unknown measurement {unknown[0]!r}; use any of {', '.join(measurements)}")
    # Like Ctrl-C, so that clusters are stopped on exit.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows: list[Row] = []
    for name in arguments.names or measurements:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += measurements[name](quick=arguments.quick)
    show(rows)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Temporal's client may abort during the interpreter's own clean-up
