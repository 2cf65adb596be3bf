"""Job files: from YAML to the jobs of `iris submit -f`, and from a command line to YAML."""

import json
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from iris.cli.main import run
from iris.cli.submit.command import submit
from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.read_file import JobDocument, job_options, keys_given, overridden, read_jobs
from iris.cli.submit.write_file import dump_jobs, job_schema
from iris.config import ClusterConfig
from iris.model.errors import InvalidJob
from iris.model.host.resources import Device, DeviceKind
from iris.model.job.spec import Band, JobSpec
from iris.model.units import GIB

ROOT = Path(__file__).parent.parent.parent.parent
SCHEMAS = ROOT / "docs/schemas"
TRAIN = """\
name: train
cpu: 0.5
memory: 3g
env: {LR: 0.10, MODE: fast, EMPTY: ""}
region: [eu, us]
tpu: v5litepod-16
slices: 2
no_workspace: true
command: [python, train.py, --lr, 0.10]
"""


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_USER", "ada")


def documents(text: str, *arguments: str, **variables: str) -> list[JobDocument]:
    """The jobs of a file, as the options of the command line change them."""
    ctx = submit.make_context("submit", list(arguments))
    return [
        overridden(each, keys_given(ctx))
        for each in read_jobs(text.encode(), "job.yaml", variables)
    ]


def job(text: str, *arguments: str, **variables: str) -> JobSpec:
    """The only job of a file."""
    (document,) = documents(text, *arguments, **variables)
    return plan_job(job_options(document), shares_files=False).spec


def problems(text: str, **variables: str) -> list[str]:
    """What is wrong with a file."""
    with pytest.raises(InvalidJob) as refused:
        [job_options(document) for document in documents(text, **variables)]
    return str(refused.value).splitlines()


def test_the_keys_of_a_file_are_the_options_of_submit() -> None:
    """Who knows the command knows the file: there is no second language to learn."""
    spec = job(TRAIN)
    assert (spec.id, spec.command, spec.replicas) == (
        "ada/train",
        ("python", "train.py", "--lr", "0.10"),
        8,
    )
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes) == (500, 3 * GIB)
    assert spec.env == {
        "LR": "0.10",
        "MODE": "fast",
        "EMPTY": "",
    }, "a number keeps the form in which it is written"
    assert [str(constraint) for constraint in spec.constraints][-1] == "region in (eu, us)"


def test_tags_are_a_mapping_or_texts_and_flags_add_to_them() -> None:
    """The tags of a file say what all its runs are, those of the command line what this one is."""
    assert job("tag: {sweep: lr, base: ''}", "--tag", "sweep=wd", "--", "true").tags == {
        "sweep": "wd",
        "base": "",
    }
    assert job("tag: [sweep=lr, base]", "--tag", "run=2", "--", "true").tags == {
        "sweep": "lr",
        "base": "",
        "run": "2",
    }
    assert job("tag: base", "--", "true").tags == {"base": ""}


def test_webhooks_are_one_or_several_and_flags_add_to_them() -> None:
    """The team's channel is in the file; one's own is added on the command line."""
    assert job("notify: https://a.example/x", "--", "true").notify == ("https://a.example/x",)
    both = "notify: [https://a.example/x, https://b.example/y]"
    assert job(both, "--", "true").notify == ("https://a.example/x", "https://b.example/y")
    added = job(both, "--notify", "https://mine.example", "--", "true").notify
    assert added == ("https://a.example/x", "https://b.example/y", "https://mine.example")
    assert "is not the address of a webhook" in problems("notify: mail me\ncommand: [true]")[1]


def test_a_command_that_is_a_text_is_a_script_whose_first_failure_ends_it() -> None:
    """A step that fails in the middle must not be hidden by the success of the last one."""
    assert job("command: |\n  make data\n  python train.py ${STEP}\n").command == (
        "sh",
        "-ec",
        "make data\npython train.py ${STEP}\n",
    )


def test_options_of_the_command_line_override_the_file() -> None:
    """One file serves many runs: each changes what is its own."""
    spec = job(
        TRAIN,
        "--cpu",
        "2",
        "-e",
        "LR=1",
        "-e",
        "NEW=x",
        "--region",
        "asia",
        "--priority",
        "batch",
        "--",
        "true",
    )
    assert (spec.resources.cpu_millis, spec.band, spec.command) == (2000, Band.BATCH, ("true",))
    assert spec.env == {
        "LR": "1",
        "MODE": "fast",
        "EMPTY": "",
        "NEW": "x",
    }, "variables are replaced one by one"
    assert "region = asia" in [str(constraint) for constraint in spec.constraints]


def test_another_device_on_the_command_line_replaces_that_of_the_file() -> None:
    """They exclude each other, so adding would refuse every change of the device."""
    spec = job(TRAIN, "--gpu", "H100x8")
    assert spec.resources.device == Device(kind=DeviceKind.GPU, variant="H100", count=8)
    assert (spec.replicas, spec.coscheduling) == (1, None)


def test_variables_are_replaced_everywhere_but_in_the_command() -> None:
    """The task's shell has the task's variables; those of the submitting shell are passed on
    purpose.
    """
    text = (
        "name: run-${N}\nenv: {LR: '${LR:-0.1}', RAW: '$${HOME}'}\npip: ['a==${V:-}', b]\ncommand:"
        " echo ${LR}"
    )
    spec = job(text, N="7", LR="")
    assert (spec.name, spec.env) == ("run-7", {"LR": "0.1", "RAW": "${HOME}"})
    assert spec.command[-1] == "echo ${LR}"
    assert documents(text, N="7", V="2")[0].keys["pip"].values == ("a==2", "b")


def test_every_problem_of_a_file_is_listed_with_its_line() -> None:
    """One error for each run would take as many runs as there are mistakes."""
    found = problems(
        "name: a\nmemry: 3\ntpu:\nenv: [1]\nreplicas: [1]\nno_sync: yes\nname: b\ntimeout:"
        " ${T}\nzone: ${\nscheduling-timeout: 1m\nsecret: {A: env:B, A: env:C}\nport: [{a: b}]\n"
    )
    assert found == [
        "job.yaml is not valid:",
        "  line 2: there is no option 'memry'; did you mean 'memory'?",
        "  line 3: tpu has no value; give it one or remove the key",
        "  line 4: env: write a mapping of names to values",
        "  line 5: replicas: write one value",
        "  line 6: no_sync: write true or false",
        "  line 7: the key 'name' is repeated; it is first set in line 1",
        (
            "  line 8: timeout: the variable T is not set here; set it, or write a default:"
            " ${T:-VALUE}"
        ),
        (
            "  line 9: zone: '${' has no variable after ${; write ${NAME} or ${NAME:-default}, or"
            " $${ for the text"
        ),
        "  line 10: there is no option 'scheduling-timeout'; did you mean 'scheduling_timeout'?",
        "  line 11: secret: A is repeated",
        "  line 12: port: write a value or a list of values",
        "  there is no command; add the key command, or give the command after --",
    ]


def test_wrong_values_are_listed_with_their_lines() -> None:
    """The words are those of the command line, the places those of the file."""
    assert problems("cpu: x\nreplicas: y\nmemory: 4\n") == [
        "job.yaml is not valid:",
        (
            "  line 1: cpu: 'x' is not a number of cores; write a number of cores, such as \"4\" or"
            ' "0.5"'
        ),
        "  line 2: replicas: 'y' is not a valid integer.",
        "  line 3: memory: '4' has no unit, so it means bytes; add the unit, such as \"4g\"",
        "  there is no command; add the key command, or give the command after --",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file has no job"),
        ("---\n---\n# nothing\n", "the file has no job"),
        ("name: [", "line 1, column 8"),
        ("- name: a", "line 1: the document is not a mapping"),
        ("name: &a\n  *a", "job.yaml, line 2"),
        ("? [a]\n: b", "line 1: there is no option '?'"),
        ("command: []", "line 1: command: the list is empty"),
        ("command: {a: b}", "command: write a shell script or a list of words"),
    ],
)
def test_a_file_that_is_not_a_job_says_so(text: str, why: str) -> None:
    """Whatever is in the file, the user sees a reason and no traceback."""
    assert why in "\n".join(problems(text))


def test_a_check_lists_every_kind_of_problem_of_every_document_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown keys hid wrong values, these hid what no job can have, and of that only one was
    said.
    """
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "name: a\n"
        "grace: 0s\n"
        "replicas: 0\n"
        "max_retries: -1\n"
        "max_task_failures: -1\n"
        "memry: 3g\n"
        "cpu: lots\n"
        "pip: [-r nowhere.txt]\n"
        "constraint: [zone = x, zone = y]\n"
        "command: [true]\n"
        "---\n"
        "name: a\n"
        "slices: 2\n"
        "command: [true]\n"
    )

    assert run(["job", "check", str(file)]) == 2
    title, *shown = capsys.readouterr().err.splitlines()
    assert title == "error: the jobs are not valid:"
    assert [line.strip().partition("'")[0] for line in shown] == [
        f"{file}, document 1 is not valid:",
        "line 3: replicas: ",
        "line 4: max_retries: ",
        "line 5: max_task_failures: ",
        "line 6: there is no option ",
        "line 7: cpu: ",
        "line 8: pip: there is no file ",
        "line 9: constraint: ",
        f"{file}, document 2 is not valid:",
        "line 12: ",
        "line 13: --slices needs --tpu with the type of the slices",
    ]


def test_each_document_is_a_job() -> None:
    """Jobs that belong together are submitted together."""
    first, second = documents(f"{TRAIN}---\n---\nname: eval\ncommand: [true]\n", "--memory", "1g")
    assert (first.where, second.where) == ("job.yaml, document 1", "job.yaml, document 2")
    assert plan_job(job_options(second), shares_files=False).spec.resources.memory_bytes == GIB


def test_what_submit_refuses_of_several_jobs_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name is that of one job, and two documents must not take the same one."""
    file = tmp_path / "two.yaml"
    file.write_text("name: a\ncommand: x\n---\nname: a\ncommand: y\n")
    assert run(["submit", "-f", str(file), "-n", "b"]) == 2
    assert "--name is for one job" in capsys.readouterr().err
    assert run(["job", "check", str(file)]) == 2
    assert (
        f"'a' is the name of {file}, document 1; give each job its own" in capsys.readouterr().err
    )
    assert run(["submit", "-f", str(file), "--batch", str(file)]) == 2
    assert "--batch excludes -f" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("submit", "-f"), ("submit", "--batch"), ("job", "check")])
def test_a_file_without_an_end_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that is named by mistake took all memory."""
    assert run([*words, "/dev/zero"]) == 2
    assert (
        "file: '/dev/zero' has more than 64 MiB; split it, or check the name"
        in capsys.readouterr().err
    )


def test_a_document_waits_for_an_earlier_one_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline is one file; the order in it is that of the submissions."""
    file = tmp_path / "two.yaml"
    file.write_text(
        "name: a\ncommand: x\n---\nname: b\nafter: a\nafter_any: [c, 'd#2']\ncommand: y\n"
    )
    assert run(["job", "check", str(file)]) == 0
    assert "ada/a to succeed, ada/c to end, ada/d#2 to end" in " ".join(
        capsys.readouterr().out.split()
    )
    file.write_text("name: b\nafter: a\ncommand: y\n---\nname: a\ncommand: x\n")
    assert run(["job", "check", str(file)]) == 2
    assert (
        f"document 1 is not valid:\n  line 2: after 'ada/a': {file}, document 2 is submitted later"
        in capsys.readouterr().err
    )


def test_the_example_is_valid_and_the_check_shows_its_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Users start from the example."""
    file = ROOT / "examples/jobs/pi.yaml"
    assert run(["job", "check", str(file), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert [(each["id"], each["replicas"]) for each in checked["jobs"]] == [("ada/pi", 2)]
    jsonschema.validate(yaml.safe_load(file.read_text()), job_schema())


def test_print_yaml_writes_the_file_of_a_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that has grown long becomes a file without being typed again."""
    words = [
        "-n",
        "a",
        "--gpu",
        "H100x8",
        "--no-preemptible",
        "--pip",
        "-r",
        "req.txt",
        "-e",
        "A=${B}",
        "--no-sync",
    ]
    assert run(["submit", "--print-yaml", *words, "--", "python", "a b", "${x}"]) == 0
    assert (
        capsys.readouterr().out
        == "name: a\ngpu: H100x8\nenv:\n  A: $${B}\nno_sync: true\npip: [-r req.txt]\npreemptible:"
        " false\ncommand: [python, a b, '${x}']\n"
    )


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
OPTIONS: st.SearchStrategy[list[str]] = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["--setup", "--pip", "--workdir"]), TEXTS).map("=".join),
        TEXTS.map(lambda value: f"--env=A{len(value)}={value}"),
        st.sampled_from(
            [
                "--cpu=0.10",
                "--memory=2g",
                "--preemptible",
                "--no-preemptible",
                "--no-sync",
                "--replicas=3",
            ]
        ),
        st.sampled_from(["--after=a", "--after-any=b,c", "--after-fail=bob/d#2"]),
        st.sampled_from(
            [
                "--port=http",
                "--secret=HF",
                "--secret=K=gcp:w",
                "--zone=no",
                "--timeout=90",
                "--tpu=v5litepod-16",
            ]
        ),
    ),
    unique_by=lambda word: word.split("=")[0].removeprefix("--no-").strip("-"),
)


@given(OPTIONS, st.lists(TEXTS, min_size=1, max_size=3))
def test_a_printed_file_is_the_same_job(words: list[str], command: list[str]) -> None:
    """Neither YAML's types, nor quotes, nor `${` may change what was asked for."""
    ctx = submit.make_context("submit", [*words, "--", *command])
    text = dump_jobs([JobDocument("the command line", keys_given(ctx))])
    (document,) = read_jobs(text.encode(), "job.yaml", {})
    wanted = {name: ctx.params[name] for name in job_options(document)}
    assert job_options(document) == {**wanted, "command": tuple(command)}


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("job.schema.json", job_schema()),
        (
            "cluster.schema.json",
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **ClusterConfig.model_json_schema(),
            },
        ),
    ],
)
def test_the_schemas_beside_the_documents_are_those_of_this_version(
    file: str, schema: dict[str, Any]
) -> None:
    """Editors read the file; `iris job schema` and `iris cluster config schema` print it."""
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads((SCHEMAS / file).read_text()) == schema, (
        "write the file again with the command that prints it"
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_schema_of_configurations_accepts_every_example(path: Path) -> None:
    """An editor must not mark as wrong what the cluster takes."""
    jsonschema.validate(
        yaml.safe_load(path.read_text()), json.loads((SCHEMAS / "cluster.schema.json").read_text())
    )


@pytest.mark.parametrize(
    "text", ["memry: 3", "no_sync: 1", "env: 3", "priority: never", "command: {}"]
)
def test_the_schema_of_jobs_refuses_what_submit_refuses(text: str) -> None:
    """The editor's mark comes before the command's error."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), job_schema())
    with pytest.raises((InvalidJob, click.UsageError)):
        job(text, "--", "true")
