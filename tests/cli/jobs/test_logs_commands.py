"""`iris logs` and `iris fetch` where only the store is left: of a cluster that has been stopped."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from iris.activities.host.files.outputs import keep
from iris.cli.main import run
from iris.cli.show.log_printers import LinePrinter, RawPrinter
from iris.client.connect.clusters import ClusterRecord, write_record
from iris.client.logs.selection import milliseconds_since
from iris.client.logs.stored import TaskLine
from iris.model import store_paths
from iris.model.checkpoint.saves import Save, SavedItem, save_name
from iris.model.errors import InvalidValue
from iris.storage.files import CannotWrite
from iris.storage.log_format import LogLine, Stream, encode
from iris.storage.object_store import Store
from tests.small_disk import small_disk

RUN = "0193b0a0-1111"
#: 2026-01-31T08:00:00Z
EIGHT = int(datetime(2026, 1, 31, 8, tzinfo=UTC).timestamp() * 1000)
OUT, ERR, BUILD = Stream.STDOUT, Stream.STDERR, Stream.BUILD


IRIS = (sys.executable, "-m", "iris.cli.main")
Files = Callable[..., Path]


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Stopped:
    """A cluster that does not run, with what its store has."""

    def __init__(self, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.store = Store((directory / "store").as_uri(), create=True)
        self._capfd = capfd
        self._chunks: dict[str, int] = {}
        write_record(ClusterRecord(name="room", address="127.0.0.1:1", store=self.store.url))

    def has(
        self,
        job: str,
        *pieces: tuple[int, Stream, bytes, bool],
        task: int = 0,
        attempt: int = 1,
        run: str = RUN,
    ) -> None:
        """A chunk of a job's log: seconds after eight, stream, bytes, whether the line goes on."""
        self.has_chunk(store_paths.attempt_logs(f"ada/{job}", run, task, attempt), *pieces)

    def has_chunk(self, prefix: str, *pieces: tuple[int, Stream, bytes, bool]) -> None:
        chunk = b"".join(
            encode(EIGHT + at * 1000, stream, [(data, goes_on)])
            for at, stream, data, goes_on in pieces
        )
        sequence = self._chunks[prefix] = self._chunks.get(prefix, -1) + 1
        asyncio.run(self.store.put(store_paths.log_chunk(prefix, sequence), chunk))

    def has_outputs(self, job: str, directory: Path, task: int = 0, attempt: int = 1) -> None:
        asyncio.run(
            keep(
                self.store, directory, store_paths.attempt_outputs(f"ada/{job}", RUN, task, attempt)
            )
        )

    def has_checkpoint(
        self, job: str, task: int, *, attempt: int, number: int, **contents: str
    ) -> None:
        folder = store_paths.task_checkpoints(f"ada/{job}", RUN, task)
        items = tuple(
            SavedItem(path=path, size=len(text), stored_as=f"{folder}/{attempt}/files/{path}")
            for path, text in contents.items()
        )
        save = Save(attempt=attempt, number=number, items=items)
        for path, text in contents.items():
            asyncio.run(self.store.put(f"{folder}/{attempt}/files/{path}", text.encode()))
        asyncio.run(
            self.store.put(save_name(folder, attempt, number), save.model_dump_json().encode())
        )

    def iris(self, *arguments: str) -> Said:
        self._capfd.readouterr()
        code = run(list(arguments))
        return Said(code, *self._capfd.readouterr())


@pytest.fixture
def room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Stopped:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    return Stopped(tmp_path, capfd)


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Path]:
    """Makes a directory with these files."""

    def make(name: str, **contents: str) -> Path:
        for file, text in contents.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file).write_text(text)
        return tmp_path / name

    return make


# -- logs
# --------------------------------------------------------------------------------------------------


def test_the_logs_of_a_stopped_cluster_are_shown_and_why_from_the_store(room: Stopped) -> None:
    """A job's output outlives everything; of several runs of a name it is the latest one's."""
    room.has("train", (0, OUT, b"old", False), run="0193a000-0000")
    room.has("train", (0, OUT, b"hello", False), (1, ERR, b"warning", False))

    assert room.iris("logs", "train") == (
        0,
        "hello\nwarning\n",
        "cluster room does not run; showing the files in its store\n",
    )
    assert room.iris("--cluster", "room", "logs", "ada/train:0", "-f").out == "hello\nwarning\n"


def test_what_the_store_does_not_have_is_not_found(room: Stopped) -> None:
    """With a sentence that says where was looked; a cluster that never was is another matter."""
    room.has("train", (0, OUT, b"hello", False))

    missing = room.iris("logs", "other")
    assert (missing.code, missing.out) == (3, "")
    assert "cluster room does not run, and its store file://" in missing.err
    assert "has no files of job ada/other" in missing.err
    assert "has no task 1; its tasks are 0 to 0" in room.iris("logs", "train:1").err
    assert "no output of attempt 2 of ada/train" in room.iris("logs", "train", "--attempt", "2").err
    assert room.iris("--cluster", "elsewhere", "logs", "train").code == 4
    assert room.iris("--cluster", "127.0.0.1:1", "logs", "train").code == 4


def test_streams_attempts_and_times_narrow_what_is_shown(room: Stopped) -> None:
    """Each alone and together; the set-up's output has a switch of its own."""
    room.has(
        "train",
        (0, BUILD, b"installing", False),
        (1, OUT, b"one", False),
        (2, ERR, b"warning", False),
    )
    room.has("train", (60, BUILD, b"installing", False), (61, OUT, b"two", False), attempt=2)

    assert room.iris("logs", "train", "--build").out == "installing\ninstalling\n"
    assert room.iris("logs", "train", "--stream", "stdout").out == "one\ntwo\n"
    assert (
        room.iris("logs", "train", "--stream", "stdout", "--stream", "stderr", "--attempt", "1").out
        == "one\nwarning\n"
    )
    assert room.iris("logs", "train", "--since", "2026-01-31T08:00:30Z").out == "installing\ntwo\n"
    assert (
        room.iris(
            "logs",
            "train",
            "--since",
            "2026-01-31T09:00:02+01:00",
            "--tail",
            "9",
            "--stream",
            "stderr",
        ).out
        == "warning\n"
    )
    assert room.iris("logs", "train", "--since", "10m").out == ""
    assert room.iris("logs", "train", "--tail", "1").out == "two\n"


def test_another_attempt_is_announced_beside_the_output(room: Stopped) -> None:
    """On standard error, so that what the programs printed is all there is on standard output;
    unless one was asked for.
    """
    room.has("train", (0, OUT, b"one, and it was killed in the middle of", True))
    room.has("train", (5, OUT, b"two", False), attempt=2)

    shown = room.iris("logs", "train")
    assert shown.out == "one, and it was killed in the middle of\ntwo\n"
    assert shown.err.endswith("-- attempt 2 --\n")
    assert "--" not in room.iris("logs", "train", "--attempt", "2").err


def test_lines_of_several_tasks_have_their_number_and_may_have_their_time(room: Stopped) -> None:
    """In the order of time; pieces of a line are put together, and its time is that of its end,
    when it is printed.
    """
    room.has("train", (0, OUT, b"from ", True), (3, OUT, b"zero", False))
    room.has("train", (1, OUT, b"from one", False), task=1)

    assert room.iris("logs", "train", "--all-tasks").out == "[1] from one\n[0] from zero\n"
    assert (
        room.iris("logs", "train", "--timestamps").out
        == "[1] 2026-01-31T08:00:01.000Z from one\n[0] 2026-01-31T08:00:03.000Z from zero\n"
    )
    assert (
        room.iris("logs", "train:0", "--timestamps").out == "2026-01-31T08:00:03.000Z from zero\n"
    )


def test_the_times_of_lines_never_go_back(room: Stopped) -> None:
    """Lines of two streams that were stored in pieces, and some that are not complete yet: who
    sorts by time changes nothing.
    """
    room.has(
        "train", (0, OUT, b"loading ", True), (1, ERR, b"warning", False), (2, ERR, b"retry ", True)
    )
    room.has("train", (3, OUT, b"done", False), (4, OUT, b"step ", True), (5, ERR, b"in 5s ", True))

    lines = room.iris("logs", "train", "--timestamps").out.splitlines()

    assert [line[17:] for line in lines] == [
        *("01.000Z warning", "03.000Z loading done"),
        *("04.000Z step ", "05.000Z retry in 5s "),
    ]


def test_a_progress_bar_leaves_prefixes_alone(room: Stopped) -> None:
    """What returns to the start of its line would write over the task's number: only its last state
    is shown.
    """
    room.has(
        "train",
        (0, ERR, b"10%\r", True),
        (1, ERR, b"50%\r", True),
        (2, ERR, b"100%", False),
        (3, OUT, b"dos\r", False),
    )
    room.has("train", (4, OUT, b"other", False), task=1)

    assert room.iris("logs", "train").out == "[0] 100%\n[0] dos\n[1] other\n"
    assert room.iris("logs", "train:0").out == "10%\r50%\r100%\ndos\r\n"


def test_json_has_an_object_for_each_piece(room: Stopped) -> None:
    """Programs get what the terminal shows, and what it does not; a character that was cut in two
    is whole.
    """
    cut = "é".encode()
    room.has(
        "train",
        (0, BUILD, b"\xff", False),
        (1, OUT, b"caf" + cut[:1], True),
        (2, OUT, cut[1:], False),
        attempt=3,
    )

    lines = [json.loads(line) for line in room.iris("logs", "train", "--json").out.splitlines()]

    assert lines[0] == {
        "time": "2026-01-31T08:00:00.000Z",
        "task": 0,
        "attempt": 3,
        "stream": "build",
        "text": "�",
        "goes_on": False,
    }
    assert [(line["text"], line["goes_on"]) for line in lines[1:]] == [("caf", True), ("é", False)]


def test_raw_output_is_the_bytes_of_one_task(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """An archive that a program writes to its standard output is damaged by a replaced byte."""
    for line in (LogLine(0, OUT, b"\xff\x00\x1b[2J", False), LogLine(1, OUT, b"\xc3", True)):
        RawPrinter().print([TaskLine(0, 1, line)])
    assert capfdbinary.readouterr().out == b"\xff\x00\x1b[2J\n\xc3"


@pytest.mark.long
def test_raw_output_has_no_newline_that_its_program_did_not_write(room: Stopped) -> None:
    """An archive on standard output has a checksum. What the host says is beside it, as the
    attempts are.
    """
    prefix = store_paths.attempt_logs("ada/train", RUN, 0, 1)
    chunk = encode(1, BUILD, [(b"[iris] environment ready", False)]) + encode(
        2, OUT, [(b"\r", False), (b"\0\xff", False)]
    )
    chunk += encode(3, ERR, [(b"oops", True)]) + encode(4, OUT, [(b"end", False)], cut=True)
    asyncio.run(room.store.put(store_paths.log_chunk(prefix, 0), chunk))

    for options, out, err in (
        (["--raw"], b"\r\n\0\xff\noopsend", True),
        (["--raw", "--stream", "stdout"], b"\r\n\0\xff\nend", False),
        (["--raw", "--build"], b"[iris] environment ready\n", False),
        (["--stream", "stderr", "--stream", "stdout"], b"\r\n\0\xff\noopsend\n", False),
    ):
        ran = subprocess.run([*IRIS, "logs", "train", *options], capture_output=True)
        assert (ran.stdout, b"[iris] environment ready" in ran.stderr) == (out, err)


@pytest.mark.parametrize(
    "options", [[], ["--raw"], ["--json"], ["--tail", "5"], ["--timestamps"], ["-f"]]
)
def test_a_full_disk_of_the_reader_is_no_fault_of_the_store(
    room: Stopped, options: list[str]
) -> None:
    """Who redirects the output has to free space here, and not to look at the store."""
    room.has("train", (0, OUT, b"hello", False))
    command = [*IRIS, "logs", "train", *options]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)

    assert "the output cannot be written: No space left on device" in ran.stderr.splitlines()[-1]
    assert "store" not in ran.stderr.splitlines()[-1]
    assert ran.returncode == 1


def test_a_store_without_output_of_a_job_says_so(room: Stopped, files: Callable[..., Path]) -> None:
    """Nothing at all could be a fault of the log, too."""
    room.has_outputs("quiet", files("made", result="x"))

    said = room.iris("logs", "quiet")
    assert (said.code, said.out) == (0, "")
    assert said.err.endswith("the store has no output of ada/quiet\n")


def test_raw_output_of_several_tasks_is_refused(room: Stopped) -> None:
    """Their bytes would be mixed without a mark."""
    room.has("many", (0, OUT, b"one", False))
    room.has("many", (0, OUT, b"two", False), task=1)
    refused = room.iris("logs", "many", "--raw")
    assert refused.code == 2
    assert "--raw needs one task: ada/many has 2; name one with ada/many:NUMBER" in refused.err
    assert room.iris("logs", "many:1", "--raw").out == "two\n"


def test_the_exit_code_of_a_job_that_no_cluster_knows_is_unknown(room: Stopped) -> None:
    """A script must not take the end of an old log for a success."""
    room.has("train", (0, OUT, b"hello", False))
    said = room.iris("logs", "-f", "--exit-code", "train")
    assert (said.code, said.out) == (4, "hello\n")
    assert "so the exit code of ada/train is unknown" in said.err


def test_the_log_of_an_agent_needs_no_job(room: Stopped) -> None:
    """Why did that host go away? Its agent's own words are in the store, life after life."""
    prefix = store_paths.agent_logs("room", "host-1")
    room.has_chunk(f"{prefix}/20260131T080000.000000Z-7", (0, ERR, b"taking work", False))
    room.has_chunk(f"{prefix}/20260131T090000.000000Z-8", (3600, ERR, b"taking work again", False))

    assert room.iris("logs", "--agent", "host-1").out == "taking work\ntaking work again\n"
    assert room.iris("logs", "--agent", "host-1", "--tail", "1").out == "taking work again\n"
    (line,) = room.iris(
        "logs", "--agent", "host-1", "--since", "2026-01-31T08:30:00Z", "--json"
    ).out.splitlines()
    assert json.loads(line)["host"] == "host-1"
    missing = room.iris("logs", "--agent", "host-2")
    assert (missing.code, "there are logs of: host-1" in missing.err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either JOB or --agent HOST"),
        (["train", "--agent", "host-1"], "give either JOB or --agent HOST"),
        (
            ["--agent", "host-1", "--build"],
            "--agent excludes --task, --all-tasks, --attempt, --stream and --build",
        ),
        (["train:1", "--all-tasks"], "--all-tasks and task 1 exclude each other"),
        (["train", "--since", "yesterday"], "since: 'yesterday' is neither a duration nor a time"),
        (["train", "--stream", "stdin"], "'stdin' is not one of"),
        (["train", "--raw", "--json"], "--raw excludes --json, --timestamps and --agent"),
        (["train", "--exit-code"], "--exit-code needs -f and JOB"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    room: Stopped, arguments: list[str], words: str
) -> None:
    """Before anything is asked of anybody."""
    said = room.iris("logs", *arguments)
    assert said.code == 2
    assert words in said.err


def test_a_task_cannot_be_named_in_two_ways_at_once(room: Stopped) -> None:
    """One of them would have to be ignored."""
    assert "differs from --task 2" in room.iris("logs", "train:1", "--task", "2").err


@pytest.mark.parametrize("text", ["", "10 minutes ago", "2026-13-01", "-10m", "1e400"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    """With what could be written instead."""
    with pytest.raises(InvalidValue, match="write a duration, such as 10m, or a time"):
        milliseconds_since(text)


def test_a_program_gives_a_time_as_python_has_it() -> None:
    """A number is a duration in seconds, as everywhere in the Python API."""
    assert (
        milliseconds_since(datetime(2026, 1, 31, 8, tzinfo=UTC))
        == milliseconds_since("2026-01-31T08:00:00Z")
        == EIGHT
    )
    ago = [
        milliseconds_since("10m"),
        milliseconds_since(600),
        milliseconds_since(timedelta(minutes=10)),
    ]
    assert max(ago) - min(ago) < 60_000


def test_a_terminal_is_spared_what_would_break_it(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Binary output switches character sets and hides the cursor; colours and progress bars stay. A
    file gets every byte.
    """
    line = LogLine(
        0,
        OUT,
        b"\x1b[32mok\x1b[0m \x1b[2K\x1b[1Aup\r \x0e\x1bc\x1b(0\x1b[?25l\x00\x07 \xc2\x9b \xff"
        b" tab\t",
        False,
    )
    for terminal, shown in (
        (True, "\x1b[32mok\x1b[0m ��up\r ��c�(0��� � � tab\t\n".encode()),
        (False, line.data + b"\n"),
    ):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        LinePrinter(prefixed=False).print([TaskLine(0, 1, line)])
        assert capfdbinary.readouterr().out == shown


def test_the_bytes_of_a_log_are_not_for_a_terminal(
    room: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, they could not be unchanged: what would control the terminal is replaced."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    said = room.iris("logs", "train", "--raw")
    assert said.code == 2
    assert "a terminal gets the log without" in said.err


# -- fetch
# --------------------------------------------------------------------------------------------------


def test_the_outputs_of_a_job_of_one_task_are_fetched_into_a_folder_of_its_name(
    room: Stopped, files: Files, tmp_path: Path
) -> None:
    """And a second time nothing has to be written."""
    room.has_outputs("train", files("left", weights="12345", notes="it works"))

    said = room.iris("fetch", "train")

    assert (said.code, said.out) == (0, "")
    assert {path.name: path.read_text() for path in (tmp_path / "train-outputs").iterdir()} == {
        "weights": "12345",
        "notes": "it works",
    }
    assert "5 B  train-outputs/weights" in said.err
    assert said.err.endswith("2 files, 13 B, in train-outputs\n")
    assert room.iris("fetch", "ada/train").err.endswith("in train-outputs; 2 existed already\n")


def test_each_task_has_a_folder_unless_one_was_asked_for(
    room: Stopped, files: Files, tmp_path: Path
) -> None:
    """Tasks leave files of the same name; of a task that was tried again the latest attempt's that
    left any count.
    """
    room.has("train", (0, OUT, b"attempt 3 left nothing", False), task=1, attempt=3)
    room.has_outputs("train", files("zero", rank="0"))
    room.has_outputs("train", files("one-first", rank="1, first", more="x"), task=1, attempt=1)
    room.has_outputs("train", files("one", rank="1"), task=1, attempt=2)

    room.iris("fetch", "train", "-o", "all")
    room.iris("fetch", "train:1", "-o", "one-only", "--attempt", "1")

    assert {
        str(path.relative_to(tmp_path / "all")): path.read_text()
        for path in (tmp_path / "all").rglob("rank")
    } == {
        "0/rank": "0",
        "1/rank": "1",
    }
    assert (tmp_path / "one-only" / "rank").read_text() == "1, first"


def test_outputs_are_listed_for_people_and_for_programs(
    room: Stopped, files: Files, tmp_path: Path
) -> None:
    """Before gigabytes are fetched."""
    room.has_outputs("train", files("left", weights="12345"))
    (tmp_path / "left" / "odd\nname").touch()
    room.has_outputs("train", tmp_path / "left")

    assert room.iris("fetch", "train", "--list").out == "   0  0 B  odd�name\n   0  5 B  weights\n"
    assert json.loads(room.iris("fetch", "train", "--list", "--json").out)[1] == {
        "task": 0,
        "attempt": 1,
        "path": "weights",
        "size_bytes": 5,
    }
    assert not (tmp_path / "train-outputs").exists()
    fetched = json.loads(room.iris("fetch", "train", "--json").out)
    assert [(each["to"], each["written"]) for each in fetched] == [
        ("train-outputs/odd\nname", True),
        ("train-outputs/weights", True),
    ]


def test_a_job_without_outputs_says_when_there_would_be_some(room: Stopped) -> None:
    """It may run still, or have written elsewhere."""
    room.has("train", (0, OUT, b"hello", False))

    said = room.iris("fetch", "train", "-o", "empty")

    assert said.code == 3
    assert "files in $IRIS_OUTPUT_DIR are stored when an attempt ends" in said.err
    assert not Path("empty").exists()


def test_the_checkpoints_of_all_tasks_are_fetched_as_they_were_saved_last(
    room: Stopped, tmp_path: Path
) -> None:
    """The latest attempt counts, also if its number of saves is smaller."""
    room.has("train", (0, OUT, b"said", False))
    room.has_checkpoint("train", 0, attempt=1, number=12, state="old")
    room.has_checkpoint("train", 0, attempt=2, number=3, state="new")
    room.has_checkpoint("train", 1, attempt=1, number=1, state="of the other task")

    assert room.iris("fetch", "train", "--checkpoint").err.endswith(
        "2 files, 20 B, in train-checkpoint\n"
    )
    assert (tmp_path / "train-checkpoint" / "0" / "state").read_text() == "new"
    assert (tmp_path / "train-checkpoint" / "1" / "state").read_text() == "of the other task"
    assert room.iris("fetch", "train:1", "--checkpoint", "--list").out == "   1  17 B  state\n"


def test_a_job_without_a_checkpoint_is_told_where_it_would_write_one(room: Stopped) -> None:
    """And an attempt has no checkpoint of its own to ask for."""
    room.has("train", (0, OUT, b"said", False))

    said = room.iris("fetch", "train", "--checkpoint")
    assert (said.code, said.out) == (3, "")
    assert (
        "the store has no checkpoint of train: files in $IRIS_CHECKPOINT_DIR are saved some seconds"
        " after" in said.err
    )
    assert room.iris("fetch", "train", "--checkpoint", "--attempt", "1").code == 2


# -- where files are written ---------------------------------------------------------------------


def test_a_fetch_to_a_full_disk_names_the_directory_and_not_the_store(
    room: Stopped, files: Files, tmp_path: Path
) -> None:
    """The store has everything; a file is whole or not there."""
    room.has_outputs("train", files("made", small="x", large="x" * 3_000_000))
    with small_disk(tmp_path / "small", 1_000) as disk:
        said = room.iris("fetch", "train", "-o", str(disk / "into"))
        left = [path.name for path in (disk / "into").iterdir()]

    assert said.code == 1
    problem = (
        f"{disk / 'into'} cannot be written: No space left on device; free disk space there, or use"
        " another directory"
    )
    assert said.err.splitlines()[-1] == f"error: {problem}"
    assert left in ([], ["small"])


def test_a_fetch_into_a_directory_that_cannot_be_made_names_it(
    room: Stopped, files: Files, tmp_path: Path
) -> None:
    """A file is in its place, which has nothing to do with the store."""
    room.has_outputs("train", files("made", small="x"))
    (tmp_path / "there").write_text("a file")

    said = room.iris("fetch", "train", "-o", str(tmp_path / "there/into"))
    assert said.code == 1
    assert (
        f"error: {tmp_path / 'there/into'} cannot be written: Not a directory; check that you may"
        " write there" in said.err
    )


def test_a_fetch_goes_on_when_its_progress_has_no_reader(
    room: Stopped, files: Files, tmp_path: Path
) -> None:
    """`iris fetch train 2>&1 | head -1` once left the other files out, and ended with 0."""
    room.has_outputs("train", files("made", **{f"file{number}": "x" for number in range(50)}))
    command = [*IRIS, "fetch", "train", "-o", "into"]
    fetching = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path)
    assert fetching.stderr is not None
    with fetching:
        fetching.stderr.close()
        fetching.wait(60)

    assert len(list((tmp_path / "into").iterdir())) == 50


def test_a_full_disk_of_the_state_directory_is_named(
    room: Stopped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for the output's."""
    with small_disk(tmp_path / "small", 400) as disk:
        monkeypatch.setenv("IRIS_STATE_DIR", str(disk))
        write_record(ClusterRecord(name="room", address="127.0.0.1:1", store=room.store.url))
        with pytest.raises(OSError, match="No space left"), (disk / "filler").open("wb") as filler:
            filler.write(bytes(1_000_000))
        with pytest.raises(CannotWrite) as refused:
            write_record(
                ClusterRecord(name="room", address="127.0.0.1:1" * 1000, store=room.store.url)
            )

    assert refused.value.filename == str(disk / "clusters/room/cluster.json")
