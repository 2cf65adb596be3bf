"""Tables and texts for people: plain in a pipe, with colours and wrapped to the width in a
terminal.
"""

import sys

import click
import pytest

from iris.cli.show.columns import Column
from iris.cli.show.explanation import explanation_text, forecast_text
from iris.cli.show.fitted_table import shrunk
from iris.cli.show.hosts import HOSTS
from iris.cli.show.jobs import JOBS, job_tree, status_text
from iris.cli.show.listing import MAX_FITTED, Listing, coloured
from iris.cli.show.resources import free_text
from iris.cli.show.submission import submission_text
from iris.client.jobs.explanation import Explanation
from iris.client.jobs.rows import JobRow
from iris.messages.scheduler import HostView
from iris.model.job.attempts import Account, AttemptRecord
from iris.model.job.bundles import Bundle
from iris.model.job.spec import Band, Coscheduling
from iris.model.job.status import JobStatus
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.scheduling.reasons.forecast import Fit, Forecast
from tests.builders import a_host, a_spec, a_submission, a_task, at, some

SAMPLE: Listing[tuple[str, str, str]] = Listing(
    Column("ID", value=lambda row: row[0]),
    Column("STATE", value=lambda row: row[1]),
    Column("X", value=lambda row: row[2], absent="", wraps=True),
)


#: One that must fit; of the others, the reason is the most important.
WITH_OPTIONS: Listing[tuple[str, str, str]] = Listing(
    Column("ID", value=lambda row: row[0]),
    Column(
        "REASON",
        value=lambda row: row[1],
        absent="",
        wraps=True,
        optional=True,
        importance=1,
        least=20,
    ),
    Column("PRIORITY", value=lambda row: "interactive", optional=True),
    Column("COMMAND", value=lambda row: row[2], absent="", wraps=True, optional=True),
)


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in click.unstyle(text).splitlines()]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """A dash keeps the place of an empty cell."""
    assert plain(SAMPLE.table([("a-long-id", "RUNNING", "1"), ("b", "", "")])) == [
        "ID         STATE    X",
        "a-long-id  RUNNING  1",
        "b          -",
    ]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Standard output is a terminal of 30 columns that shows colours."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in {"COLUMNS": "30", "TERM": "xterm", "NO_COLOR": None}.items():
        (
            monkeypatch.delenv(name, raising=False)
            if value is None
            else monkeypatch.setenv(name, value)
        )
    return monkeypatch


def test_an_optional_column_is_left_out_where_it_is_empty_or_does_not_fit(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reasons help only where there are some, and only if they can be read; a row of a list never
    takes two lines.

    The least important column is left out first; of equal ones the first.
    """
    rows = [
        ("train-7", "exited with code 3: ValueError: no such file", "python train.py"),
        ("b", "", "true"),
    ]

    def first_of(rows: list[tuple[str, str, str]], columns: int) -> str:
        terminal.setenv("COLUMNS", str(columns))
        terminal.setattr(sys.stdout, "isatty", lambda: True)
        WITH_OPTIONS.show(rows, as_json=False)
        return plain(capsys.readouterr().out)[1]

    assert (
        first_of(rows, 90)
        == "train-7  exited with code 3: ValueError: no such file  interactive  python train.py"
    )
    assert first_of(rows, 60) == "train-7  exited with code 3: …  interactive  python train.py"
    assert first_of(rows, 47) == "train-7  exited with code 3: …  python train.py"
    assert first_of(rows, 40) == "train-7  exited with code 3: ValueError…"
    assert first_of(rows, 30) == "train-7  exited with code 3: …"
    assert first_of(rows, 25) == "train-7"
    assert first_of(rows[1:] * 2, 60) == "b   interactive  true"


@pytest.mark.parametrize(
    ("device", "columns", "header", "failed"),
    [
        ("tpu:v5litepod-16:4", 140, "ID STATE PRIORITY TASKS DEVICE AGE TAGS REASON COMMAND", ""),
        ("tpu:v5litepod-16:4", 100, "ID STATE TASKS DEVICE AGE REASON COMMAND", ""),
        (
            "tpu:v5litepod-16:4",
            80,
            "ID STATE DEVICE AGE REASON",
            "FAILED   tpu:v5litepod-16:4  12m 30s  exited with code …",
        ),
        (
            "",
            80,
            "ID STATE TASKS AGE REASON COMMAND",
            "FAILED   4      12m 30s  exited with cod…  python train…",
        ),
        ("tpu:v5litepod-16:4", 60, "ID STATE AGE REASON", "FAILED   12m 30s  exited with code …"),
    ],
)
def test_a_narrow_list_of_jobs_shows_the_reason_rather_than_the_command(
    terminal: pytest.MonkeyPatch, device: str, columns: int, header: str, failed: str
) -> None:
    """A list is read to see what waits or failed, and why. The user knows the command, and `status`
    shows all.
    """
    row = JobRow(
        id="ada/llama-pretrain-of-the-5", state=JobState.RUNNING, user="ada", submitted_at=at(0),
        command="python train.py --fast", device=device, tasks=4, tags={"team": "x"},
    )  # fmt: skip
    rows = [
        row,
        row.model_copy(
            update={
                "state": JobState.FAILED,
                "reason": "exited with code 3: ValueError: no such file",
            }
        ),
    ]
    terminal.setenv("COLUMNS", str(columns))

    lines = plain(JOBS.table(rows, at(750), cut=True))

    assert " ".join(lines[0].split()) == header
    assert failed in lines[2]
    assert max(map(len, lines)) <= columns


def test_a_cell_is_one_line_without_control_characters() -> None:
    """A command or a reason may contain anything, and a script reads one row per line."""
    assert plain(SAMPLE.table([("a", "RUNNING", "one\ntwo\x1b[31m three")]))[1:] == [
        "a   RUNNING  one two [31m three"
    ]


def test_a_narrow_terminal_wraps_the_reason_and_never_an_id(terminal: pytest.MonkeyPatch) -> None:
    """A terminal without space for the ids gets long lines, and wraps them itself."""
    row = ("an-id-of-20-letters-", "FAILED", "exited with code 3 on some-host-1c9e07a3")
    assert plain(SAMPLE.table([row]))[1:] == [
        "an-id-of-20-letters-  FAILED  exited with code 3 on some-host-1c9e07a3"
    ]
    terminal.setenv("COLUMNS", "50")
    assert plain(SAMPLE.table([row]))[1:] == [
        "an-id-of-20-letters-  FAILED  exited with code 3",
        "                              on",
        "                              some-host-1c9e07a3",
    ]


def test_a_list_in_a_narrow_terminal_cuts_what_is_long_and_never_an_id(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list is read by rows: wrapped cells of twenty jobs are no table. What is piped is whole."""
    rows = [
        ("an-id-of-20-letters-", "FAILED", "exited with code 3 on some-host-1c9e07a3"),
        ("b", "RUNNING", ""),
    ]

    def shown(columns: int, *, piped: bool = False) -> list[str]:
        terminal.setenv("COLUMNS", str(columns))
        terminal.setattr(sys.stdout, "isatty", lambda: not piped)
        SAMPLE.show(rows, as_json=False)
        return plain(capsys.readouterr().out)

    assert shown(50) == [
        "ID                    STATE    X",
        "an-id-of-20-letters-  FAILED   exited with code 3…",
        "b                     RUNNING",
    ]
    assert shown(30)[1] == "an-id-of-20-letters-  FAILED   exited with…"
    assert shown(30, piped=True)[1].endswith("on some-host-1c9e07a3")


def test_a_long_id_loses_its_middle_so_that_the_reason_can_be_read(
    terminal: pytest.MonkeyPatch,
) -> None:
    """The reason is why a list is read, and the beginning and the end of an id tell which one it
    is.
    """
    long = "ada/llama-pretrain-of-the-5th-attempt-at-scale"

    def ids(*jobs: str) -> list[str]:
        terminal.setenv("COLUMNS", "80")
        row = JobRow(
            id="",
            state=JobState.FAILED,
            user="ada",
            submitted_at=at(0),
            command="true",
            reason="exited with code 3",
        )
        rows = [row.model_copy(update={"id": job}) for job in jobs]
        lines = plain(JOBS.table(rows, at(750), cut=True))
        assert all("exited with code 3" in line for line in lines[1:])
        assert max(map(len, lines)) <= 80
        return [line.split()[0] for line in lines[1:]]

    (short,) = ids(long)
    assert (short[:12], short[-8:], "…" in short) == ("ada/llama-pr", "at-scale", True)
    differing = [f"ada/llama-pretrain-{n}-of-the-5th-attempt-at-scale" for n in range(10)]
    assert len({*ids(*differing)}) == 10


def test_a_table_of_one_thing_breaks_long_words_rather_than_its_lines(
    terminal: pytest.MonkeyPatch,
) -> None:
    """Lines that the terminal wraps are no table."""
    terminal.setenv("COLUMNS", "80")
    record = an_attempt(
        1, Account.FAILURES, "no file /srv/data/" + "x" * 60, f"local-v5litepod-16-{'1c' * 12}-w-0"
    )
    failed = Explanation(
        id="ada/a", state=JobState.FAILED, message="failed", attempts={0: (record,)}
    )

    lines = plain(explanation_text(failed, at(0)))

    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("x") >= 60


@pytest.mark.parametrize(
    ("natural", "least", "total", "widths"),
    [
        ((4, 4), (4, 4), 20, [4, 4]),
        ((10, 30, 20), (10, 8, 8), 40, [10, 15, 15]),
        ((10, 30, 9), (10, 8, 8), 30, [10, 11, 9]),
        ((10, 30, 20), (10, 8, 8), 5, [10, 8, 8]),
    ],
)
def test_the_widest_columns_are_cut_first(
    natural: list[int], least: list[int], total: int, widths: list[int]
) -> None:
    """A short state of a host must not disappear beside a long list of tasks."""
    assert shrunk(natural, least, total) == widths


def test_a_dumb_terminal_gets_no_escape_sequences(terminal: pytest.MonkeyPatch) -> None:
    """Editors and old consoles show them as letters."""
    terminal.setenv("TERM", "dumb")
    assert "\x1b" not in SAMPLE.table([("a", "FAILED", "b")]) + coloured("FAILED")


@pytest.mark.usefixtures("terminal")
def test_a_state_has_a_colour_in_a_terminal() -> None:
    """No other text is coloured or read as markup, and a very long table stays plain."""
    assert "\x1b[31mFAILED" in SAMPLE.table([("a", "FAILED", "[red]b")])
    assert "[red]b" in SAMPLE.table([("a", "FAILED", "[red]b")])
    assert coloured("RUNNING") == "\x1b[36mRUNNING\x1b[0m"
    assert coloured("DRAINING") == "DRAINING"
    assert "\x1b" not in SAMPLE.table([("a", "FAILED", "b")] * (MAX_FITTED + 1))


def test_no_color_is_honoured(terminal: pytest.MonkeyPatch) -> None:
    """See no-color.org: it forbids colours, and allows bold headings."""
    terminal.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in SAMPLE.table([("a", "FAILED", "b")])
    assert coloured("RUNNING") == "RUNNING"


def test_a_list_of_jobs_shows_age_and_the_beginning_of_the_command() -> None:
    """A long command is cut where its row would not fit."""
    row = JobRow(
        id="ada/train", state=JobState.RUNNING, user="ada", submitted_at=at(0), command="x" * 100
    )
    _, line = plain(JOBS.table([row], at(90)))
    assert line == f"ada/train  RUNNING  interactive  1      1m 30s  {'x' * 59}…"


def test_a_status_says_what_why_and_how_long() -> None:
    """One line for the job, one for its times, a table of its tasks; a dash for what is not
    there.
    """
    status = JobStatus(
        id="ada/train",
        state=JobState.FAILED,
        reason="task 0: exited with code 3",
        user="ada",
        submitted_at=at(0),
        started_at=at(10),
        finished_at=at(70),
        tasks=(
            a_task(
                state=TaskState.FAILED,
                attempt=1,
                host="h1",
                exit_code=3,
                reason="exited with code 3",
            ),
            a_task(index=1),
        ),
    )
    assert plain(status_text(status, at(100))) == [
        "ada/train  FAILED  task 0: exited with code 3",
        "submitted 1m 40s ago, ran 1m",
        "",
        "TASK  STATE    HOST  ATTEMPT  EXIT  REASON",
        "0     FAILED   h1    1        3     exited with code 3",
        "1     PENDING  -     -        -",
    ]


def test_a_job_that_was_evicted_ran_until_its_eviction() -> None:
    """It waits for another attempt: time in the queue is no time on a host."""
    task = a_task(
        state=TaskState.PENDING,
        attempt=1,
        host="h1",
        reason="wait",
        started_at=at(10),
        finished_at=at(15),
    )
    status = JobStatus(
        id="ada/train",
        state=JobState.RUNNING,
        user="ada",
        submitted_at=at(0),
        started_at=task.started_at,
        tasks=(task,),
    )
    runs_again = status.model_copy(
        update={
            "tasks": (a_task(state=TaskState.RUNNING, started_at=at(18)),),
            "started_at": at(18),
        }
    )

    assert plain(status_text(status, at(21)))[1] == "submitted 21s ago, ran 5s"
    assert plain(status_text(runs_again, at(21)))[1] == "submitted 21s ago, ran 3s"


def test_an_explanation_gives_both_numbers() -> None:
    """What is needed and what there is, in units people use."""
    waits = Explanation(
        id="ada/train",
        state=JobState.PENDING,
        message="wait",
        refusal=Refusal(
            code=RefusalCode.BUSY, message="wait", needed={"cpu": 4000}, free={"cpu": 1500}
        ),
    )
    shown = plain(explanation_text(waits, at(0)))
    assert shown == ["ada/train  PENDING  BUSY", "wait", "needed: 4 cpu", "available: 1.5 cpu"]


def test_an_explanation_says_which_constraints_exclude_how_many_and_what_would_end_the_wait() -> (
    None
):
    """A single constraint is in the message already."""
    refusal = Refusal(
        code=RefusalCode.CONSTRAINTS,
        message="zone = a excludes 3 of 4 hosts",
        excluded={"zone = a": 3, "driver >= 5": 2},
        remedy="drop or widen the constraint zone = a",
    )
    waits = Explanation(
        id="ada/train", state=JobState.PENDING, message=refusal.message, refusal=refusal
    )
    assert plain(explanation_text(waits, at(0)))[2:] == [
        "excluded: 3 by zone = a, 2 by driver >= 5",
        "remedy: drop or widen the constraint zone = a",
    ]
    alone = waits.model_copy(
        update={"refusal": refusal.model_copy(update={"excluded": {"zone = a": 3}})}
    )
    assert plain(explanation_text(alone, at(0)))[2:] == [
        "remedy: drop or widen the constraint zone = a"
    ]


def an_attempt(
    number: int, account: Account, reason: str, *hosts: str, started: bool = True
) -> AttemptRecord:
    return AttemptRecord(
        number=number,
        hosts=hosts,
        placed_at=at(0),
        started_at=at(5) if started else None,
        ended_at=at(65),
        account=account,
        reason=reason,
        ends=(),
    )


def test_an_explanation_lists_every_attempt() -> None:
    """Where, how long, the outcome and the retry account; a dash if no account is charged."""
    attempts = (
        an_attempt(
            1, Account.UNDELIVERED, "host h1 did not start the task within 1m", "h1", started=False
        ),
        an_attempt(2, Account.PREEMPTIONS, "the agent of host h2 died", "h1", "h2", "h3"),
        an_attempt(3, Account.NONE, "", "h1", "h2", "h3"),
    )
    done = Explanation(
        id="ada/train", state=JobState.SUCCEEDED, message="done", attempts={0: attempts}
    )
    assert plain(explanation_text(done, at(0)))[2:] == [
        "",
        "3 attempts have ended:",
        "ATTEMPT  PLACED (UTC)         RAN            HOSTS          COUNTED AS   OUTCOME",
        (
            "1        2026-01-01 12:00:00  never started  h1             undelivered  host h1 did"
            " not start the task within 1m"
        ),
        (
            "2        2026-01-01 12:00:00  1m             h1 and 2 more  preemptions  the agent of"
            " host h2 died"
        ),
        "3        2026-01-01 12:00:00  1m             h1 and 2 more  -            succeeded",
    ]


def test_attempts_of_several_tasks_are_told_apart() -> None:
    """Tasks that go their own ways have stories of their own; those without one take no line."""
    one = an_attempt(1, Account.FAILURES, "exited with code 1", "h1")
    several = Explanation(
        id="ada/sweep",
        state=JobState.RUNNING,
        message="runs",
        attempts={0: (one,), 1: (), 7: (one, one)},
    )
    assert [line for line in plain(explanation_text(several, at(0))) if "ended:" in line] == [
        "task 0, 1 attempt has ended:",
        "task 7, 2 attempts have ended:",
    ]


def test_a_forecast_says_where_the_job_would_start_and_what_holds_of_the_other_hosts() -> None:
    """One row for all hosts of a group of which the same holds; four of them are named."""
    spec = a_spec(replicas=4, coscheduling=Coscheduling(group_by="tpu-name"))
    fits = (
        Fit(group="tpu", fits=True, why="fits now", hosts=5, named=("a", "b", "c", "d")),
        Fit(fits=False, why="has no devices", hosts=1, named=("mine",)),
    )
    found = Forecast(hosts=("a", "b", "c", "d"), fits=fits)
    assert plain(forecast_text(spec, found)) == [
        "the job would start now on a, b, c, d",
        "",
        "GROUP  HOSTS  FITS  REASON          HOST IDS",
        "tpu    5      yes   fits now        a, b, c, d …",
        "-      1      no    has no devices  mine",
    ]


def test_a_forecast_says_why_the_job_would_wait_or_can_never_run() -> None:
    """One of them: to wait is useless if no host can ever run it. Tasks that go their own ways are
    spoken of one by one.
    """
    waits = Refusal(code=RefusalCode.KEPT, message="all hosts are reserved", remedy="wait")
    never = Refusal(code=RefusalCode.TOO_BIG, message="needs 64 cpu", remedy="ask for less")
    spec = a_spec(replicas=3)
    assert plain(forecast_text(spec, Forecast(refusal=waits))) == [
        "each of its 3 tasks would wait: KEPT  all hosts are reserved",
        "remedy: wait",
    ]
    assert plain(forecast_text(spec, Forecast(refusal=waits, infeasible=never))) == [
        "no host can ever run the job: TOO_BIG  needs 64 cpu",
        "remedy: ask for less",
    ]


def test_a_list_of_hosts_names_three_tasks_and_counts_the_others() -> None:
    """A host with a thousand tasks still has one line."""
    view = HostView(
        host=a_host(offers=some(cpu=8)),
        free=some(cpu=3).amounts(),
        running=tuple(f"ada/x:{i}" for i in range(5)),
    )
    _, line = plain(HOSTS.table([view]))
    assert line == "h1  READY  slice-of-h1  8 cpu   3 cpu  ada/x:0, ada/x:1, ada/x:2 and 2 more"


def test_free_accelerators_are_named_first() -> None:
    """They are what the host is for, and `3 devices` at the end of the cell named none."""
    host = a_host(offers=some(cpu=8, device="gpu:H100:8"))
    free = {"cpu": 3000, "memory": 0, "disk": 0, "device": 2}
    assert free_text(HostView(host=host, free=free, running=())) == "gpu:H100:2, 3 cpu"
    assert free_text(HostView(host=host, free={**free, "cpu": 0}, running=())) == "gpu:H100:2"
    assert free_text(HostView(host=host, free={**free, "device": 0}, running=())) == "3 cpu"


def test_a_list_of_hosts_shows_who_takes_nothing_new_and_why() -> None:
    """In the last column, which may be long."""
    views = [
        HostView(
            host=a_host("h1", some(cpu=4)),
            free={},
            running=(),
            closed="cordoned: fan broken (by ada)",
        ),
        HostView(
            host=a_host("h2", some(cpu=4)),
            free={},
            running=(),
            closed="scale group tpu is paused: by bob",
        ),
    ]
    assert plain(HOSTS.table(views)) == [
        "ID  STATE     SLICE        OFFERS  FREE     RUNNING  REASON",
        "h1  CORDONED  slice-of-h1  4 cpu   nothing  -        cordoned: fan broken (by ada)",
        "h2  PAUSED    slice-of-h2  4 cpu   nothing  -        scale group tpu is paused: by bob",
    ]


@pytest.mark.parametrize(
    ("shown", "words"), [(JOBS.table([]), "no jobs"), (HOSTS.table([]), "no hosts")]
)
def test_an_empty_list_says_so(shown: str, words: str) -> None:
    """A bare header would look like an error."""
    assert shown == words


def test_what_a_job_was_submitted_with_is_shown_without_values_of_variables() -> None:
    """Whoever looks at a job of last week wants to know what it ran; a token in its environment is
    nobody's business.
    """
    spec = a_spec(
        command=("sh", "-c", "echo $A\n\x1b[31m"),
        replicas=3,
        env={"TOKEN": "hidden", "A": "1"},
        secrets={"KEY": "env:KEY"},
        bundle=Bundle(sha256="ab" * 32, size=2048),
        resources=some(cpu=2),
    )

    assert submission_text(a_submission(spec, page="http://x/y")).splitlines() == [
        "command   sh -c 'echo $A [31m'",
        "resources 2 cpu for each of 3 tasks",
        "priority  interactive",
        "env       A=…, TOKEN=…",
        "secrets   KEY from env:KEY",
        "files     bundle abababababab, 2 KiB",
        "page      http://x/y",
    ]
    assert "page" not in submission_text(a_submission(spec))
    sent = spec.model_copy(update={"commit": "12" * 20})
    assert submission_text(a_submission(sent)).endswith(
        "files     bundle abababababab, 2 KiB, commit 121212121212"
    )
    changed = spec.model_copy(update={"commit": "12" * 20 + "+"})
    assert "2 KiB, commit 121212121212, modified" in submission_text(a_submission(changed))


def test_the_priority_of_a_job_is_the_band_that_it_is_in_now() -> None:
    """After `iris priority` it is not the one that the job was submitted in, which says why others
    ran first.
    """
    moved = a_submission(a_spec(band=Band.BATCH), priority=Band.PRODUCTION)
    assert "priority  production, submitted as batch" in submission_text(moved).splitlines()


def test_the_jobs_ahead_of_a_waiting_one_are_named_and_the_others_counted() -> None:
    """Whom to ask; five names are enough."""
    refusal = Refusal(
        code=RefusalCode.BUSY, message="busy", ahead=7, ahead_first=("ada/a", "bob/b:3")
    )
    shown = explanation_text(
        Explanation(id="ada/train", state=JobState.PENDING, message="busy", refusal=refusal),
        at(0),
        "command   true",
    )
    assert shown.splitlines()[2:] == ["ahead: ada/a, bob/b:3 and 5 more", "", "command   true"]


def test_a_tree_has_each_job_below_the_one_that_it_belongs_to() -> None:
    """The first submitted first; a job whose parent is not in the list is still there, with its
    whole id.
    """

    def row(job: str, run: int | None = None) -> JobRow:
        return JobRow(
            id=job, run=run, state=JobState.RUNNING, user="ada", submitted_at=at(0), command="x"
        )

    newest_first = [
        row("ada/b/y"),
        row("ada/a/z/w"),
        row("ada/a/z"),
        row("ada/a/x"),
        row("ada/a"),
        row("ada/a", run=1),
    ]
    ids = [line.partition(" RUNNING")[0].rstrip() for line in plain(job_tree(newest_first))]

    assert ids[1:] == ["ada/b/y", "ada/a", "└ x", "└ z", "  └ w", "ada/a#1"]


def test_many_children_are_counted_by_their_states_and_the_live_ones_named() -> None:
    """Of a sweep of a thousand, people want to know what is left."""
    ended = [
        JobRow(
            id=f"ada/a/{n}", state=JobState.SUCCEEDED, user="ada", submitted_at=at(0), command="x"
        )
        for n in range(9)
    ]
    live = ended[0].model_copy(update={"id": "ada/a/live", "state": JobState.PENDING})
    status = JobStatus(
        id="ada/a", state=JobState.RUNNING, user="ada", submitted_at=at(0), tasks=(a_task(),)
    )

    assert "children  10: 1 PENDING, 9 SUCCEEDED (ada/a/live PENDING)" in status_text(
        status, at(1), "", [*ended, live]
    )
