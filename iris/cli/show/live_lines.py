"""Formats live progress as lines of text, without a clock and a terminal.

`iris.cli.show.live` draws the lines.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from textwrap import wrap

import click
from rich.cells import cell_len, set_cell_size

from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import LIVE, JobState, TaskState
from iris.model.units import format_duration
from iris.scheduling.placement.refusals import Refusal, RefusalCode

#: The maximum width of a line in characters. It applies to wider terminals, too, because longer
#: lines are hard to read.
WIDEST = 100
#: The maximum number of lines of the reason that is shown with a job's progress.
MAX_REASON_LINES = 3
#: The maximum number of phases that the last line of a job's progress shows: the latest ones.
MAX_PHASES = 5
#: The minimum time of an upload that is shown as a phase of the job. The times of phases are shown
#: in whole seconds.
_WORTH_A_PHASE = timedelta(seconds=1)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")
#: Replaces the characters that a terminal without Unicode cannot show.
_ASCII = str.maketrans({"━": "#", "─": "-", "→": ">", "…": ".", "·": "-"})


@dataclass(frozen=True)
class Look:
    """The properties of a terminal: its width, and whether it shows colours and Unicode."""

    #: The width of the terminal in columns.
    width: int = 80
    colours: bool = False
    unicode: bool = True

    def line(self, *parts: tuple[str, str], indent: int = 0) -> str:
        """Returns a line that fits the terminal.

        Args:
            parts: texts, each with its colour, `bold`, `dim`, or an empty text for no colour.
        """
        left = min(WIDEST, self.width - 1) - indent
        shown = [" " * indent]
        for text, colour in parts:
            text = self.plain(text)
            wide = cell_len(text)
            if wide > left:
                text = (
                    set_cell_size(text, max(0, left - 1)) + ("…" if self.unicode else ".")
                    if left > 0
                    else ""
                )
            left -= wide
            shown.append(self._styled(text, colour) if self.colours and colour and text else text)
        return "".join(shown).rstrip()

    def wrapped(self, text: str, *, indent: int, most: int) -> list[str]:
        """Returns a text as dim lines.

        Args:
            most: the highest number of lines.
        """
        lines = wrap(
            self.plain(text),
            max(10, min(WIDEST, self.width - 1) - indent),
            max_lines=most,
            placeholder=" …",
        )
        return [self.line((line, "dim"), indent=indent) for line in lines]

    def plain(self, text: str) -> str:
        """Returns the text without characters that a terminal interprets or cannot show."""
        if not text.isprintable():
            text = "".join(each if each.isprintable() else "�" for each in _CONTROL.sub(" ", text))
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()

    def cut(self, text: str, reserved: int) -> str:
        """Returns the text, cut so that a text of the reserved width fits behind it."""
        space = min(WIDEST, self.width - 1) - reserved
        text = self.plain(text)
        return text if cell_len(text) <= space else set_cell_size(text, max(0, space - 1)) + "…"

    @staticmethod
    def _styled(text: str, colour: str) -> str:
        if colour in ("bold", "dim"):
            return click.style(text, bold=colour == "bold" or None, dim=colour == "dim" or None)
        return click.style(text, fg=colour)


class Phase(StrEnum):
    """A phase of a job, as its submitter sees it."""

    UPLOAD = "upload"
    QUEUED = "queued"
    HELD = "held"
    SLICE = "waiting for a slice"
    STARTING = "starting"
    ENVIRONMENT = "preparing the environment"
    RUNNING = "running"
    CANCELLING = "cancelling"


#: The phase of a job that has hosts, by the state of its most advanced task. The most advanced
#: state comes first.
_WITH_HOSTS = {
    TaskState.RUNNING: Phase.RUNNING,
    TaskState.BUILDING: Phase.ENVIRONMENT,
    TaskState.ASSIGNED: Phase.STARTING,
}
#: The colours of phases. Phases without an entry are yellow: in them, the job waits.
_COLOURS = {
    Phase.CANCELLING: "magenta",
    Phase.RUNNING: "cyan",
    Phase.ENVIRONMENT: "cyan",
    Phase.STARTING: "cyan",
}
#: The name of each task state in the counts of tasks that are shown with a job's progress.
_COUNTED = {
    TaskState.RUNNING: "running",
    TaskState.BUILDING: "preparing",
    TaskState.ASSIGNED: "starting",
    TaskState.PENDING: "waiting",
    TaskState.SUCCEEDED: "succeeded",
    **dict.fromkeys((TaskState.KILLED, TaskState.CANCELLED), "cancelled"),
    **dict.fromkeys(
        (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.PREEMPTED, TaskState.UNSCHEDULABLE),
        "failed",
    ),
}


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job, as its submitter sees it.

    `seen` returns the progress after a successful query of the job's state, and `silent` the
    progress after a failed query.
    """

    job: str
    #: The time at which the job was submitted.
    since: datetime
    #: The duration of the upload of the job's files, before the job was submitted.
    upload: timedelta = timedelta(0)
    status: JobStatus | None = None
    #: The scheduler's reason why the job waits. None if the job does not wait.
    refusal: Refusal | None = None
    #: The phases of the job so far, each with its start time.
    phases: tuple[tuple[Phase, datetime], ...] = field(default=())
    #: The time of the first failed query of the job's state since the last answer. None if the last
    #: query succeeded.
    silent_since: datetime | None = None

    def seen(self, status: JobStatus, refusal: Refusal | None, now: datetime) -> "JobProgress":
        """Returns the progress after a successful query of the state."""
        phase, phases = phase_of(status, refusal), self.phases
        if not phases:
            before = (
                ((Phase.UPLOAD, self.since - self.upload),) if self.upload >= _WORTH_A_PHASE else ()
            )
            phases = (*before, (phase, self.since))
        elif phases[-1][0] is not phase:
            phases = (*phases, (phase, now))
        return replace(self, status=status, refusal=refusal, phases=phases, silent_since=None)

    def silent(self, now: datetime) -> "JobProgress":
        """Returns the progress after a failed query of the state."""
        return self if self.silent_since is not None else replace(self, silent_since=now)

    def lines(self, now: datetime, look: Look) -> list[str]:
        """Returns the block: the phase, the reason, the tasks, the time of each phase."""
        name = (f"{self.job}  ", "bold")
        if self.status is None:
            return [look.line(name, ("submitted", ""), (f"  {_for(now - self.since)}", "dim"))]
        phase, began = self.phases[-1]
        text, reason = _described(phase, self.status, self.refusal, now)
        attempt = max((task.attempt for task in self.status.tasks if task.state in LIVE), default=0)
        again = f", attempt {attempt}" if attempt > 1 else ""
        lines = [
            look.line(
                name,
                (text + again, _COLOURS.get(phase, "yellow")),
                (f"  {_for(now - began)}", "dim"),
            )
        ]
        lines += look.wrapped(reason, indent=2, most=MAX_REASON_LINES)
        if counts := _counts(self.status.tasks):
            lines.append(look.line((counts, ""), indent=2))
        if len(self.phases) > 1:
            lines.append(look.line((_trail(self.phases, now), "dim"), indent=2))
        if self.silent_since is not None:
            silence = (
                f"its state cannot be read for {_for(now - self.silent_since)}; the job continues"
            )
            lines.append(look.line((silence, "yellow"), indent=2))
        return lines


def phase_of(status: JobStatus, refusal: Refusal | None) -> Phase:
    """Returns the phase of a job, which is that of its most advanced task."""
    if status.cancelling is not None:
        return Phase.CANCELLING
    states = {task.state for task in status.tasks}
    for state, phase in _WITH_HOSTS.items():
        if state in states:
            return phase
    if status.state is JobState.HELD:
        return Phase.HELD
    if refusal is not None and (refusal.code is RefusalCode.SCALING or refusal.since is not None):
        return Phase.SLICE
    return Phase.QUEUED


def _described(
    phase: Phase, status: JobStatus, refusal: Refusal | None, now: datetime
) -> tuple[str, str]:
    """Returns the headline of the phase, and the reason for it."""
    if phase in _COLOURS:
        hosts = sorted({task.host for task in status.tasks if task.host and task.state in LIVE})
        where = (
            "" if not hosts else f" on {hosts[0]}" if len(hosts) == 1 else f" on {len(hosts)} hosts"
        )
        shows_reason = phase in (Phase.CANCELLING, Phase.ENVIRONMENT)
        return f"{phase}{where}", status.reason if shows_reason else ""
    if refusal is None:
        return str(phase), status.reason
    if phase is Phase.SLICE:
        asked = f", requested {_for(now - refusal.since)} ago" if refusal.since else ""
        return f"{phase}{asked}", refusal.scaling or refusal.message
    return f"{phase}, {refusal.ahead} ahead" if refusal.ahead else str(phase), refusal.message


def _counts(tasks: Sequence[TaskStatus]) -> str:
    """Returns the number of tasks in each state. Empty if all tasks are in the same state."""
    counts = Counter(_COUNTED[task.state] for task in tasks)
    shown = ", ".join(
        f"{counts[name]:,} {name}" for name in dict.fromkeys(_COUNTED.values()) if counts[name]
    )
    return f"{len(tasks):,} tasks: {shown}" if len(counts) > 1 else ""


def _trail(phases: Sequence[tuple[Phase, datetime]], now: datetime) -> str:
    """Returns how long each of the last phases took."""
    ends: Iterable[datetime] = (*(began for _, began in phases[1:]), now)
    took = [
        f"{phase} {_for(end - began)}" for (phase, began), end in zip(phases, ends, strict=True)
    ]
    return " → ".join([*(["…"] if len(took) > MAX_PHASES else []), *took[-MAX_PHASES:]])


def _for(duration: timedelta) -> str:
    """Formats a duration in whole seconds, because a block that changes often is hard to read."""
    return format_duration(timedelta(seconds=max(0, int(duration.total_seconds()))))
