"""Logs: complete, in order, once each, whatever the bytes; while the job runs and after it has
ended.
"""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long


def test_output_that_is_no_text_arrives_with_all_its_bytes(cluster: Cluster) -> None:
    """What is not UTF-8 is neither dropped nor replaced where no terminal shows it."""
    ran = cluster.iris("submit", "--", "printf", r"before\n\377\376\033[2J\nafter")
    assert ran.raw_out == b"before\n\xff\xfe\x1b[2J\nafter\n"


def test_a_last_line_without_its_newline_is_not_lost(cluster: Cluster) -> None:
    """Neither while following nor afterwards, also when it is all there is."""
    assert (
        cluster.iris("submit", "-n", "unterminated", "--", "printf", "one\ntwo").out == "one\ntwo\n"
    )
    assert cluster.logs("unterminated") == ["one", "two"]
    assert cluster.iris("submit", "--replicas", "2", "--", "printf", "end").out.splitlines() in (
        ["[0] end", "[1] end"],
        ["[1] end", "[0] end"],
    )


def test_a_line_longer_than_a_chunk_arrives_whole(cluster: Cluster) -> None:
    """Also where letters of several bytes lie across the cuts."""
    line = "a" + "é" * 300_000
    program = ["python3", "-X", "utf8", "-c", "print('a' + 'é' * 300_000)"]
    assert cluster.iris("submit", "-n", "long-line", "--", *program).out == line + "\n"
    assert cluster.logs("long-line", "--tail", "1") == [line]


def test_following_from_the_middle_loses_and_repeats_no_line(cluster: Cluster) -> None:
    """Three followers, one from the start and two who come while lines are written, end with the
    job and have the same lines.
    """
    program = """
import pathlib, time
for i in range(600):
    print(f"line {i:04}")
    if i % 200 == 100:
        pathlib.Path(f"middle.{i}").touch()
    if i % 3 == 0:
        time.sleep(0.01)
print("last words", end="")
"""
    first = cluster.begin("submit", "-n", "counted", "--", "python3", "-c", program)
    cluster.there_is("middle.100")
    second = cluster.begin("logs", "-f", "counted")
    cluster.there_is("middle.300")
    third = cluster.begin("logs", "-f", "counted:0")
    expected = [*(f"line {i:04}" for i in range(600)), "last words"]
    for follower in (first, second, third):
        assert follower.ends().out.splitlines() == expected
    assert cluster.logs("counted", "-f") == expected


def test_the_tail_of_a_log_goes_on_behind_itself_when_it_is_followed(cluster: Cluster) -> None:
    """`--tail 2 -f` begins with the two last lines there are and shows every line after them
    once.
    """
    command = f"seq 1 50; touch tail.written; {until('tail.go')}; seq 51 60"
    cluster.submit("tailed", "--", "sh", "-c", command)
    cluster.there_is("tail.written")
    eventually(lambda: cluster.logs("tailed", "--tail", "1") == ["50"])
    following = cluster.begin("logs", "tailed", "--tail", "2", "-f")
    eventually(lambda: following.out == "49\n50\n")
    cluster.file("tail.go").touch()
    assert following.ends().out.split() == [str(number) for number in range(49, 61)]
    assert cluster.logs("tailed", "--tail", "3") == ["58", "59", "60"]
    assert cluster.logs("tailed", "--tail", "0") == []


def test_lines_of_several_tasks_carry_the_number_of_their_task(cluster: Cluster) -> None:
    """Unless one task was asked for, as `--task N` or `JOB:N`."""
    ran = cluster.iris(
        "submit",
        "-n",
        "several",
        "--replicas",
        "3",
        "--",
        "sh",
        "-c",
        "echo one; echo I am $IRIS_TASK_INDEX",
    )
    expected = sorted(
        [f"[{index}] one" for index in range(3)] + [f"[{index}] I am {index}" for index in range(3)]
    )
    assert sorted(ran.out.splitlines()) == expected
    assert sorted(cluster.logs("several")) == expected
    assert cluster.logs("several", "--task", "1") == ["one", "I am 1"]
    assert cluster.logs(f"{USER}/several:2") == ["one", "I am 2"]
    assert "0 to 2" in cluster.iris("logs", "several:3", code=3).err


def test_a_job_that_has_not_run_has_no_lines_yet(cluster: Cluster) -> None:
    """Not an error; and a follower who comes that early learns what the job waits for, sees
    everything, and gets its end.
    """
    cluster.submit("early", "--cpu", "4", "--", "sh", "-c", until("early.go"))
    cluster.submit("later", "--cpu", "4", "--", "sh", "-c", "echo at last; exit 3")
    empty = cluster.iris("logs", "later")
    assert empty.out == ""
    assert f"{USER}/later has not run yet" in empty.err
    following, checking = (
        cluster.begin("logs", "-f", "later"),
        cluster.begin("logs", "-f", "--exit-code", "later"),
    )
    eventually(lambda: f"{USER}/later is PENDING: " in following.err)
    cluster.file("early.go").touch()
    assert following.ends().out == "at last\n"
    checked = checking.ends(125)
    assert checked.out == "at last\n"
    assert "code 3" in checked.err


def test_a_job_that_never_ran_says_so_and_how_it_ended(cluster: Cluster) -> None:
    """An empty answer could be a fault of the log, too; who follows gets the sentence as well."""
    cluster.submit("never", "--cpu", "100", "--", "true")
    following = cluster.begin("logs", "-f", "never")
    cluster.iris("cancel", "never")
    cluster.iris("wait", "never", code=126)

    for ran in (cluster.iris("logs", "never"), following.ends()):
        assert ran.out == ""
        assert f"{USER}/never never ran" in ran.err
        assert "KILLED: " in ran.err


def test_raw_output_is_the_output_byte_for_byte(cluster: Cluster) -> None:
    """Whatever it is, in whatever pieces it was written, and with its last line as it ended."""
    program = (
        "import os, sys, time\nfor part in (bytes(range(256)), b'x' * 200_000, b'\\r\\r\\n',"
        " b'cut', b' here\\n\\xc3', b'\\0no end'):\n    os.write(1, part); os.write(2, b'noise');"
        " time.sleep(0.4)\n"
    )
    cluster.iris("submit", "-n", "raw", "--", "python3", "-c", program)
    parts = (bytes(range(256)), b"x" * 200_000, b"\r\r\n", b"cut", b" here\n\xc3", b"\0no end")

    assert cluster.iris("logs", "raw", "--raw", "--stream", "stdout").raw_out == b"".join(parts)
    assert cluster.iris("logs", "raw", "--raw", "--stream", "stderr").raw_out == b"noise" * 6


def test_a_hundred_megabytes_pass_and_the_history_stays_small(cluster: Cluster) -> None:
    """Every byte arrives; Temporal's history of the job has as few events as that of a silent
    one.
    """
    program = (
        "import sys; [sys.stdout.write(''.join(f'{n:0399}\\n' for n in range(k, k + 1000))) for k"
        " in range(0, 250_000, 1000)]"
    )
    big = cluster.submit("big", "--", "python3", "-c", program)["workflow_id"]
    cluster.iris("wait", "big")
    output = cluster.iris("logs", "big").raw_out
    digest = hashlib.sha256()
    for number in range(250_000):
        digest.update(b"%0399d\n" % number)
    assert len(output) == 100_000_000
    assert hashlib.sha256(output).digest() == digest.digest()
    history = cluster.temporal("workflow", "describe", "-w", big)["workflowExecutionInfo"]
    assert int(history["historyLength"]) <= 30
    assert int(history["historySizeBytes"]) < 32 * 1024
    assert cluster.logs("big", "--tail", "1") == ["0" * 393 + "249999"]


def test_a_reader_that_has_seen_enough_is_no_error(cluster: Cluster) -> None:
    """`iris logs … | head -1`."""
    cluster.iris("submit", "-n", "enough", "--", "seq", "1", "200000")
    command = [sys.executable, "-m", "iris.cli.main", "logs", f"{USER}/enough"]
    reading = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "IRIS_STATE_DIR": str(cluster.home)},
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    with reading:
        assert reading.stdout.readline() == b"1\n"
        reading.stdout.close()
        assert (reading.wait(120), reading.stderr.read()) == (0, b"")


def test_who_follows_is_led_from_one_attempt_into_the_next(cluster: Cluster) -> None:
    """The next attempt's lines follow by themselves, and a word beside the output tells where they
    begin.
    """
    command = (
        f"echo attempt $IRIS_ATTEMPT; touch again.$IRIS_ATTEMPT; {until('again.go')}; test"
        " $IRIS_ATTEMPT = 2"
    )
    cluster.submit("again", "--max-retries", "1", "--", "sh", "-c", command)
    cluster.there_is("again.1")
    following = cluster.begin("logs", "-f", "again")
    eventually(lambda: following.out == "attempt 1\n")
    cluster.file("again.go").touch()
    ran = following.ends()
    assert ran.out == "attempt 1\nattempt 2\n"
    # And perhaps that the job is PENDING between them.
    assert "-- attempt 2 --" in ran.err.splitlines()
    assert cluster.logs("again", "--attempt", "1") == ["attempt 1"]
    assert "attempt 3" in cluster.iris("logs", "again", "--attempt", "3", code=3).err


def test_lines_tell_when_they_were_written_and_old_ones_can_be_left_out(cluster: Cluster) -> None:
    """By the times that `--timestamps` shows; and programs get them as JSON."""
    command = "echo early; sleep 1.5; echo late >&2"
    cluster.iris("submit", "-n", "timed", "--", "sh", "-c", command)
    lines = [json.loads(line) for line in cluster.logs("timed", "--json")]
    assert [(line["stream"], line["text"]) for line in lines if line["stream"] != "build"] == [
        ("stdout", "early"),
        ("stderr", "late"),
    ]
    late = next(line["time"] for line in lines if line["stream"] == "stderr")
    assert cluster.logs(
        "timed", "--since", late, "--timestamps", "--stream", "stdout", "--stream", "stderr"
    ) == [f"{late} late"]
    assert cluster.logs("timed", "--since", "1h", "--stream", "stdout") == ["early"]


def test_the_logs_of_a_cluster_that_has_been_stopped_can_be_read() -> None:
    """Before it is started again, and afterwards; the latest run of a name is the one that is
    meant.
    """
    with a_cluster("--cpu", "1") as stopped:
        for run in ("first", "second"):
            stopped.iris("submit", "-n", "train", "--", "echo", run)
        stopped.stop()
        ran = stopped.iris("logs", "train")
        assert ran.out == "second\n"
        assert "cluster local does not run" in ran.err
        assert stopped.iris("logs", "-f", "train").out == "second\n"
        assert stopped.iris("logs", "other", code=3).out == ""
        stopped.start()
        assert stopped.logs("train") == ["second"]


def test_what_a_program_leaves_in_its_output_directory_is_fetched(cluster: Cluster) -> None:
    """Of each task into a folder of its own, also of one that failed: what it had written by then
    may be what explains it.
    """
    command = (
        'mkdir "$IRIS_OUTPUT_DIR/deep"; echo $IRIS_TASK_INDEX > "$IRIS_OUTPUT_DIR/deep/a b.txt";'
        " test $IRIS_TASK_INDEX = 0"
    )
    cluster.iris("submit", "-n", "leaves", "--replicas", "2", "--", "sh", "-c", command, code=125)
    assert cluster.iris("fetch", "leaves").err.endswith("2 files, 4 B, in leaves-outputs\n")
    for task in (0, 1):
        assert cluster.file(f"leaves-outputs/{task}/deep/a b.txt").read_text() == f"{task}\n"
    cluster.iris("submit", "-n", "leaves-nothing", "--", "true")
    assert "leaves-nothing" in cluster.iris("fetch", "leaves-nothing", code=3).err


def test_an_agent_tells_what_it_does_in_a_log_of_its_own(cluster: Cluster) -> None:
    """Which is in the store, so that it can be read when the host is gone."""
    host = cluster.only_host()
    eventually(lambda: any("takes work" in line for line in cluster.logs("--agent", host)))
    assert host in cluster.iris("logs", "--agent", "nobody", code=3).err
