"""python -m tests.fakes.google --state DIR"""

import argparse
import asyncio
from pathlib import Path

from tests.fakes.google.process import run


def main() -> None:
    """Parse, serve."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fakes.google", description="A fake of Google Cloud."
    )
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="What survives a restart."
    )
    parser.add_argument("--tpu-port", type=int, default=0, help="0: any free one.")
    parser.add_argument("--http-port", type=int, default=0, help="0: any free one.")
    parser.add_argument(
        "--boot", type=Path, metavar="DIR", help="Hosts boot, each in a directory in here."
    )
    parser.add_argument(
        "--owner", type=int, default=0, metavar="PID", help="End when this process has ended."
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="Removed when the owner has ended without a word.",
    )
    args = parser.parse_args()
    boot = args.boot and args.boot.resolve()
    asyncio.run(
        run(args.state.resolve(), boot, args.tpu_port, args.http_port, args.owner, args.scratch)
    )


main()
