"""Implements `iris pool-worker`."""

import asyncio

import click

from iris.cli.command import Command
from iris.client.pool.worker import work


@click.command(cls=Command, name="pool-worker")
@click.argument("python")
def pool_worker(python: str) -> int:
    """Run the calls of a pool (iris.WorkerPool) with the interpreter PYTHON. The tasks of a pool's
    jobs run this command.
    """
    return asyncio.run(work(python))
