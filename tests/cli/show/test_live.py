"""Live progress: what a block says, and that it never damages the output above it or the terminal
after it.
"""

import contextlib
import io
import os
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.cli.show.live import LiveBlock
from iris.cli.show.live_lines import JobProgress, Look, Phase, phase_of
from iris.cli.show.log_printers import LinePrinter
from iris.cli.show.progress import step_line, transfer_line
from iris.cli.show.terminal import is_live, shows_colours
from iris.client.logs.stored import TaskLine
from iris.model.job.cancelling import Cancelling
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.storage.log_format import LogLine, Stream
from tests.screen import Screen

T0 = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
MIB = 1024 * 1024


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def status(*states: TaskState, job: JobState = JobState.RUNNING, reason: str = "") -> JobStatus:
    tasks = [
        TaskStatus(
            index=index,
            state=state,
            attempt=1,
            host=None if state is TaskState.PENDING else f"host-{index}",
        )
        for index, state in enumerate(states)
    ]
    return JobStatus(
        id="ada/train", state=job, reason=reason, user="ada", submitted_at=T0, tasks=tuple(tasks)
    )


WAITS = status(TaskState.PENDING, job=JobState.PENDING)
BEHIND = Refusal(code=RefusalCode.BUSY, message="needs 4 cpu; host-1 has 1 free", ahead=2)
COMING = Refusal(
    code=RefusalCode.SCALING,
    message="no present host can serve it; slice tpus-3 is on its way",
    scaling="slice tpus-3 of scale group tpus is on its way (PROVISIONING in europe-west4-b)",
    since=at(10),
)


def test_a_block_whose_terminal_is_gone_is_silent() -> None:
    """Its error replaced the end of the job, or the error that the user has to see."""
    leader, follower = os.openpty()
    stream = os.fdopen(follower, "w")
    block = LiveBlock(lambda _: ["running"], stream)
    block.draw()
    os.close(leader)
    with pytest.raises(KeyError, match="the job's own"), block.above():
        raise KeyError("the job's own")
    block.draw()
    block.close()
    with contextlib.suppress(OSError):  # what was not written
        stream.close()


def test_a_job_s_block_tells_its_day_from_the_queue_to_the_hosts() -> None:
    """The transcript of one job: each phase with its reason and its time, and the times of the
    phases before it.
    """
    look, shown = Look(width=100), []
    progress = JobProgress("ada/train", since=at(0))
    shown.append(progress.lines(at(1), look))
    progress = progress.seen(WAITS, BEHIND, at(3))
    shown.append(progress.lines(at(5), look))
    progress = progress.seen(WAITS, COMING, at(10))
    shown.append(progress.lines(at(50), look))
    progress = progress.seen(status(*[TaskState.BUILDING] * 4), None, at(70))
    shown.append(progress.lines(at(82), look))
    progress = progress.seen(status(*[TaskState.RUNNING] * 4), None, at(90))
    shown.append(progress.lines(at(210), look))
    assert shown == [
        ["ada/train  submitted  1s"],
        ["ada/train  queued, 2 ahead  5s", "  needs 4 cpu; host-1 has 1 free"],
        [
            "ada/train  waiting for a slice, requested 40s ago  40s",
            "  slice tpus-3 of scale group tpus is on its way (PROVISIONING in europe-west4-b)",
            "  queued 10s → waiting for a slice 40s",
        ],
        [
            "ada/train  preparing the environment on 4 hosts  12s",
            "  queued 10s → waiting for a slice 1m → preparing the environment 12s",
        ],
        [
            "ada/train  running on 4 hosts  2m",
            "  queued 10s → waiting for a slice 1m → preparing the environment 20s → running 2m",
        ],
    ]


@pytest.mark.parametrize(
    ("upload", "trail"),
    [(12.6, ["  upload 12s → queued 3s"]), (0.4, [])],
)
def test_the_trail_begins_with_an_upload_that_took_time(upload: float, trail: list[str]) -> None:
    """Who waits for a job that starts late must see that the time went into its files."""
    progress = JobProgress("ada/train", since=at(0), upload=timedelta(seconds=upload)).seen(
        WAITS, BEHIND, at(1)
    )
    assert progress.lines(at(3), Look())[2:] == trail


def test_a_cancelled_job_says_until_when_its_programs_may_run() -> None:
    """Who watches it has cancelled it from another terminal, or somebody else has, and the output
    goes on.
    """
    cancelling = Cancelling.begun("cancelled by bob", at(2), timedelta(seconds=30))
    runs = status(TaskState.RUNNING)
    cancelled = runs.model_copy(update={"cancelling": cancelling, "reason": str(cancelling)})
    progress = (
        JobProgress("ada/train", since=at(0)).seen(runs, None, at(1)).seen(cancelled, None, at(3))
    )

    assert progress.lines(at(5), Look(width=120))[:2] == [
        "ada/train  cancelling on host-0  2s",
        "  cancelled by bob; programs that ignore SIGTERM get SIGKILL at about 12:00:34 UTC",
    ]


def test_tasks_that_differ_are_counted_and_silence_is_told() -> None:
    """A job of many tasks has no single state; and a control plane that does not answer is not a
    job that stands still.
    """
    mixed = status(
        TaskState.RUNNING,
        TaskState.BUILDING,
        TaskState.PENDING,
        TaskState.SUCCEEDED,
        TaskState.FAILED,
    )
    progress = (
        JobProgress("ada/train", since=at(0)).seen(mixed, None, at(0)).silent(at(5)).silent(at(9))
    )
    assert progress.lines(at(12), Look()) == [
        "ada/train  running on 2 hosts  12s",
        "  5 tasks: 1 running, 1 preparing, 1 waiting, 1 succeeded, 1 failed",
        "  its state cannot be read for 7s; the job continues",
    ]
    assert progress.seen(mixed, None, at(13)).lines(at(13), Look())[-1].startswith("  5 tasks")


@pytest.mark.parametrize(
    ("seen", "refusal", "phase"),
    [
        (status(TaskState.PENDING, job=JobState.HELD), None, Phase.HELD),
        (WAITS, None, Phase.QUEUED),
        (
            WAITS,
            BEHIND.model_copy(update={"scaling": "every scale group is blocked"}),
            Phase.QUEUED,
        ),
        (WAITS, COMING, Phase.SLICE),
        (status(TaskState.PENDING, TaskState.ASSIGNED), COMING, Phase.STARTING),
        (status(TaskState.RUNNING, TaskState.PENDING), COMING, Phase.RUNNING),
    ],
)
def test_the_phase_is_that_of_the_task_that_is_furthest(
    seen: JobStatus, refusal: Refusal | None, phase: Phase
) -> None:
    """A job waits for a slice only if one is on its way or asked for: behind other jobs it is
    queued.
    """
    assert phase_of(seen, refusal) is phase


def test_a_transfer_shows_a_bar_the_rate_and_the_time_left_as_far_as_they_fit() -> None:
    """The rate needs some time to mean anything; a narrow terminal keeps the sizes."""
    wide, ascii_only = Look(width=100), Look(width=60, unicode=False)
    assert (
        transfer_line("workspace", 0, 12 * MIB, timedelta(0), wide)
        == f"workspace  {'─' * 24}  0 B of 12 MiB"
    )
    half = f"workspace  {'━' * 12}{'─' * 12}  6 MiB of 12 MiB  2 MiB/s  3s left"
    assert transfer_line("workspace", 6 * MIB, 12 * MIB, timedelta(seconds=3), wide) == half
    narrow = transfer_line("workspace", 6 * MIB, 12 * MIB, timedelta(seconds=3), ascii_only)
    assert narrow == "workspace  ####----  6 MiB of 12 MiB  2 MiB/s  3s left"


_TEXTS = st.text(st.sampled_from("aé漢😀 \n\t\x1b[2J\x7f…→\u202e\ud800"), max_size=200)


@given(_TEXTS, st.integers(10, 200), st.booleans(), st.booleans())
def test_no_text_makes_a_line_longer_than_the_terminal(
    text: str, width: int, colours: bool, unicode: bool
) -> None:
    """A line that wraps could not be erased. Reasons contain what users and hosts wrote: wide
    characters and escapes, too.
    """
    look = Look(width=width, colours=colours, unicode=unicode)
    waits = status(TaskState.PENDING, job=JobState.PENDING, reason=text)
    progress = (
        JobProgress(text, since=at(0))
        .seen(waits, BEHIND.model_copy(update={"message": text}), at(1))
        .silent(at(2))
    )
    for line in [*progress.lines(at(100), look), step_line(text, timedelta(seconds=90), look)]:
        screen = Screen(width)
        screen.feed(line.replace("\x1b[0m", ""))
        assert len(screen.lines) <= 1
        assert screen.column < width
        assert unicode or line.isascii()
        assert colours or "\x1b" not in line


class Terminal(io.StringIO):
    """What a program has written to a terminal."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


_CHUNKS = st.tuples(
    st.sampled_from(["", "log", "two\nlines", "x" * 100]), st.booleans(), st.integers(0, 4)
)


@given(st.lists(_CHUNKS, max_size=12))
def test_output_above_a_block_is_never_torn_and_nothing_else_stays(
    chunks: list[tuple[str, bool, int]],
) -> None:
    """Whatever the order of output, with and without line ends, and blocks of any height."""
    terminal, output, own = Terminal(), Output(), [""]
    block = LiveBlock(lambda _: own, terminal)
    for text, ends, lines in chunks:
        own = [f"block {number}" for number in range(lines)]
        with block.above(output.in_line):
            terminal.write(output.add(text + "\n" * ends))
        assert seen(terminal.getvalue()) == seen(
            output.text + "\n".join(own) * (not output.in_line())
        )
    block.close()
    assert seen(terminal.getvalue()) == seen(output.text)


class Output:
    """What a program has written above the block."""

    text = ""

    def add(self, text: str) -> str:
        self.text += text
        return text

    def in_line(self) -> bool:
        return bool(self.text) and not self.text.endswith("\n")


def seen(text: str) -> list[str]:
    screen = Screen()
    screen.feed(text)
    return screen.lines


@pytest.mark.parametrize(
    ("variables", "live", "coloured"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"CI": "true"}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": ""}, True, True),
    ],
)
def test_a_terminal_gets_what_it_can_show(
    variables: dict[str, str], live: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR asks for no colours, CI for no animation; a dumb terminal can do neither."""
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (is_live(Terminal()), shows_colours(Terminal())) == (live, coloured)
    assert not is_live(io.StringIO())


def test_the_numbers_of_tasks_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of neighbouring tasks differ at a glance; the text of the line is as its program wrote
    it.
    """
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        printer = LinePrinter(prefixed=True)
        printer.print([TaskLine(task, 1, LogLine(0, Stream.STDOUT, b"hello")) for task in (0, 1)])
        shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert shown == "\x1b[32m[0]\x1b[0m hello\r\n\x1b[33m[1]\x1b[0m hello\r\n"
