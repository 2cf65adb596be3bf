"""`make chaos`: runs one seed after the other, and prints a line for each."""

import argparse
import os
import signal
import sys

from tests.chaos.run import run

#: Together they take some ten minutes, half of which is the time until everything has ended.
SEEDS = (3, 4, 10)
SECONDS = 90.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of faults for each seed")
    parser.add_argument("--official", action="store_true", help="the server of `test-production`")
    options = parser.parse_args()
    # A run that is ended leaves no processes either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = False
    for seed in options.seeds:
        outcome = run(seed, options.seconds, official=options.official)
        failed = failed or bool(outcome.violations)
        sys.stdout.write(f"{outcome.explained() if outcome.violations else outcome}\n")
        sys.stdout.flush()
    os._exit(failed)  # as the command line does: Temporal's client may crash in Python's own exit


if __name__ == "__main__":
    main()
