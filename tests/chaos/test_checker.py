"""The checker refuses made records that break a promise, one test for each: a checker that accepts
everything would show nothing.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import checker, program
from tests.chaos.checker import Evidence, Row, summary, violations

HERE = Path(__file__).parent


def ran(
    job: str = "ada/a",
    *,
    task: int = 0,
    attempt: int = 1,
    begins: float = 0,
    until: float = 10,
    code: int | None = 0,
    **more: Any,
) -> list[Row]:
    """What a program writes that runs from one time to another; without a code it is killed then."""
    row = {"job": job, "task": task, "attempt": attempt, "pid": 100 + attempt, "host": "h1"} | more
    last = {"event": "alive"} if code is None else {"event": "end", "code": code}
    return [row | {"event": "start", "time": begins}, row | last | {"time": until}]


def seen(job: str = "ada/a", state: str | None = "SUCCEEDED", at: float = 50) -> Row:
    return {"job": job, "state": state, "time": at}


def evidence(**given: Any) -> Evidence:
    """A run in which one job of one task succeeded, apart from what is given."""
    usual: dict[str, Any] = {
        "attempts": ran(),
        "accepted": [{"job": "ada/a", "tasks": 1, "fails": 0}],
        "cancelled": [],
        "seen": [seen()],
        "faults": [{"begin": 20, "end": 30, "kind": "server killed"}],
        "left": [],
        "pool": [{"call": 0, "result": 0}, {"call": 1, "result": 1}, {"ended": 0}],
        "commands": [],
        "audit": [],
        "last_fault": 30.0,
        "bound": 100.0,
    }
    return Evidence(**usual | given)


def kinds(found: Evidence) -> list[str]:
    return [each.kind for each in violations(found)]


def created(path: str, uid: str) -> Row:
    return {"what": "created", "path": path, "uid": uid}


def frozen(begin: float, end: float) -> Row:
    return {"kind": "host frozen", "begin": begin, "end": end, "frozen_hosts": ["h1"]}


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"attempts": ran(code=None) + ran(attempt=2, begins=60, until=61), "seen": [seen(at=70)]},
        {"attempts": [], "cancelled": [{"job": "ada/a"}], "seen": [seen(state="KILLED")]},
        {
            "attempts": ran(code=3) + ran(attempt=2, begins=11, until=12, code=3),
            "accepted": [{"job": "ada/a", "tasks": 1, "fails": 2}],
            "seen": [seen(state="FAILED")],
        },
        {
            "attempts": ran("ada/a/b", code=None),
            "cancelled": [{"job": "ada/a"}],
            "seen": [seen(state="KILLED")],
        },
        {
            # The host was stopped until 45. Its program wrote once more before its shim ended it.
            "attempts": ran(until=46, code=None)
            + ran(attempt=2, begins=40, until=44, host="h2"),
            "faults": [frozen(5, 45)],
        },
        {"audit": [created("vm", "1"), {"what": "deleted", "uid": "1"}, created("vm", "2"), {"what": "vanished", "uid": "2"}]},
    ],
    ids=["plain", "retried", "cancelled", "fails", "child", "frozen host", "machines"],
)  # fmt: skip
def test_a_run_that_kept_every_promise_is_accepted(good: dict[str, Any]) -> None:
    """A checker that refuses what Iris may do would be switched off."""
    assert kinds(evidence(**good)) == []


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ({"seen": []}, "LOST"),
        ({"seen": [seen(state=None)]}, "LOST"),
        ({"attempts": ran(code=None)}, "LOST"),
        ({"accepted": [{"job": "ada/a", "tasks": 2, "fails": 0}]}, "LOST"),
        ({"attempts": [*ran(), ran("ada/a/b")[0] | {"event": "submitted", "child": "ada/a/b"}]}, "LOST"),
        ({"seen": [seen(state="PENDING")]}, "WAITS"),
        ({"seen": [seen(state="PENDING")], "cancelled": [{"job": "ada/a"}]}, "WAITS"),
        ({"seen": [seen(at=131)]}, "WAITS"),
        ({"seen": [seen(state="FAILED")]}, "UNFIT"),
        ({"seen": [seen(state="WORKER_FAILED")]}, "UNFIT"),
        ({"seen": [seen(state="KILLED")]}, "UNFIT"),
        (
            {
                "attempts": ran(code=3),
                "accepted": [{"job": "ada/a", "tasks": 1, "fails": 2}],
                "seen": [seen(state="FAILED")],
            },
            "UNFIT",
        ),
        ({"attempts": ran(code=None) + ran(attempt=2, begins=9.9, until=12)}, "TWICE"),
        ({"attempts": ran() + ran(pid=7, begins=5, until=6)}, "TWICE"),
        (
            {
                # More than WAKES after the host continued.
                "attempts": ran(until=51, code=None)
                + ran(attempt=2, begins=40, until=44, host="h2"),
                "faults": [frozen(5, 45)],
                "seen": [seen(at=60)],
            },
            "TWICE",
        ),
        (
            {
                # Another host was stopped, not this one.
                "attempts": ran(until=46, code=None)
                + ran(attempt=2, begins=40, until=44, host="h2"),
                "faults": [frozen(5, 45) | {"frozen_hosts": ["h2"]}],
            },
            "TWICE",
        ),
        ({"attempts": ran(until=51)}, "AFTER_END"),
        ({"left": [{"pid": 1, "command": "python program.py", "when": "after the jobs"}]}, "LEFT"),
        ({"pool": [{"call": 0, "result": 0}, {"ended": 1}]}, "LOST"),
        ({"pool": [{"call": 0, "result": 0}]}, "LOST"),
        ({"pool": [{"call": 1, "result": 1}, {"ended": 0}]}, "LOST"),
        ({"pool": [*[{"call": 0, "result": 0}] * 2, {"ended": 0}]}, "LOST"),
        ({"pool": [{"call": 0, "result": 1}, {"ended": 0}]}, "UNFIT"),
        ({"commands": [{"command": "jobs", "said": "Traceback …"}]}, "TRACEBACK"),
        ({"audit": [created("vm", "1")]}, "LEFT"),
        ({"audit": [created("vm", "1"), created("vm", "2"), {"what": "deleted", "uid": "1"}, {"what": "deleted", "uid": "2"}]}, "TWICE"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_refused(bad: dict[str, Any], kind: str) -> None:
    """Each row breaks one promise, and nothing else."""
    assert kinds(evidence(**bad)) == [kind]


def test_the_summary_counts_and_has_the_longest_time_from_a_death_to_the_next_start() -> None:
    """That is the line of each seed; an end by itself is no interruption."""
    attempts = [
        *ran(code=None, until=5),
        *ran(attempt=2, begins=30, until=32, code=3),
        *ran(attempt=3, begins=90, until=91),
    ]
    told = str(summary(evidence(attempts=attempts)))
    assert told == "1 faults, 1 jobs, 3 attempts (1 interrupted), longest recovery 25 s"


def test_the_checker_and_the_program_import_nothing_of_iris_or_of_other_packages() -> None:
    """They are the outside evidence: a fault of Iris's code must not be theirs, too."""
    for module in (checker, program):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        names = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [str(node.module)]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert names <= set(sys.stdlib_module_names)


def test_what_the_program_writes_is_what_the_checker_reads(tmp_path: Path) -> None:
    """From the program's process through its file to the verdict, without a cluster."""
    run = {"last_fault": 0.0, "bound": 1e12}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "accepted.jsonl").write_text(
        json.dumps({"job": "ada/a", "tasks": 1, "fails": 0}) + "\n{cut off"
    )
    codes = []
    for attempt in (1, 2):
        env = {"IRIS_JOB_ID": "ada/a", "IRIS_TASK_INDEX": "0", "IRIS_HOST_ID": "h1"}
        command = [sys.executable, str(HERE / "program.py"), str(tmp_path), "--fails", "1"]
        done = subprocess.run(
            [*command, "--seconds", "0"], env=env | {"IRIS_ATTEMPT": str(attempt)}, check=False
        )
        codes.append(done.returncode)
    assert codes == [program.FAILED, 0]
    (tmp_path / "seen.jsonl").write_text(json.dumps(seen(at=1e12)) + "\n")
    (tmp_path / "pool.jsonl").write_text('{"ended": 0}\n')

    found = checker.read(tmp_path)
    assert violations(found) == []
    assert [each.code for each in checker.processes(found)["ada/a", 0]] == codes
