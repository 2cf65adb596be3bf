"""Waits for a control plane on Google Cloud to come up, and reports its progress."""

import asyncio
import contextlib
import shlex
import time
from datetime import timedelta

from iris.client.connect.clusters import read_record
from iris.client.connect.controller_vm import controller_vm_of
from iris.client.connect.tunnel import last_output, ssh_login
from iris.client.operate.controller import Progress, answering_client, last_lines
from iris.config import ClusterConfig
from iris.model.errors import IrisError
from iris.platforms.base import PlatformError
from iris.platforms.gcp.controller_ops import ControllerMachine, SeenMachine
from iris.platforms.gcp.diagnostics import FAILED, startup_lines

#: How long the start of a new machine may take: the machine installs Docker and pulls the image,
#: which takes minutes.
START_TIMEOUT = timedelta(minutes=15)
#: The pause between two checks whether the control plane answers.
POLL_INTERVAL = timedelta(seconds=1)
#: How many lines of the machine's console an error shows.
CONSOLE_LINES = 20


async def until_it_answers(
    config: ClusterConfig,
    machine: ControllerMachine,
    seen: SeenMachine,
    progress: Progress,
    *,
    reported: int = 0,
    keep: bool = True,
) -> str:
    """Waits until the planners answer, and returns the cluster's address. Meanwhile it reports the
    messages of the machine's console.

    Args:
        reported: the number of messages on the console that belong to earlier starts.
        keep: whether the machine is kept if it does not come up. The error then says how to inspect
            it.

    Raises:
        IrisError: the control plane did not come up; the message has the reason and the end of the
            console.
    """
    give_up, before = time.monotonic() + START_TIMEOUT.total_seconds(), reported
    progress("waiting until it answers")
    while True:
        answers = await answering_client(config.name) is not None
        # The console is read before the return, so that the messages of a quick start are reported,
        # too.
        console = ""
        with contextlib.suppress(PlatformError):
            console = await asyncio.to_thread(machine.console, seen)
        lines = startup_lines(console)
        if console and len(lines) < reported:
            # The machine has booted again, and its console is new.
            reported = before = 0
        for line in lines[reported:]:
            progress(line)
        reported = max(reported, len(lines))
        if answers:
            if (record := read_record(config.name)) is None:
                raise IrisError(f"cluster {config.name} was stopped while it was started")
            return record.address
        there = await asyncio.to_thread(machine.find)
        if there is None:
            raise IrisError(
                f"the machine of cluster {config.name} no longer exists; start the cluster again"
            )
        seen = there
        failed = len(lines) > before and FAILED in lines[-1]
        if failed or time.monotonic() > give_up:
            raise _not_up(config, seen, console, failed=failed, keep=keep)
        await asyncio.sleep(POLL_INTERVAL.total_seconds())


def _not_up(
    config: ClusterConfig, seen: SeenMachine, console: str, *, failed: bool, keep: bool
) -> IrisError:
    """Builds the error for a control plane that did not come up."""
    minutes = START_TIMEOUT.seconds // 60
    why = "its machine could not be set up" if failed else f"not within {minutes} minutes"
    end = last_lines(console, CONSOLE_LINES) or "(nothing)"
    hint = f"\n{_how_to_inspect(config, seen)}" if keep else ""
    return IrisError(
        f"the control plane of cluster {config.name} did not come up: {why} (machine"
        f" {seen.name} in {seen.zone}, {seen.status}). The end of its console"
        f" output:\n{end}{hint}"
    )


def _how_to_inspect(config: ClusterConfig, seen: SeenMachine) -> str:
    vm = controller_vm_of(config).model_copy(update={"machine": seen.name, "zone": seen.zone})
    return (
        f"Log in with: {shlex.join(ssh_login(vm))}; when the fault is fixed, try again with: iris"
        " cluster restart --config FILE; delete it with: iris cluster stop"
        f" {config.name}{last_output(config.name)}"
    )
