"""From the words of `iris submit` to the job that is asked for."""

import itertools
import os
import re
import sys
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from iris.cli.submit.command import submit
from iris.cli.submit.job_from_options import draft_of, plan_job
from iris.cli.submit.prepare import upload_workspace, with_files
from iris.client.build.files import JobFiles
from iris.client.build.parent import EnclosingJob
from iris.client.build.warnings import job_warnings
from iris.client.connect.clusters import ClusterRecord
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.projects import ProjectFiles
from iris.model.errors import InvalidValue, Rejected
from iris.model.host.constraints import TPU_NAME
from iris.model.host.idle_gpus import StopIdle
from iris.model.host.resources import Device, DeviceKind
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import Band, Coscheduling, JobSpec
from iris.model.units import GIB
from iris.storage.object_store import Store
from tests.builders import a_spec
from tests.screen import Screen


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_USER", "ada")


def params(*arguments: str, command: tuple[str, ...] = ("true",)) -> dict[str, Any]:
    """What click makes of `iris submit ARGUMENTS -- COMMAND`."""
    return submit.make_context("submit", [*arguments, "--", *command]).params


def job(
    *arguments: str, command: tuple[str, ...] = ("true",), shares_files: bool = False
) -> JobSpec:
    """The job of `iris submit ARGUMENTS -- COMMAND`."""
    return plan_job(params(*arguments, command=command), shares_files=shares_files).spec


def test_the_jobs_to_wait_for_arrive_in_the_job_with_how_they_have_to_end() -> None:
    """`--after` and `--after-ok` are the same, and both take several."""
    spec = job("--after", "a,bob/b", "--after-ok", "c#2", "--after-any", "d", "--after-fail", "e")

    assert [str(each) for each in spec.after] == [
        "ada/a to succeed", "bob/b to succeed", "ada/c#2 to succeed", "ada/d to end", "ada/e to fail"
    ]  # fmt: skip


def test_tags_and_the_note_arrive_in_the_job() -> None:
    """The last value of a key counts, as in the job file that a flag overrides."""
    spec = job("--tag", "sweep=lr", "--tag", "baseline", "--tag", "sweep=wd", "--note", "first try")
    assert (spec.tags, spec.note) == ({"sweep": "wd", "baseline": ""}, "first try")


def test_each_webhook_is_called_once() -> None:
    """An address that is given twice, as by a file and a flag of a script, is one call."""
    spec = job(
        "--notify",
        "https://chat.example/hook",
        "--notify",
        "https://log.example",
        "--notify",
        "https://chat.example/hook",
    )
    assert spec.notify == ("https://chat.example/hook", "https://log.example")


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("./tell-me.sh", "a command runs in your own shell: iris wait JOB; COMMAND"),
        ("ftp://chat.example/SECRET", "is not an HTTP address; write https://HOST/PATH"),
        ("https://ada:SECRET@chat.example", "put a token into the path or the query"),
    ],
)
def test_an_address_that_cannot_be_called_is_refused_without_its_secret(
    address: str, remedy: str
) -> None:
    """A message of the command line ends in logs of CI."""
    with pytest.raises(click.BadParameter, match=re.escape(remedy)) as refused:
        params("--notify", address)
    assert "SECRET" not in str(refused.value)


def test_every_option_arrives_in_the_job() -> None:
    """Nothing that a user says is dropped."""
    spec = job(
        *(
            "--pip",
            "numpy",
            "--pip",
            "jax[tpu]>=0.5",
            "--setup",
            "make data",
            "--setup",
            "ls",
            "--no-sync",
        ),
        *("--image", "python:3.11", "--port", "metrics", "--port", "rpc"),
        *(
            "-n",
            "train",
            "--cpu",
            "2.5",
            "--memory",
            "3g",
            "--disk",
            "4g",
            "--device",
            "gpu:H100:8",
            "--replicas",
            "3",
        ),
        *(
            "--env",
            "A=1",
            "--env",
            "A=2",
            "-e",
            "B=x=y",
            "--workdir",
            "/data",
            "--priority",
            "batch",
        ),
        *(
            "--secret",
            "HF_TOKEN",
            "--secret",
            "KEY=gcp:wandb",
            "--scheduling-timeout",
            "1m",
            "--timeout",
            "2h",
        ),
        *("--grace", "90s", "--stop-idle", "30m:10%"),
        *("--max-retries", "4", "--max-retries-preemption", "5", "--max-task-failures", "2"),
        command=("python", "train.py", "--lr", "0.1"),
    )
    assert (spec.id, spec.command) == ("ada/train", ("python", "train.py", "--lr", "0.1"))
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes, spec.resources.disk_bytes) == (
        2500,
        3 * GIB,
        4 * GIB,
    )
    assert spec.resources.device == Device(kind=DeviceKind.GPU, variant="H100", count=8)
    assert (spec.replicas, spec.coscheduling, spec.constraints) == (3, None, ())
    assert (spec.workdir, spec.env, spec.band) == ("/data", {"A": "2", "B": "x=y"}, Band.BATCH)
    assert spec.secrets == {"HF_TOKEN": "own:HF_TOKEN", "KEY": "gcp:wandb"}
    assert (spec.environment.pip, spec.environment.setup) == (
        ("numpy", "jax[tpu]>=0.5"),
        ("make data", "ls"),
    )
    assert (spec.environment.sync, spec.image, spec.ports) == (
        False,
        "python:3.11",
        ("metrics", "rpc"),
    )
    assert (spec.scheduling_timeout, spec.timeout) == (timedelta(minutes=1), timedelta(hours=2))
    assert spec.grace == timedelta(seconds=90)
    assert spec.stop_idle == StopIdle(after=timedelta(minutes=30), below=10.0)
    assert (spec.max_retries_failure, spec.max_retries_preemption, spec.max_task_failures) == (
        4,
        5,
        2,
    )


def test_a_job_of_which_nothing_is_said_is_one_interactive_task_that_is_not_tried_again() -> None:
    """The least that a command needs; a lost machine is forgiven a hundred times."""
    spec = job()
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes, spec.resources.device) == (
        1000,
        GIB,
        None,
    )
    assert (spec.replicas, spec.coscheduling, spec.constraints, spec.band) == (
        1,
        None,
        (),
        Band.INTERACTIVE,
    )
    assert (spec.max_retries_failure, spec.max_retries_preemption, spec.max_task_failures) == (
        0,
        100,
        0,
    )
    assert (spec.scheduling_timeout, spec.timeout) == (None, None)
    assert (spec.environment, spec.image, spec.ports, spec.bundle) == (
        EnvironmentSpec(),
        None,
        (),
        None,
    )


def by_slice(groups: int) -> Coscheduling:
    return Coscheduling(group_by=TPU_NAME, groups=groups)


#: Options, the device of each task, how many tasks, and how they go together.
DERIVED: list[tuple[str, str, int, Coscheduling | None]] = [
    # Slices of several hosts: a task on each, all at once, with all chips of the host.
    ("--tpu v5litepod-16", "tpu:v5litepod-16:4", 4, by_slice(1)),
    ("--tpu V5E-16", "tpu:v5litepod-16:4", 4, by_slice(1)),
    ("--tpu v5litepod-256", "tpu:v5litepod-256:4", 64, by_slice(1)),
    ("--tpu v4-16", "tpu:v4-16:4", 2, by_slice(1)),
    ("--tpu v5litepod-16 --slices 2", "tpu:v5litepod-16:4", 8, by_slice(2)),
    ("--tpu v5litepod-16 --replicas 4", "tpu:v5litepod-16:4", 4, by_slice(1)),
    ("--tpu v5litepod-16 --replicas 8", "tpu:v5litepod-16:4", 8, by_slice(2)),
    ("--tpu v5litepod-16 --slices 2 --replicas 8", "tpu:v5litepod-16:4", 8, by_slice(2)),
    ("--tpu v5litepod-16,v6e-16", "tpu:v5litepod-16,v6e-16:4", 4, by_slice(1)),
    # Slices of one host: tasks that go their own ways, unless several slices are wanted at once.
    ("--tpu v5litepod-8", "tpu:v5litepod-8:8", 1, None),
    ("--tpu v5litepod-8 --replicas 3", "tpu:v5litepod-8:8", 3, None),
    ("--tpu v5litepod-8 --slices 3", "tpu:v5litepod-8:8", 3, by_slice(3)),
    ("--tpu v6e-1", "tpu:v6e-1:1", 1, None),
    # GPUs: devices of each task; what goes together is said.
    ("--gpu H100x8", "gpu:H100:8", 1, None),
    ("--gpu 2 --replicas 3", "gpu:auto:2", 3, None),
    ("--gpu A100,H100x8", "gpu:A100,H100:8", 1, None),
    ("--gpu H100x8 --replicas 4 --gang-by zone", "gpu:H100:8", 4, Coscheduling(group_by="zone")),
    ("--device gpu:L4", "gpu:L4:1", 1, None),
    # None at all.
    ("--replicas 20", "cpu", 20, None),
    ("--replicas 4 --gang-by rack", "cpu", 4, Coscheduling(group_by="rack")),
    (
        "--replicas 4 --gang-by rack --tasks-per-host 2",
        "cpu",
        4,
        Coscheduling(group_by="rack", tasks_per_host=2),
    ),
    ("--device cpu", "cpu", 1, None),
]


@pytest.mark.parametrize(
    ("options", "device", "replicas", "together"), DERIVED, ids=lambda value: str(value)
)
def test_the_accelerator_says_how_many_tasks_there_are_and_which_go_together(
    options: str, device: str, replicas: int, together: Coscheduling | None
) -> None:
    """Nobody counts hosts and chips by hand."""
    spec = job(*options.split())
    assert (str(spec.resources.device or "cpu"), spec.replicas, spec.coscheduling) == (
        device,
        replicas,
        together,
    )


def test_constraints_preferences_and_the_short_forms_all_arrive() -> None:
    """Required ones and preferred ones, in whatever way they were said."""
    spec = job(
        *(
            "--constraint",
            "driver >= 550",
            "--constraint",
            "zone in (eu-a, b)",
            "--constraint",
            "nvlink exists",
        ),
        *(
            "--prefer",
            "rack = 4",
            "--region",
            "us",
            "--region",
            "eu",
            "--zone",
            "eu-a",
            "--zone",
            "us-b",
            "--no-preemptible",
        ),
    )
    found = {f"{'?' if each.preferred else ''}{each}" for each in spec.constraints}
    assert found == {
        "driver >= 550",
        "zone in (eu-a, b)",
        "nvlink exists",
        "?rack = 4",
        "region in (us, eu)",
        "zone in (eu-a, us-b)",
        "preemptible = false",
    }


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("--preemptible", "preemptible = true"),
        ("--region us", "region = us"),
        ("--constraint !spot", "spot absent"),
    ],
)
def test_a_short_form_is_the_constraint_that_it_stands_for(options: str, shown: str) -> None:
    """So that a refusal can name it in the words of `--constraint`."""
    (constraint,) = job(*options.split()).constraints
    assert (str(constraint), constraint.preferred) == (shown, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tpu v5litepod-16 --gpu 8", "--tpu and --gpu exclude each other"),
        ("--tpu v5litepod-16 --device gpu:H100", "--tpu and --device exclude each other"),
        ("--gpu 8 --device gpu:H100", "--gpu and --device exclude each other"),
        ("--slices 2", "needs --tpu with the type of the slices"),
        ("--slices 2 --gpu 8", "needs --tpu with the type of the slices"),
        ("--tpu v5litepod-16 --gang-by zone", "--gang-by and --tpu exclude each other"),
        ("--tpu v5litepod-16 --tasks-per-host 2", "--tasks-per-host and --tpu exclude each other"),
        ("--replicas 4 --tasks-per-host 2", "--tasks-per-host needs --gang-by"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(options: str, words: str) -> None:
    """One of them would have to be ignored, and nobody could know which."""
    with pytest.raises(click.UsageError, match=words):
        job(*options.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--replicas 3",
            (
                "replicas: '3' does not give one task to each host of a slice of 4 hosts; leave it out, and use"
                " --slices N"
            ),
        ),
        ("--replicas 0", "replicas: '0' is out of range; ask for 1 to 1,000 tasks"),
        ("--replicas -4", "replicas: '-4' is out of range; ask for 1 to 1,000 tasks"),
        (
            "--slices 2 --replicas 4",
            "replicas: '4' does not give one task to each host of 2 slices of 4 hosts; leave it out",
        ),
        ("--slices 251", "replicas: '1004' is out of range; ask for 1 to 1,000 tasks"),
    ],
)
def test_a_number_of_tasks_that_leaves_hosts_of_a_slice_idle_is_refused(
    options: str, said: str
) -> None:
    """With field, value and remedy: half a slice helps nobody."""
    with pytest.raises(Rejected) as refused:
        job("--tpu", "v5litepod-16", *options.split())
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--name", "name: '' is not a valid name"),
        ("--zone", "zone: '' names no zone"),
        ("--region", "region: '' names no region"),
    ],
)
def test_an_empty_word_is_not_taken_for_nothing(option: str, said: str) -> None:
    """`--zone "$ZONE"` with a variable that is not set must not run the job just anywhere."""
    with pytest.raises(Rejected) as refused:
        job(option, "")
    assert said in str(refused.value)


def test_a_job_without_a_name_gets_one_of_its_own() -> None:
    """Two submissions of one command are two jobs."""
    first, second = job(), job()
    assert first.name != second.name


def test_a_job_starts_in_the_present_directory_only_where_the_host_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fleet the submitter's directory means nothing."""
    monkeypatch.chdir(tmp_path)
    assert job(shares_files=True).workdir == str(tmp_path)
    assert job(shares_files=False).workdir is None
    assert job("--workdir", "/data", shares_files=True).workdir == "/data"


#: Options, whether the present directory is a project's, the workspace, and where the program
#: starts: among the files that go along, here, or there.
STARTS = [
    ("", True, "here", "files"),
    ("", False, "", "here"),
    ("--workspace {there}", False, "there", "files"),
    ("--workspace {there}", True, "there", "files"),
    ("--no-workspace", True, "", "here"),
    ("--no-workspace", False, "", "here"),
    ("--file {there}/x", True, "here", "files"),
    ("--file {there}/x", False, "", "files"),
    ("--no-workspace --file {there}/x", True, "", "files"),
    ("--workdir {there}", True, "", "there"),
    ("--workdir {there} --no-workspace", True, "", "there"),
    ("--image python:3.11", True, "here", "files"),
    ("--image python:3.11", False, "", "nowhere"),
    ("--image python:3.11 --workdir {there}", False, "", "there"),
]


@pytest.mark.parametrize(("options", "project", "workspace", "start"), STARTS)
def test_a_job_starts_among_its_files_and_without_any_where_it_was_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    project: bool,
    workspace: str,
    start: str,
) -> None:
    """From a project's directory its files go along without being asked; elsewhere a laptop's job
    starts where its user is, but not in a container, which does not have that directory.
    """
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir()
    (there / "x").touch()
    if project:
        (here / "pyproject.toml").touch()
    monkeypatch.chdir(here)
    arguments = options.format(there=there).split()
    where = {"here": (str(here), None), "there": (str(there), str(there))}.get(start, (None, None))
    assert (
        job(*arguments, shares_files=True).workdir,
        job(*arguments, shares_files=False).workdir,
    ) == where
    assert (
        draft_of(params(*arguments)).files.directory()
        == {"here": here, "there": there, "": None}[workspace]
    )


def test_a_job_from_a_member_of_a_uv_workspace_gets_all_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock and the packages beside it; the program starts in the member. `--workspace .` sends
    the member alone.
    """
    member = tmp_path / "apps" / "train"
    member.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["apps/*"]\n')
    (member / "pyproject.toml").write_text('[project]\nname = "train"\nversion = "1"\n')

    def where(*options: str) -> tuple[Path | None, str]:
        return (
            plan_job(params(*options), shares_files=False).files.directory,
            job(*options).environment.project,
        )

    monkeypatch.chdir(member)
    assert where() == (tmp_path, "apps/train")
    assert where("--workspace", ".") == (Path(), "")
    assert where("--no-workspace") == (None, "")
    monkeypatch.chdir(tmp_path)
    assert where("--workspace", ".", "--project", "apps/train") == (Path(), "apps/train")
    assert where("--project", "apps/train/") == (tmp_path, "apps/train")


def test_a_requirements_file_goes_along_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the workspace keeps its path, also if git ignores it; a host that has this machine's
    files needs no copy.
    """
    project, other = tmp_path / "project", tmp_path / "other"
    for directory in (project / "app", other):
        directory.mkdir(parents=True)
        (directory / "dev.txt").write_text("numpy\n")
    (project / "pyproject.toml").touch()

    def sent(
        *options: str, shares_files: bool = False
    ) -> tuple[tuple[str, ...], list[str | None], str | None]:
        spec, files, _ = plan_job(params(*options), shares_files=shares_files)
        return spec.environment.pip, [extra.dest for extra in files.extra], spec.workdir

    monkeypatch.chdir(project)
    assert sent("--pip", "-r", "app/dev.txt", "--pip", "six") == (
        ("-r app/dev.txt", "six"),
        [None],
        None,
    )
    assert sent("--pip=-r", "app/dev.txt", "--project", "app") == (("-r dev.txt",), [None], None)
    copy = ".iris-requirements/0/dev.txt"
    assert sent("--pip", f"-r {other}/dev.txt", "--project", "app") == (
        (f"-r ../{copy}",),
        [copy],
        None,
    )
    monkeypatch.chdir(other)
    assert sent("--pip", "-r", "dev.txt") == ((f"-r {copy}",), [copy], None)
    assert sent("--pip", "-r", "dev.txt", shares_files=True) == (
        (f"-r {other}/dev.txt",),
        [],
        str(other),
    )


@pytest.mark.parametrize("text", ["-r ../lib/more.txt", "-e .", "-c constraints.txt"])
def test_a_requirements_file_from_elsewhere_brings_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The host would not have them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.txt").write_text(f"{text}\n")
    with pytest.raises(Rejected, match="is not in the workspace; send both with --workspace DIR"):
        job("--pip", "-r", "dev.txt")
    with pytest.raises(Rejected, match="there is no file 'nothing'"):
        job("--pip", "-r", "nothing")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--workspace . --no-workspace", "--workspace and --no-workspace exclude each other"),
        ("--workspace . --workdir /data", "--workdir and --workspace exclude each other"),
        ("--file x --workdir /data", "--workdir and --file exclude each other"),
        ("--extra tpu --no-workspace", "--extra needs a project in the workspace"),
        ("--extra tpu --workdir /data", "--extra needs a project in the workspace"),
        ("--workspace nowhere", "nowhere"),
        ("--workspace x", "is a file"),
        ("--file nothing", "'nothing' is not a file"),
        ("--file x:../y", "is not a path in a workspace"),
        ("--project app", "--project needs a workspace"),
        ("--pip -r x --workdir /data", "--workdir and --pip -r exclude each other"),
    ],
)
def test_words_about_files_that_make_no_sense_are_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, words: str
) -> None:
    """Before a cluster is asked or a file is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()
    with pytest.raises(click.UsageError, match=words):
        job(*options.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pip", "--index-url=x"), "pip: '--index-url=x' is not a requirement"),
        (("--setup", " "), "setup: ' ' is not a command"),
        (("--extra", "a b", "--file", __file__), "extra: 'a b' is not a valid name of an extra"),
        (
            ("--extra", "tpu", "--no-sync", "--file", __file__),
            "extra: 'tpu' can be installed only with the project",
        ),
        (("--image", ""), "image: '' is not a valid name of a container image"),
        (("--port", "80"), "port: '80' is not a valid name of a port"),
        (
            ("--port", "a-b", "--port", "a_b"),
            "port: 'a-b, a_b' would give two ports the same environment variable",
        ),
    ],
)
def test_an_environment_that_cannot_be_is_refused(options: tuple[str, ...], said: str) -> None:
    """In the same words as everything else, and before anything is packed."""
    with pytest.raises(Rejected) as refused:
        job(*options)
    assert said in str(refused.value)


def test_a_variable_that_looks_like_a_secret_is_warned_of_without_its_value() -> None:
    """Histories keep it, and everybody who reaches the cluster reads them. A secret by reference
    and an empty one are fine.
    """
    given = (
        "-e",
        "WANDB_API_KEY=hunter2",
        "-e",
        "LR=0.1",
        "-e",
        "HF_TOKEN=",
        "--secret",
        "PASSWORD=file:/etc/password",
    )

    (warning,) = job_warnings(job(*given))

    assert warning.startswith("WANDB_API_KEY looks like a secret")
    assert warning.endswith("use --secret WANDB_API_KEY")
    assert "hunter2" not in warning


@pytest.mark.parametrize("option", ["HF_TOKEN=hunter2hunter2", "A B", "=env:X"])
def test_a_secret_that_is_no_reference_is_refused_and_not_shown(option: str) -> None:
    """Who writes the value itself there must not find it in a log of their terminal."""
    with pytest.raises(click.UsageError) as refused:
        job("--secret", option)

    assert "hunter2" not in refused.value.format_message()
    assert "write NAME, NAME=env:VARIABLE" in refused.value.format_message()


async def test_what_was_sent_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, without a bar where nobody looks; in silence for scripts."""
    store = Store((tmp_path / "store").as_uri(), create=True)
    root = tmp_path / "project"
    root.mkdir()
    (root / "main.py").write_text("print(1)")
    files = JobFiles(ProjectFiles(root, ""), is_named=True)
    bundle = await upload_workspace(store, files, quiet=False)
    assert capsys.readouterr() == ("", f"sends {root}: 1 file\nworkspace: 2 KiB, uploaded\n")
    (root / "main.py").touch()
    assert await upload_workspace(store, files, quiet=False) == bundle
    assert capsys.readouterr() == (
        "",
        f"sends {root}: 1 file\nworkspace: 2 KiB, unchanged, nothing sent\n",
    )
    (root / "more.py").write_text("print(2)")
    assert await upload_workspace(store, files, quiet=True) != bundle
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "sends the project at {here}: 2 files; --no-workspace sends none"),
        (
            ("--file", "{here}/../more"),
            "sends the project at {here}: 3 files; --no-workspace sends none",
        ),
        (("--workspace", "."), "sends {here}: 2 files"),
        (("--no-workspace", "--file", "main.py"), "sends 1 file"),
        (("--no-workspace",), None),
    ],
)
async def test_the_first_line_says_what_is_sent_and_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str | None,
) -> None:
    """A first submit typed in a large checkout sends all of it: whoever did not mean that must
    learn it, and how to avoid it.
    """
    here = tmp_path / "a {project}"
    here.mkdir()
    (here / "main.py").write_text("print(1)")
    (here / "requirements.txt").touch()
    (tmp_path / "more").touch()
    monkeypatch.chdir(here)
    record = ClusterRecord(name="c", address="x", store=(tmp_path / "store").as_uri())
    Store(record.store, create=True)
    given = params(*(option.replace("{here}", str(here)) for option in options))
    await with_files(record, [plan_job(given, shares_files=False)], quiet=False)

    first, *_ = [*capsys.readouterr().err.splitlines(), None]
    assert first == (None if said is None else said.replace("{here}", str(here)))


async def test_a_terminal_sees_how_much_has_been_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar with sizes, which the line at the end replaces."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/noise").write_bytes(os.urandom(12 * 1024 * 1024))
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("CI", raising=False)
        store = Store((tmp_path / "store").as_uri(), create=True)
        files = JobFiles(extra=(ExtraFile(tmp_path / "project/noise"),))
        await upload_workspace(store, files, quiet=False)
    shown = b""
    with suppress(OSError):  # which is how its other side says that it is closed
        while more := os.read(ours, 100_000):
            shown += more
    os.close(ours)
    assert re.search(r"workspace +.*━*─+.* of 12 MiB", shown.decode()), shown
    screen = Screen()
    screen.feed(shown.decode())
    assert [line.partition(" in ")[0] for line in screen.lines] == [
        "sends 1 file",
        "workspace: 12 MiB, uploaded",
    ]


def test_the_help_has_every_option_under_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    """Forty options in one list are not read by anybody."""
    with pytest.raises(SystemExit):
        submit.main(["--help"])
    said = capsys.readouterr().out
    for heading in (
        "Each task:",
        "Files and packages:",
        "Where and when:",
        "When it ends:",
        "This command:",
    ):
        assert f"\n{heading}\n" in said
    for option in submit.params:
        assert isinstance(option, click.Argument) or f" {option.opts[0]}" in said


def test_all_that_is_wrong_with_a_job_is_said_at_once() -> None:
    """In sentences, without a word of the library that checks."""
    wrong: tuple[Any, ...] = (
        "-n",
        "a b",
        "--replicas",
        "0",
        "--env",
        "IRIS_X=1",
        "--max-retries",
        "-1",
    )
    with pytest.raises(Rejected) as refused:
        job(*wrong)
    said = str(refused.value)
    for words in (
        "name: 'a b' is not a valid name",
        "replicas: '0' is out of range",
        "env: 'IRIS_X' is set by Iris itself",
        "retries: '-1' is negative; give 0 or more",
    ):
        assert words in said
    assert "pydantic" not in said
    assert "validation error" not in said.lower()


@pytest.mark.parametrize(
    ("first", "second"),
    [(("--array", "0-9"), ("--array", "10-19")), (("--array", "a.csv"), ("--array", "b.csv"))],
    ids=["indices", "rows"],
)
def test_arrays_of_other_tasks_are_other_work_to_the_retry_of_a_parent(
    first: tuple[str, ...], second: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the results of one array for those of the other, which has the same command and
    as many tasks.
    """
    monkeypatch.chdir(tmp_path)
    for name, rate in (("a.csv", "0.1"), ("b.csv", "0.2")):
        (tmp_path / name).write_text(f"lr\n{rate}\n")

    def work(*arguments: str) -> str:
        parent = EnclosingJob(
            a_spec(),
            "ada/top",
            "r",
            "r",
            0,
            1,
            1,
            None,
            registers=True,
            submitted=defaultdict(lambda: itertools.count(1)),
        )
        child = plan_job(params(*arguments), shares_files=False, within=parent).spec.parent
        assert child is not None
        return child.work

    assert work(*first) == work(*first)
    assert work(*first) != work(*second)


async def test_demands_that_exclude_each_other_are_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    """The workspace can have gigabytes."""
    store, root = tmp_path / "store", tmp_path / "project"
    root.mkdir()
    options = params(
        "--workspace", str(root), "--constraint", "zone = a", "--constraint", "zone = b"
    )
    record = ClusterRecord(name="trial", address="127.0.0.1:1", store=store.as_uri())

    with pytest.raises(InvalidValue, match="exclude each other"):
        await with_files(record, [plan_job(options, shares_files=False)], quiet=True)
    assert not store.exists()
