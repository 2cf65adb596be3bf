"""Waits for a control plane on Google Cloud to come up, and reports its progress."""

import asyncio
import contextlib
import shlex
import time
from datetime import timedelta

from iris.client.connect.clusters import read_record
from iris.client.connect.tunnel import last_words, login
from iris.client.operate.control import Tell, answering, last_lines
from iris.client.operate.controller_ssh import gate_of
from iris.config import ClusterConfig
from iris.model.errors import IrisError
from iris.platforms.base import PlatformError
from iris.platforms.gcp.controller_ops import ControllerMachine, SeenMachine
from iris.platforms.gcp.diagnostics import FAILED, marked

#: A new machine installs Docker and pulls its image, which takes minutes. It gives a pull up to five minutes.
START = timedelta(minutes=15)
POLL_INTERVAL = timedelta(seconds=1)
#: How many lines of the console an error shows.
SAID = 20


async def until_it_answers(
    config: ClusterConfig, machine: ControllerMachine, seen: SeenMachine, tell: Tell, *, told: int = 0, stays: bool = True
) -> str:
    """Waits until the planners answer, and returns the cluster's address. Reports the console's messages while it waits.

    Args:
        told: how many of the console's messages belong to earlier starts.
        stays: the machine is kept if it does not come up, so the error says how to inspect it.

    Raises:
        IrisError: the control plane did not come up; the message has the reason and the end of the console.
    """
    give_up, before = time.monotonic() + START.total_seconds(), told
    tell("waiting until it answers")
    while True:
        answers = await answering(config.name) is not None
        # Read before the return, so that a quick start is reported, too.
        said = ""
        with contextlib.suppress(PlatformError):
            said = await asyncio.to_thread(machine.console, seen)
        lines = marked(said)
        if said and len(lines) < told:
            # The console has started again.
            told = before = 0
        for line in lines[told:]:
            tell(line)
        told = max(told, len(lines))
        if answers:
            if (record := read_record(config.name)) is None:
                raise IrisError(f"cluster {config.name} was stopped while it was started")
            return record.address
        there = await asyncio.to_thread(machine.find)
        if there is None:
            raise IrisError(f"the machine of cluster {config.name} is gone; start it again")
        seen = there
        failed = len(lines) > before and FAILED in lines[-1]
        if failed or time.monotonic() > give_up:
            why = "its machine could not be set up" if failed else f"not within {START.seconds // 60} minutes"
            end, way = last_lines(said, SAID) or "(nothing)", f"\n{_way(config, seen)}" if stays else ""
            raise IrisError(
                f"the control plane of cluster {config.name} did not come up: {why} (machine {seen.name} in {seen.zone}, "
                f"{seen.status}). Its console says last:\n{end}{way}"
            )
        await asyncio.sleep(POLL_INTERVAL.total_seconds())


def _way(config: ClusterConfig, seen: SeenMachine) -> str:
    gate = gate_of(config).model_copy(update={"machine": seen.name, "zone": seen.zone})
    return (
        f"Look at it with: {shlex.join(login(gate))}; when that is mended, try again with: iris cluster restart --config FILE; "
        f"delete it with: iris cluster stop {config.name}{last_words(config.name)}"
    )
