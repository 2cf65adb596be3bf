"""`iris simulate`: no cluster is needed, and nothing is created."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from iris.cli.main import run
from iris.cli.simulate.runs import Configuration, simulate_all
from iris.config import load_config
from iris.model.host.resources import Resources
from iris.simulation.engine import cluster_of
from iris.simulation.report.results import Results
from iris.simulation.trace import GangTrace, Heading, Run, SliceTrace, Trace, to_lines
from iris.simulation.world import World, read_world
from iris.usage.accounting import accounting_of

BEGINS = datetime(2026, 11, 2, tzinfo=UTC)
CONFIG = """\
platform: {local: {}}
prices: {currency: USD, rates: [{group: cpu, machine_hour: 0.5}]}
scale_groups:
  cpu: {type: local_vm, max_slices: 1, resources: {cpu: 4, memory: 16g}}
"""
#: A world with luck.
LUCK = 'machines: {"*": {boot: [1m, 2m, 10m]}}\n'


def workload(jobs: int = 6, *, hours: float = 2.0, slices: tuple[SliceTrace, ...] = ()) -> Trace:
    """Jobs that take a host for half an hour each, one every minute."""
    gangs = [
        GangTrace(
            id=f"g{number}",
            user=("ada", "bob")[number % 2],
            at=60.0 * number,
            resources=Resources(cpu_millis=4000),
            runs=(Run(seconds=1800),),
        )
        for number in range(jobs)
    ]
    heading = Heading(begins=BEGINS, ends=BEGINS + timedelta(hours=hours))
    return Trace.of(heading, gangs, slices)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two configurations, a workload and a world."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.yaml").write_text(CONFIG)
    (tmp_path / "new.yaml").write_text(CONFIG.replace("max_slices: 1", "max_slices: 2"))
    (tmp_path / "jobs.jsonl").write_text("".join(to_lines(workload())))
    (tmp_path / "luck.yaml").write_text(LUCK)
    return tmp_path


def simulate(*options: str) -> int:
    return run(["simulate", "--config", "new.yaml", *options])


def test_one_configuration_shows_waits_machines_and_cost(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six half hours on two hosts: the last gang waits for two of them, and a boot."""
    assert simulate("--workload", "jobs.jsonl") == 0
    shown, progress = capsys.readouterr()
    cells = {line[:18].strip(): line[18:].split() for line in shown.splitlines()}
    assert cells["gangs"] == ["6"]
    assert cells["wait, longest"][0] == "58m"
    assert cells["slices made"] == ["2"]
    assert "world: " in shown
    assert progress == ""


def test_two_configurations_show_the_difference(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second host halves the queue, and nothing in this world is luck."""
    assert simulate("--against", "old.yaml", "--workload", "jobs.jsonl", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    old, new = found["configurations"]
    assert (old["name"], new["name"], old["seeds"]) == ("old.yaml", "new.yaml", [0])
    longest = [each["answers"][0]["all"]["waits"]["longest"] for each in (old, new)]
    assert found["changes"]["all"]["waits"]["longest"]["mean"] == longest[1] - longest[0] < -3600
    assert found["world"] == World().model_dump(mode="json")


def test_a_report_is_a_folder_of_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON of the folder is that of the command, and other files there stay."""
    (files / "out").mkdir()
    (files / "out" / "mine.txt").write_text("mine")
    assert simulate("--workload", "jobs.jsonl", "--json", "--out", "out") == 0
    shown, progress = capsys.readouterr()
    assert json.loads((files / "out" / "answers.json").read_text()) == json.loads(shown)
    assert "out/report.html" in progress
    names = {each.name for each in (files / "out").iterdir()}
    assert {"report.html", "waits.svg", "gangs.csv", "slices.csv", "mine.txt"} < names


def test_a_report_does_not_leave_pictures_of_an_earlier_one(files: Path) -> None:
    """A picture of a comparison beside a report without one would be read as its own."""
    assert simulate("--workload", "jobs.jsonl", "--against", "old.yaml", "--out", "out") == 0
    assert (files / "out" / "slices-before.svg").exists()
    assert simulate("--workload", "jobs.jsonl", "--out", "out") == 0
    assert {each.name for each in (files / "out").glob("slices*.svg")} == {"slices.svg"}


def test_the_world_is_measured_if_the_workload_has_slices(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the machines did before is the best guess, and a file beats it."""
    past = tuple(
        SliceTrace(id=f"s{number}", group="cpu", requested=0, ready=420.0, gone=7000.0)
        for number in range(20)
    )
    (files / "past.jsonl").write_text("".join(to_lines(workload(slices=past))))
    assert simulate("--workload", "past.jsonl", "--show-world") == 0
    shown = capsys.readouterr().out
    assert set(read_world(shown, "shown").of("cpu", "").boot) == {420.0}
    (files / "shown.yaml").write_text(shown)
    assert simulate("--workload", "past.jsonl", "--world", "luck.yaml", "--show-world") == 0
    assert read_world(capsys.readouterr().out, "shown") == read_world(LUCK, "luck")


def test_seeds_are_simulated_only_if_something_is_left_to_chance(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three equal results would cost three times as much."""
    monkeypatch.setattr("iris.cli.simulate.runs._cores", lambda: 1)
    simulate("--workload", "jobs.jsonl", "--seeds", "3", "--json")
    assert json.loads(capsys.readouterr().out)["configurations"][0]["seeds"] == [0]
    simulate(
        "--workload", "jobs.jsonl", "--seeds", "2", "--seed", "7", "--world", "luck.yaml", "--json"
    )
    (found,) = json.loads(capsys.readouterr().out)["configurations"]
    assert found["seeds"] == [7, 8]
    first, second = found["answers"]
    assert first != second


def test_a_group_that_no_configuration_has_is_a_warning(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelled group would silently have the defaults."""
    (files / "typo.yaml").write_text("machines: {cqu: {boot: 3m}, cpu: {boot: 3m}}")
    assert simulate("--workload", "jobs.jsonl", "--world", "typo.yaml") == 0
    warning = capsys.readouterr().err
    assert "cqu" in warning
    assert "cpu" not in warning.replace("cqu", "")


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ((), 2, "--workload"),
        (("--workload", "jobs.jsonl", "--synthetic", "jobs=5,days=1"), 2, "one workload"),
        (("--workload", "jobs.jsonl", "--last", "7d"), 2, "one workload"),
        (("--last", "soon"), 2, "'soon' is not a duration"),
        (("--synthetic", "jobs=5,days=1", "--gpu", "H100"), 2, "--gpu"),
        (("--workload", "old.yaml"), 2, "'old.yaml' is not a trace in a format that Iris reads"),
        (("--workload", "none.jsonl"), 2, "none.jsonl"),
        (("--workload", "binary"), 2, "not UTF-8"),
        (("--workload", "jobs.jsonl", "--world", "old.yaml"), 5, "line 1: platform"),
        (("--workload", "jobs.jsonl", "--against", "jobs.jsonl"), 5, "jobs.jsonl"),
        (("--workload", "jobs.jsonl", "--against", "empty.yaml"), 2, "no scale groups"),
        (("--workload", "jobs.jsonl", "--seeds", "0"), 2, "--seeds"),
        (("--synthetic", "jbos=5"), 2, "jbos"),
        (("--synthetic", "none.yaml"), 2, "'none.yaml' is neither a file nor"),
        (("--synthetic", "jobs=5,jobs=6"), 2, "'jobs' is given twice"),
        (("--synthetic", "jobs=5,hosts=5000"), 2, "hosts: '5000'"),
        (("--synthetic", "huge.yaml"), 2, "is larger than"),
        (("--workload", "jobs.jsonl", "--seeds", "1000000000"), 2, "--seeds"),
        (("--workload", "jobs.jsonl", "--against", "huge.yaml"), 5, "is larger than"),
        (("--synthetic", "twice.yaml"), 2, "twice.yaml, line 3' has an error: the key 'jobs'"),
        (("--workload", "jobs.jsonl", "--publish", "a/b"), 2, "'a/b' is not a valid name"),
        (("--workload", "jobs.jsonl", "--publish", "new"), 4, "cluster"),
    ],
)
def test_bad_input_is_refused_with_its_place(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    """The message names the file, the value and what to do."""
    (files / "binary").write_bytes(b"\xff\xfe")
    with (files / "huge.yaml").open("wb") as huge:
        huge.truncate(1_000_000_000)
    (files / "twice.yaml").write_text("jobs: 5\ndays: 1\njobs: 6\n")
    (files / "empty.yaml").write_text("platform: {local: {}}")
    assert simulate(*options) == code
    assert says in capsys.readouterr().err


def test_a_synthetic_workload_is_described_on_the_command_line_or_in_a_file(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short one is typed, a long one is kept."""
    assert simulate("--synthetic", "jobs=5,days=0.1,cpu=1,duration=5m", "--json") == 0
    typed = json.loads(capsys.readouterr().out)
    (files / "kinds.yaml").write_text("jobs: 5\ndays: 0.1\ncpu: 1\nduration: 5m\n")
    assert simulate("--synthetic", "kinds.yaml", "--json") == 0
    assert json.loads(capsys.readouterr().out) == typed
    assert typed["configurations"][0]["answers"][0]["all"]["gangs"] == 5


def configuration(text: str = CONFIG) -> Configuration:
    config = load_config(text)
    return Configuration("new", cluster_of(config), accounting_of(config))


@pytest.mark.long
def test_processes_find_the_same_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer does not depend on the machine."""
    both = [configuration(), configuration(CONFIG.replace("max_slices: 1", "max_slices: 3"))]
    found: list[list[Results]] = []
    seen: list[str] = []
    for cores in (1, 2):
        monkeypatch.setattr("iris.cli.simulate.runs._cores", lambda cores=cores: cores)
        world = read_world(LUCK, "luck.yaml")
        ended = simulate_all(both, workload(), world, range(2), progress=seen.append)
        found.append([each.results for each in ended])
    assert found[0] == found[1]
    assert seen == [f"simulating: {number} of 4 have ended" for number in range(5)] * 2


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_simulation_leaves_no_process(files: Path, how: signal.Signals) -> None:
    """Ctrl-C, which reaches all processes of a terminal, ends them at once and without a traceback;
    nothing computes on after a kill.
    """
    long = workload(4000, hours=100)
    (files / "long.jsonl").write_text("".join(to_lines(long)))
    options = ("--workload", "long.jsonl", "--world", "luck.yaml", "--seeds", "8")
    command = [sys.executable, "-m", "iris.cli.main", "simulate", "--config", "new.yaml", *options]
    began = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    me = psutil.Process(began.pid)
    deadline = time.monotonic() + 120
    while len(children := me.children(recursive=True)) < 3:  # two workers, and their tracker
        assert began.poll() is None, began.stderr and began.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    by_terminal = how is signal.SIGINT
    (os.killpg if by_terminal else os.kill)(began.pid, how)
    _, error = began.communicate(timeout=60)
    if by_terminal:
        assert error.strip() == "interrupted"
    assert began.returncode == (130 if by_terminal else -how)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []


@pytest.mark.parametrize("world", ["luck.yaml", None])
def test_advice_names_the_change_that_shortens_waits(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    world: str | None,
) -> None:
    """Six jobs queue for one host, so a second one is the first thing to try."""
    monkeypatch.setattr("iris.cli.simulate.runs._cores", lambda: 1)
    with_luck = () if world is None else ("--world", world, "--seeds", "2")
    command = [
        "autoscaler",
        "advise",
        "--config",
        "old.yaml",
        "--workload",
        "jobs.jsonl",
        *with_luck,
    ]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "Shorter waits" in shown
    assert "max_slices: 1 to 2" in shown
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    texts = [each["step"] for each in found["shorter_waits"]]
    assert "max_slices: 1 to 2" in texts
    assert all(each["wait"]["mean"] < 0 for each in found["shorter_waits"])


def test_advice_that_finds_nothing_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty answer would look like an error. One host that is always there serves one job."""
    (files / "enough.yaml").write_text(
        CONFIG.replace("max_slices: 1", "min_slices: 1, max_slices: 1")
    )
    options = ("--config", "enough.yaml", "--synthetic", "jobs=1,days=1,cpu=1,duration=1m")
    assert run(["autoscaler", "advise", *options]) == 0
    assert "none of them" in capsys.readouterr().out


def test_gangs_that_fit_nowhere_are_said_before_all_numbers(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two days of waiting look like a slow cluster. It is one without such machines."""
    assert simulate("--synthetic", "jobs=3,days=1,gpu=H100", "--json") == 0
    capsys.readouterr()
    assert simulate("--synthetic", "jobs=3,days=1,gpu=H100") == 0
    shown = capsys.readouterr().out
    (line,) = [each for each in shown.splitlines() if each.startswith("new.yaml: ")]
    assert "3 of 3 gangs" in line
    assert "gpu:H100" in line
    assert "all done after" not in shown
    assert run(["autoscaler", "advise", "--config", "new.yaml", "--synthetic", "jobs=3,gpu=1"]) == 0
    assert "3 of 3 gangs" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["jobs.jsonl", "jobs.jsonl/out"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_simulation(
    files: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    """A simulation may take minutes."""
    assert simulate("--workload", "jobs.jsonl", "--out", folder) == 2
    shown, errors = capsys.readouterr()
    assert shown == ""
    assert "jobs.jsonl" in errors


def test_a_report_that_cannot_be_written_whole_is_not_written(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a page looks like a page. A name that is too long for a file stands for a full disk."""
    found = {"report.html": "new", "x" * 300: ""}
    monkeypatch.setattr("iris.cli.simulate.command.report_files", lambda *_: found)
    (files / "out").mkdir()
    (files / "out" / "report.html").write_text("old")
    assert simulate("--workload", "jobs.jsonl", "--out", "out") == 1
    assert [each.name for each in (files / "out").iterdir()] == ["report.html"]
    assert (files / "out" / "report.html").read_text() == "old"


def test_a_group_without_an_entry_in_the_world_is_a_warning(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its machines would boot in two minutes, which nobody has said."""
    (files / "other.yaml").write_text("machines: {other: {boot: 5m}}")
    assert simulate("--workload", "jobs.jsonl", "--world", "other.yaml") == 0
    assert "no entry for cpu" in capsys.readouterr().err


def test_characters_that_steer_a_terminal_do_not_reach_it(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A workload may come from somebody else."""
    heading, *gangs = to_lines(workload(1))
    bad = gangs[0].replace("g0", "\\u001b[2Jred\\u202e").replace("4000", "99000")
    (files / "bad.jsonl").write_text(heading + bad)
    (files / "a\x1b[31m.yaml").write_text(CONFIG)
    assert simulate("--workload", "bad.jsonl", "--against", "a\x1b[31m.yaml") == 0
    shown = "".join(capsys.readouterr())
    assert "red" in shown
    assert not {"\x1b", "\u202e"} & {*shown}


GANG = '{"kind":"gang","id":"a","user":"ada","at":1,"runs":[{"seconds":1}]}'


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"at":1', '"at":Infinity', "line 2"),
        ('"at":1', '"at":1e300', "line 2"),
        ('"at":1', '"at":1,"queued_at":-1e300', "line 2"),
        ('"at":1', '"at":1,"patience":-1', "line 2"),
        ('"at":1', '"at":1,"group_by":"zone","tasks":1000000', "gang a"),
        ('"at":1', '"at":1,"constraints":["?"]', "gang a"),
        ('"ada"', '""', "gang a"),
        ("2026-11-02T00:00:00Z", "2026-11-02T00:00:00", "line 1"),
        ("2026-11-02T00:00:00Z", "2027-11-02T00:00:00Z", "line 1"),
        ("2026-11-02T00:00:00Z", "0001-01-01T00:00:00Z", "line 1"),
        (GANG, f"{GANG}\n{GANG}", "line 3"),
        (
            GANG,
            '{"kind":"slice","id":"s","group":"cpu","requested":NaN,"ready":3,"gone":1}',
            "line 2",
        ),
        (
            GANG,
            '{"kind":"slice","id":"s","group":"cpu","requested":5,"ready":3,"gone":9}',
            "line 2",
        ),
    ],
)
def test_impossible_values_of_a_workload_are_refused_with_their_place(
    files: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, place: str
) -> None:
    """They would end a simulation in its middle, with an error that names no line."""
    heading = '{"kind":"trace","begins":"2026-11-02T00:00:00Z","ends":"2026-11-03T00:00:00Z"}'
    text = f"{heading}\n{GANG}\n"
    assert old in text
    (files / "bad.jsonl").write_text(text.replace(old, new))
    assert simulate("--workload", "bad.jsonl") == 2
    assert f"bad.jsonl, {place}" in capsys.readouterr().err
