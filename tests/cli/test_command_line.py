"""The command line before any cluster is reached: options, exit codes, and how quickly it is there."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iris.cli.main import COMMANDS, run
from iris.cli.submit import make_spec
from iris.client.identity import full_job_id
from iris.errors import InvalidValue, Rejected
from iris.resources import Device, DeviceKind
from iris.units import GIB


@pytest.fixture(autouse=True)
def _nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)


def test_help_imports_neither_temporal_nor_pydantic() -> None:
    """They cost half a second of CPU, and help is asked for in a hurry."""
    script = """
import sys
from iris.cli.main import run
code = run(["--help"])
heavy = {"temporalio", "pydantic", "psutil", "obstore", "asyncio"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else code)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert all(f"  {command} " in ran.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_of_the_help_exists_and_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of commands is written by hand; this keeps it true."""
    assert run([command, "--help"]) == 0
    assert f"Usage: iris {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit"], "Missing argument 'COMMAND...'"),
        (["submit", "--"], "Missing argument 'COMMAND...'"),
        (["submit", "--memory", "8x", "--", "true"], "memory: '8x' is not a size"),
        (["submit", "--disk", "much", "--", "true"], "disk: 'much' is not a size"),
        (["submit", "--cpu", "-1", "--", "true"], "cpu: '-1' is out of range"),
        (["submit", "--cpu", "many", "--", "true"], "cpu: 'many' is not a number of cores"),
        (["submit", "--device", "quantum", "--", "true"], "has the unknown kind 'quantum'"),
        (["submit", "--device", "gpu:H100:0", "--", "true"], "has the count '0'"),
        (["submit", "--device", "cpu:x", "--", "true"], "gives a variant or count to the kind cpu"),
        (["submit", "--env", "PLAIN", "--", "true"], "'PLAIN' is not a pair"),
        (["submit", "--env", "=x", "--", "true"], "'=x' is not a pair"),
        (["submit", "--env", "A=\udcff", "--", "true"], "is not UTF-8"),
        (["submit", "--", "echo", "\udcff"], "is not UTF-8"),
        (["submit", "--timeout", "soon", "--", "true"], "'soon' is not a duration"),
        (["submit", "--scheduling-timeout", "-1s", "--", "true"], "'-1s' is not a duration"),
        (["submit", "--replicas", "two", "--", "true"], "'two' is not a valid integer"),
        (["submit", "--cpus", "2", "--", "true"], "--cpus"),
        (["submit", "--local", "-d", "--", "true"], "--local ends with the job"),
        (["logs", "--tail", "-1", "train"], "--tail"),
        (["logs", "--attempt", "0", "train"], "--attempt"),
        (["wait"], "Missing argument 'JOB...'"),
        (["cluster", "start"], "say --local"),
        (["cluster", "start", "--local", "--tpu", "v5litepod-17"], "did you mean v5litepod-1"),
        (["cluster", "start", "--local", "--slices", "2"], "say with --tpu of what kind"),
        (["cluster", "start", "--local", "--tpu", "v5litepod-256", "--slices", "8"], "that makes 513 hosts; 500 is the most"),
        (["cluster", "start", "--local", "--attribute", "plain"], "'plain' is not a pair"),
        (["agent"], "say --join"),
        (["agent", "--join", "--slice-size", "4"], "say with --slice which"),
        (["agent", "--join", "--fault", "fabric=("], "is not a regular expression"),
        (["sumbit", "--", "true"], "there is no command 'sumbit'; did you mean 'submit'?"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_named_and_exits_with_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked of any cluster; standard output stays empty."""
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments",
    [["submit", "--", "true"], ["jobs"], ["status", "x"], ["logs", "x"], ["wait", "x"], ["cancel", "x"], ["explain", "x"]],
    ids=lambda arguments: arguments[0],
)
def test_without_a_cluster_commands_exit_with_4_and_say_how_to_start_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has just installed Iris sees this first."""
    assert run(arguments) == 4
    assert "start one with: iris cluster start --local -d" in capsys.readouterr().err


def test_an_error_is_json_when_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Kind, message and exit code, on standard error."""
    assert run(["jobs", "--json"]) == 4
    said = capsys.readouterr()
    error = json.loads(said.err)
    assert set(error) == {"error", "message", "exit_code"}
    assert (error["error"], error["exit_code"], said.out) == ("Unreachable", 4, "")


def test_options_behind_the_dashes_belong_to_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` and `--help` there are not Iris'."""
    assert run(["submit", "--", "true", "--json", "--help"]) == 4
    assert capsys.readouterr().err.startswith("error: no cluster")


def test_a_job_is_one_of_mine_or_somebodys() -> None:
    """NAME or USER/NAME, and nothing else."""
    assert full_job_id("train") == "ada/train"
    assert full_job_id("bob/train") == "bob/train"
    for wrong in ("", "/", "a/b/c", "a b", "../x", "train:"):
        with pytest.raises(InvalidValue):
            full_job_id(wrong)


def options(**changes: Any) -> dict[str, Any]:
    """The options of `iris submit -- true`."""
    return {
        "name": None,
        "cpu": 1000,
        "memory": GIB,
        "disk": 0,
        "device": "cpu",
        "env": (),
        "workdir": None,
        "replicas": 1,
        "scheduling_timeout": None,
        "timeout": None,
        "max_retries": 0,
        "command": ("true",),
    } | changes


def test_every_option_arrives_in_the_job() -> None:
    """Nothing that a user says is dropped."""
    gpu = Device(kind=DeviceKind.GPU, variant="H100", count=8)
    spec = make_spec(
        options(
            name="train",
            cpu=2500,
            memory=3 * GIB,
            disk=4 * GIB,
            device=gpu,
            env=(("A", "1"), ("A", "2"), ("B", "x=y")),
            workdir="/data",
            replicas=3,
            scheduling_timeout=timedelta(minutes=1),
            timeout=timedelta(hours=2),
            max_retries=4,
            command=("python", "train.py", "--lr", "0.1"),
        ),
        shares_files=False,
    )
    assert (spec.id, spec.command) == ("ada/train", ("python", "train.py", "--lr", "0.1"))
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes, spec.resources.disk_bytes) == (2500, 3 * GIB, 4 * GIB)
    assert (spec.resources.device, spec.replicas, spec.workdir) == (gpu, 3, "/data")
    assert (spec.scheduling_timeout, spec.timeout) == (timedelta(minutes=1), timedelta(hours=2))
    assert (spec.env, spec.max_retries_failure) == ({"A": "2", "B": "x=y"}, 4)


def test_a_job_without_a_name_gets_one_of_its_own() -> None:
    """Two submissions of one command are two jobs."""
    first, second = (make_spec(options(), shares_files=False).name for _ in range(2))
    assert first != second


def test_a_job_starts_in_the_present_directory_only_where_the_host_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fleet the submitter's directory means nothing."""
    monkeypatch.chdir(tmp_path)
    assert make_spec(options(), shares_files=True).workdir == str(tmp_path)
    assert make_spec(options(), shares_files=False).workdir is None
    assert make_spec(options(workdir="/data"), shares_files=True).workdir == "/data"


def test_all_that_is_wrong_with_a_job_is_said_at_once() -> None:
    """In sentences, without a word of the library that checks."""
    with pytest.raises(Rejected) as refused:
        make_spec(options(name="a b", replicas=0, env=(("IRIS_X", "1"),)), shares_files=False)
    said = str(refused.value)
    for words in ("name: 'a b' is not a name", "replicas: '0' is out of range", "env: 'IRIS_X' is set by Iris itself"):
        assert words in said
    assert "pydantic" not in said
    assert "validation error" not in said.lower()
