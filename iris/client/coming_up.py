"""The coming up of a control plane on a machine of Google Cloud, as it is seen from here."""

import asyncio
import contextlib
import shlex
import time
from datetime import timedelta

from iris.client.clusters import read_record
from iris.client.control import Tell, answering, last_lines
from iris.client.machine import gate_of
from iris.client.tunnel import last_words, login
from iris.config import ClusterConfig
from iris.errors import IrisError
from iris.platforms.base import PlatformError
from iris.platforms.gcp.controller_ops import ControllerMachine, SeenMachine
from iris.platforms.gcp.words import FAILED, marked

#: A machine that has nothing yet installs Docker and pulls its image: some minutes. Its own patience with a pull is five.
START = timedelta(minutes=15)
LOOK_EVERY = timedelta(seconds=1)
#: Lines of the console that go with an error.
SAID = 20


async def until_it_answers(
    config: ClusterConfig, machine: ControllerMachine, seen: SeenMachine, tell: Tell, *, told: int = 0, stays: bool = True
) -> str:
    """The cluster's address, once its planners answer; what the machine says of its start is told meanwhile.

    Args:
        told: so many lines are of a start before this one.
        stays: the machine, if it does not come up.

    Raises:
        IrisError: it did not come up, and why; with the end of its console.
    """
    give_up, before = time.monotonic() + START.total_seconds(), told
    tell("waiting until it answers")
    while True:
        answers = await answering(config.name) is not None
        # Also of one that answers already: how it came up is told however quick it was.
        said = ""
        with contextlib.suppress(PlatformError):
            said = await asyncio.to_thread(machine.console, seen)
        lines = marked(said)
        if said and len(lines) < told:
            # A console that began anew.
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
        await asyncio.sleep(LOOK_EVERY.total_seconds())


def _way(config: ClusterConfig, seen: SeenMachine) -> str:
    gate = gate_of(config).model_copy(update={"machine": seen.name, "zone": seen.zone})
    return (
        f"Look at it with: {shlex.join(login(gate))}; when that is mended, try again with: iris cluster restart --config FILE; "
        f"delete it with: iris cluster stop {config.name}{last_words(config.name)}"
    )
