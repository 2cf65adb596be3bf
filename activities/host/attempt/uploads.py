"""Makes what uploads the files of one attempt: its log, its checkpoint and its outputs."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.files.checkpoints import End, Saver
from iris.activities.host.files.logs import LogShipper
from iris.activities.host.files.upload import Delivery
from iris.messages.task import RunTask
from iris.storage.log_format import Stream


class Uploads(NamedTuple):
    """The objects that upload the files of one attempt."""

    logs: LogShipper
    saver: Saver
    delivery: Delivery


def uploads(
    context: HostContext,
    task: RunTask,
    directory: Path,
    program_end: Callable[[], End | None],
    *,
    found: bool,
) -> Uploads:
    """Returns what uploads the attempt's files.

    Args:
        directory: the directory of the attempt.
        program_end: returns the end of the program; None if no program was started.
        found: True if an earlier agent started the attempt.
    """
    logs = LogShipper(
        context.store,
        task.logs,
        {
            Stream.BUILD: directory / "build",
            Stream.STDOUT: directory / "stdout",
            Stream.STDERR: directory / "stderr",
        },
        directory / "shipped.json",
        taken_over=found,
        limit=context.limits.logs,
    )
    saver = Saver(
        context.store,
        task.checkpoints,
        task.attempt,
        directory,
        context.gate,
        context.limits.checkpoint,
        logs.say,
        taken_over=found,
    )
    delivery = Delivery(
        context.store,
        logs,
        directory,
        task.outputs,
        context.gate,
        context.limits.outputs,
        saver,
        program_end,
    )
    return Uploads(logs, saver, delivery)
