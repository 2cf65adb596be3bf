"""The command line before any cluster is reached: options, exit codes, and how quickly it is
there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iris.cli.main import cli, run
from iris.cli.registry import COMMANDS
from iris.client.connect.connection import cause_of
from iris.client.connect.identity import full_job_id
from iris.model.errors import InvalidValue

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "local.yaml")
#: A locale without letters but ASCII, as in a cron job, which Python does not replace by UTF-8.
C_LOCALE = "LC_ALL=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0"
SERVE = ["controller", "serve", "--name", "x", "--address", "x:1", "--store", "file:///x"]


@pytest.fixture(autouse=True)
def _nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)


def test_help_imports_neither_temporal_nor_pydantic() -> None:
    """They cost half a second of CPU, and help is asked for in a hurry."""
    script = """
import sys
from iris.cli.main import cli, run
code = run(["--help"])
heavy = {"temporalio", "pydantic", "psutil", "obstore", "asyncio", "rich", "stamina"}
heavy &= set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else code)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert all(f"  {command} " in ran.stdout for command in COMMANDS)


#: Modules that no command of these imports.
OF_HOSTS = {
    *("iris.activities.host.attempt.attempt", "iris.workflows.jobs.job"),
    *("iris.workflows.slices.slice", "psutil", "rich", "uv"),
}
CONFIGURATION = {"iris.config.schema", "yaml"}
#: The state of the scheduler, and Temporal's workers.
OF_THE_CONTROL_PLANE = {
    *("iris.messages.scheduler", "iris.messages.autoscaler", "iris.scheduling.ledger.ledger"),
    *("temporalio.worker", "iris.model.slice.scale_groups", "iris.model.slice.status"),
    *("iris.client.connect.tunnel", "iris.processes.children"),
}
#: The state of a job, the use of its tasks, and what only a job with files needs.
OF_ONE_JOB = {
    *("iris.messages.job", "iris.model.job.gangs", "iris.model.host.hosts"),
    *("iris.model.job.endpoints", "iris.client.jobs.usage"),
    *("obstore", "pathspec", "tarfile", "tomllib", "iris.client.workspace.pack"),
}
#: What only a followed job or a batch needs.
OF_FOLLOWING = {"iris.cli.show.follow", "iris.cli.submit.batch", "iris.client.logs.stored"}
OF_SUBMISSIONS = {
    *("iris.client.jobs.submit.start", "iris.model.slice.scaling"),
    *("iris.client.jobs.task_reports", "iris.model.job.requests"),
}


#: What each command must not import, by the modules that it imports. The first one imports least.
#: `submit` imports its second module when it has connected.
NOT_IMPORTED: dict[tuple[str, ...], set[str]] = {
    ("cli.jobs.commands",): CONFIGURATION | OF_THE_CONTROL_PLANE | OF_ONE_JOB | OF_SUBMISSIONS,
    ("cli.submit.command", "client.jobs.submit.start"): (
        CONFIGURATION | OF_THE_CONTROL_PLANE | OF_ONE_JOB | OF_FOLLOWING
    ),
    ("cli.jobs.logs",): CONFIGURATION | OF_THE_CONTROL_PLANE,
    ("cli.jobs.exec",): CONFIGURATION,
    ("cli.jobs.fetch",): CONFIGURATION,
    ("cli.fleet.slice",): set(),
    ("cli.fleet.host",): CONFIGURATION,
    ("cli.cluster.commands",): {"iris.worker_agents.local.cluster", "asyncssh"},
}
#: What no agent imports before an attempt is given up: the messages of the scheduler and what they
#: hold, and workflows.
NOT_IMPORTED_BY_AGENTS = {
    *("iris.messages.scheduler", "iris.scheduling.ledger.codec"),
    *("iris.workflows.slices.slice", "iris.workflows.policies"),
}


def test_a_command_imports_no_code_of_hosts_and_workflows() -> None:
    """They took a third of the time of every command. The client names the workflows that it
    starts. An agent imports the code of hosts only.
    """
    none = {modules: OF_HOSTS | others for modules, others in NOT_IMPORTED.items()}
    none["cli.processes.agent",] = NOT_IMPORTED_BY_AGENTS
    script = f"""
import importlib, os, sys, traceback
import iris.cli.jobs.commands  # once; a fork for each command imports the rest
for modules, others in {none}.items():
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    try:
        for module in modules:
            importlib.import_module("iris." + module)
        if heavy := others & set(sys.modules):
            print(modules, heavy, file=sys.stderr, flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.long
def test_a_command_looks_for_no_plugins_of_pydantic(tmp_path: Path) -> None:
    """The search reads the metadata of every package, and a machine for training has hundreds of
    them.
    """
    (tmp_path / "spy.py").write_text(f"""
open({str(tmp_path / "loaded")!r}, "w")

class plugin:
    new_schema_validator = staticmethod(lambda *_: (None, None, None))
""")
    metadata = tmp_path / "spy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: spy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pydantic]\nspy = spy:plugin\n")
    env = {key: value for key, value in os.environ.items() if key != "PYDANTIC_DISABLE_PLUGINS"} | {
        "PYTHONPATH": str(tmp_path)
    }
    found = []
    for arguments in (
        ["-c", "import iris.client.jobs.rows"],
        ["-m", "iris.cli.main", "cluster", "list"],
    ):
        subprocess.run(
            [sys.executable, *arguments], env=env, capture_output=True, check=True, timeout=120
        )
        found.append((tmp_path / "loaded").exists())
        (tmp_path / "loaded").unlink(missing_ok=True)
    assert found == [True, False]


@pytest.mark.long
def test_a_command_does_not_import_the_reader_of_package_metadata() -> None:
    """Pydantic imports it with a parser of e-mail to look for plugins, also where plugins are
    switched off.
    """
    commands = ["cluster", "list"], ["version"]  # which reads its own metadata
    ran = [
        subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "iris.cli.main", *command],
            capture_output=True,
            text=True,
        )
        for command in commands
    ]
    assert ["importlib.metadata" in each.stderr for each in ran] == [False, True]
    assert "pydantic" in ran[0].stderr


def test_an_answer_that_comes_after_a_command_s_work_is_no_traceback() -> None:
    """The store and Temporal's client answer from threads: an answer may come when the loop of a
    cancelled request has ended.
    """
    script = """
import asyncio, sys, threading
import iris.cli.jobs.commands
from iris.cli import main

async def work(*_):
    threading.Thread(target=answer, args=[asyncio.get_running_loop()]).start()

def answer(loop):
    over.wait()
    loop.call_soon_threadsafe(print)
    answered.set()

def ask(*_, **__):
    asyncio.run(work())
    over.set()
    assert answered.wait(10)

over, answered = threading.Event(), threading.Event()
iris.cli.jobs.commands.jobs.callback = ask
sys.argv = ["iris", "jobs"]
main.main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_table_that_is_piped_needs_no_rich() -> None:
    """Scripts read plain text, and rich takes a third of a second to import."""
    script = """
import sys
from iris.cli.main import cli, run
code = run(["cluster", "config", "check", sys.argv[1]])
sys.exit("imported rich" if "rich" in sys.modules else code)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, EXAMPLE], capture_output=True, text=True, timeout=30
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "EACH HOST OFFERS" in ran.stdout


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_of_the_help_exists_and_explains_itself(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of commands is written by hand; this keeps it true."""
    assert run([command, "--help"]) == 0
    assert f"Usage: iris {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "group", ["cluster", "autoscaler", "group", "slice", "host", "debug", "controller"]
)
def test_a_group_shows_the_whole_first_sentence_of_each_command(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence that ends in dots at the width of the terminal hides what the command does."""
    assert run([group, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.split("Commands:")[1]


def test_an_address_without_a_service_is_named_with_the_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the types of the SDK's layers."""
    assert run(["--cluster", "localhost:1", "jobs"]) == 4
    problem = "no Temporal service answers at localhost:1 (namespace default): connection refused"
    assert capsys.readouterr().err == f"error: {problem}\n"


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
        (
            ["submit", "--tpu", "v5litepod-17", "--", "true"],
            "tpu: 'v5litepod-17' is not a TPU variant; did you mean",
        ),
        (
            ["submit", "--tpu", "v5litepod-16,v6e-8", "--", "true"],
            "has alternatives of different shape: v5litepod-16 has 4",
        ),
        (["submit", "--tpu", "", "--", "true"], "tpu: '' is not a TPU variant"),
        (
            ["submit", "--slices", "0", "--tpu", "v5litepod-16", "--", "true"],
            "'--slices': 0 is not in the range x>=1",
        ),
        (
            ["submit", "--gpu", "H1000x8", "--", "true"],
            "gpu: 'H1000x8' has the unknown variant 'H1000'; did you mean H100",
        ),
        (
            ["submit", "--gpu", "H100x0", "--", "true"],
            "gpu: 'H100x0' gives H100 a count that is not from 1 to 9999",
        ),
        (
            ["submit", "--gpu", "A100x2,H100x4", "--", "true"],
            "has alternatives with different counts: 2 A100, 4 H100",
        ),
        (
            ["submit", "--gang-by", "!zone", "--", "true"],
            "gang-by: '!zone' is not a valid attribute key; use letters",
        ),
        (["submit", "--gang-by", "", "--", "true"], "gang-by: '' is not a valid attribute key"),
        (
            ["submit", "--constraint", "zone=a,b", "--", "true"],
            'for one of several values write "zone in (a,b)"',
        ),
        (
            ["submit", "--constraint", "driver > new", "--", "true"],
            "compares by > with new, which is not a number",
        ),
        (
            ["submit", "--constraint", "", "--", "true"],
            "constraint: '' is not a constraint; write it like",
        ),
        (
            ["submit", "--prefer", "zone ==", "--", "true"],
            "constraint: 'zone ==' is not a constraint",
        ),
        (
            ["submit", "--priority", "urgent", "--", "true"],
            "'urgent' is not one of 'production', 'interactive', 'batch'",
        ),
        (["submit", "--local", "--dry-run", "--", "true"], "--local ends with the job"),
        (["submit", "--cpus", "2", "--", "true"], "--cpus"),
        (["submit", "--local", "-d", "--", "true"], "--local ends with the job"),
        (["logs", "--tail", "-1", "train"], "--tail"),
        (["logs", "--attempt", "0", "train"], "--attempt"),
        (["wait"], "Missing argument 'JOB...'"),
        (["explain", "train:last"], "'train:last': write the number of a task after the colon"),
        (["explain", "train:"], "write the number of a task after the colon"),
        (["hold"], "Missing argument 'JOB...'"),
        (["release"], "Missing argument 'JOB...'"),
        (["priority", "train"], "'train' is not one of 'production', 'interactive', 'batch'"),
        (["priority", "batch"], "name at least one JOB to move to band batch"),
        (
            ["priority", "train", "urgent"],
            "'urgent' is not one of 'production', 'interactive', 'batch'",
        ),
        (["usage", "--trace", "-", "--by", "job"], "--by is for sums of use"),
        (["usage", "--trace", "-", "--json"], "--json is for sums of use"),
        (["usage", "--trace", "-", "--csv"], "--csv is for sums of use"),
        (["usage", "train", "--trace", "-"], "--trace is about the use of the cluster"),
        (["host", "cordon"], "Missing argument 'HOST...'"),
        (["host", "uncordon", "--reason", "x", "h"], "No such option '--reason'"),
        (["host", "drain"], "Missing argument 'HOST...'"),
        (["cluster", "resume", "--reason", "x"], "No such option '--reason'"),
        (["cluster", "start", "--local", "--patience", "long"], "'long' is not a duration"),
        (["cluster", "start", "--local", "--min-run-time", "-1s"], "'-1s' is not a duration"),
        (["cluster", "start"], "add --local"),
        (["cluster", "start", "--local", "--tpu", "v5litepod-17"], "did you mean v5litepod-1"),
        (
            ["cluster", "start", "--local", "--slices", "2"],
            "needs --tpu with the type of the slices",
        ),
        (
            ["cluster", "start", "--local", "--tpu", "v5litepod-256", "--slices", "8"],
            "the cluster would start 513 hosts; the limit for one machine is 500",
        ),
        (["cluster", "start", "--local", "--attribute", "plain"], "'plain' is not a pair"),
        (
            ["cluster", "start", "--local", "--config", "nowhere.yaml"],
            "'nowhere.yaml' does not exist",
        ),
        (
            ["cluster", "start", "--local", "--config", EXAMPLE, "--hosts", "2", "--cpu", "4"],
            "--hosts, --cpu cannot be used with --config",
        ),
        (["agent"], "add --join"),
        (["agent", "--key-file", EXAMPLE], "--key-file needs --slice"),
        (
            ["agent", "--join", "--slice", "s", "--key-file", EXAMPLE],
            "add --join on a machine that you add, or --slice and --key-file",
        ),
        (
            ["agent", "--slice", "s", "--key-file", EXAMPLE],
            "local.yaml contains no private key of a slice",
        ),
        (["agent", "--join", "--slice-size", "4"], "--slice-size needs --slice"),
        (["agent", "--join", "--fault", "fabric=("], "is not a regular expression"),
        (
            ["submit", "--cpu", "1", "--cpu", "2", "--", "true"],
            "--cpu was given 2 times; give it once",
        ),
        (["jobs", "--since", "1h", "--since", "2h"], "--since was given 2 times"),
        (
            ["submit", "--memory", "4", "--", "true"],
            "'4' has no unit, so it means bytes; add the unit, such as \"4g\"",
        ),
        (["sumbit", "--", "true"], "there is no command 'sumbit'; did you mean 'submit'?"),
        (["status", ""], "job: '' is not a valid name"),
        (["--cluster", "a b", "jobs"], "cluster: 'a b' is not a valid name"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_named_and_exits_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked of any cluster; standard output stays empty."""
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["submit", *options, "--", "true"]
            for options in ([], ["--dry-run"], ["--require-feasible"])
        ),
        ["jobs"],
        *(
            [command, "x"]
            for command in ("status", "logs", "wait", "cancel", "explain", "hold", "release")
        ),
        ["priority", "x", "batch"],
        *(["host", command, "x"] for command in ("cordon", "uncordon", "drain")),
        *(["cluster", command] for command in ("pause", "resume", "status")),
    ],
    ids=" ".join,
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


def test_options_behind_the_dashes_belong_to_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--json` and `--help` there are not Iris'."""
    assert run(["submit", "--", "true", "--json", "--help"]) == 4
    assert capsys.readouterr().err.startswith("error: no cluster")


def test_a_job_is_one_of_mine_or_somebodys() -> None:
    """NAME, USER/NAME or that of a job that belongs to another one, and nothing else."""
    assert full_job_id("train") == "ada/train"
    assert full_job_id("bob/train") == "bob/train"
    assert full_job_id("bob/train/eval") == "bob/train/eval"
    for wrong in ("", "/", "a/b/", "a//c", "a b", "../x", "train:"):
        with pytest.raises(InvalidValue):
            full_job_id(wrong)


@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        (
            "iris cluster list >&-",
            1,
            "error: standard output is closed; to discard it, use >/dev/null\n",
        ),
        (
            "iris cluster list > /dev/full",
            1,
            "error: the output cannot be written: No space left on device\n",
        ),
        (
            "iris --help > /dev/full",
            1,
            "error: the output cannot be written: No space left on device\n",
        ),
        ("iris cluster list <&- > /dev/null", 0, ""),
        (
            "iris submit --batch - <&-",
            4,
            (
                "error: no cluster: no local cluster runs, and neither --cluster nor IRIS_CLUSTER"
                " names one; start one with: iris cluster start --local -d\n"
            ),
        ),
        ("iris cluster list 2>&- > /dev/null", 0, ""),
        ("mkdir gone && cd gone && rmdir ../gone && iris cluster list > /dev/null", 0, ""),
        (
            "mkdir gone && cd gone && rmdir ../gone && IRIS_STATE_DIR=state iris jobs",
            1,
            "error: the current directory was deleted; change to another one\n",
        ),
        (
            "IRIS_STATE_DIR=/dev/null/state iris cluster start --local -d",
            1,
            (
                "error: /dev/null/state: Not a directory; to keep the state of Iris elsewhere, set"
                " IRIS_STATE_DIR\n"
            ),
        ),
        (
            "unset IRIS_STATE_DIR XDG_STATE_HOME; HOME=/proc iris cluster start --local -d",
            1,
            (
                "error: /proc/.local: No such file or directory; to keep the state of Iris"
                " elsewhere, set IRIS_STATE_DIR\n"
            ),
        ),
        ("unset IRIS_STATE_DIR XDG_STATE_HOME; HOME=/proc iris config > /dev/null", 0, ""),
        ("iris cluster config schema | head -0; exit ${PIPESTATUS[0]}", 0, ""),
        (f"IRIS_STATE_DIR=$PWD/✓ {C_LOCALE} iris config > /dev/null", 0, ""),
        ("IRIS_STATE_DIR=$PWD/✓ PYTHONIOENCODING=latin-1 iris config > /dev/null", 0, ""),
    ],
)
def test_a_stream_or_a_directory_that_cannot_be_used_is_one_line(
    tmp_path: Path, shell: str, code: int, said: str
) -> None:
    """Cron jobs and full disks meet this first. A traceback names no remedy."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "IRIS_STATE_DIR": str(tmp_path / "state")}
    ran = subprocess.run(
        ["bash", "-c", shell], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (code, said)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            (
                'Error(Transport, ConnectError("tcp", Os { code: 111, message: "Connection'
                ' refused" }))'
            ),
            "connection refused",
        ),
        (
            (
                'tonic::transport::Error(ConnectError("dns error", Custom { kind: Uncategorized,'
                ' error: "failed to lookup x" }))'
            ),
            "failed to lookup x",
        ),
        (
            (
                "Server connection error: tonic::transport::Error(Custom { error:"
                " InvalidMessage(InvalidContentType) })"
            ),
            "it does not speak TLS, which Temporal's variables or profile ask for",
        ),
        (
            "Failed client connect: tonic::transport::Error(Transport, Unknown)",
            "failed client connect",
        ),
        ("invalid target URL: empty host", "invalid target URL: empty host"),
    ],
)
def test_an_error_of_the_connection_has_no_types_of_the_sdk_s_layers(
    message: str, cause: str
) -> None:
    """A user can act on the system's message, and not on the Rust types around it."""
    assert cause_of(message) == cause


def test_jobs_are_also_reached_by_their_noun(capsys: pytest.CaptureFixture[str]) -> None:
    """`host list` and `slice show` exist, so `job list` and `job show` are tried."""
    for verb, words in {
        "list": "List jobs",
        "show": "Show JOB",
        "cancel": "Cancel each JOB",
        "logs": "Show the output",
    }.items():
        assert run(["job", verb, "--help"]) == 0
        assert words in capsys.readouterr().out
    assert run(["job", "lst"]) == 2
    assert "there is no command 'lst'; did you mean 'list'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        ([], "no cluster: no local cluster runs"),
        (["--cluster", "127.0.0.1:1"], "connection refused"),
    ],
)
def test_the_version_is_shown_also_if_no_cluster_answers(
    cluster: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who reports a fault gives it, and the reason why the cluster's parts are missing."""
    assert (
        run(["--version"]),
        run(["version", *cluster]),
        run(["version", "--json", *cluster]),
    ) == (0, 0, 0)
    short, client, not_asked, *rest = capsys.readouterr().out.splitlines()
    assert client.split() == ["client", short.removeprefix("iris, version ")]
    assert not_asked.startswith("not asked")
    assert reason in not_asked
    found = json.loads("\n".join(rest))
    assert (found["client"], found["server"], found["fits"]) == (client.split()[1], None, None)
    assert reason in found["not_asked"]


@pytest.mark.parametrize("alias", ["ps", "kill"])
def test_names_of_other_tools_are_known(alias: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fingers know them."""
    assert run([alias, "--help"]) == 0
    assert ("List jobs" if alias == "ps" else "Cancel each JOB") in capsys.readouterr().out


def test_a_connection_that_breaks_is_not_taken_for_a_reader_that_has_seen_enough(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both are a broken pipe. A start that ended silently with 0 had started nothing."""

    def breaks(*_: object, **__: object) -> None:
        raise BrokenPipeError("Channel not open for sending")

    monkeypatch.setattr(cli, "main", breaks)

    assert run(["cluster", "list"]) == 1
    assert "Channel not open for sending" in capfd.readouterr().err
