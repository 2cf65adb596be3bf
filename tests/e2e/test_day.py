"""A day's work, `examples/day.sh`, in a terminal as its reader has it."""

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import USER, Cluster, a_home

pytestmark = pytest.mark.long

DAY = Path(__file__).parents[2] / "examples" / "day.sh"


def in_terminal(script: Path, env: dict[str, str]) -> tuple[int, str]:
    """Runs a script in a terminal; returns its exit code and its text without colours and moves of
    the cursor.
    """
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [script], env=env, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed when its last program has ended
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode().replace("\r", ""))


def test_a_day_of_work_shows_at_each_hour_what_its_reader_looks_for() -> None:
    """A sweep, what follows it, what failed, a gang, a nightly job and the looks at them are the
    forty commands of a day.
    """
    with a_home() as home:
        desk = Cluster(home)
        state = {
            "TMPDIR": str(home),
            "IRIS_USER": USER,
            "TERM": "xterm",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("IRIS_", "TEMPORAL_"))
        }
        try:
            code, text = in_terminal(DAY, inherited | state)
            assert code == 0, text
            left = [path.name for path in home.glob("day-*")], desk.processes()
        finally:
            desk.clear()
    assert left == ([], [])

    day = {hour[:5]: hour for hour in text.split("\n# ")}
    assert re.search(r"cluster +day +\$IRIS_CLUSTER", day["09:00"])
    assert re.search(r"^complete .*_iris_completion iris$", day["09:00"], re.MULTILINE)
    listed = day["09:10"].partition("$ iris jobs --all --tag study=lr")[2]
    assert f"{USER}/sweep" in listed
    assert f"{USER}/compare" in listed
    assert f"{USER}/check-data" not in listed
    assert "\ncommand: [python3, train.py," in day["09:20"]
    assert "baseline.yaml is valid" in day["09:20"]
    assert f"{USER}/baseline SUCCEEDED" in day["09:20"]
    assert "books: best lr 0.5" in day["10:00"]
    assert "web:" not in day["10:00"]
    assert re.search(r"^books\s+code\s*$", day["10:00"], re.MULTILINE)
    assert re.search(r"^http://.*%2Fsweep/", day["10:00"], re.MULTILINE)
    assert "web: best lr 0.1" in day["10:15"]
    assert "needs 4 free hosts" in day["11:00"]
    assert "iris watch -n 1s jobs" in day["11:00"]
    assert "beside task 2 on local-v5litepod-16-" in day["14:00"]
    would_end, _, _ = (
        day["14:00"]
        .partition("$ iris cancel train")[0]
        .partition("$ iris cancel --tag")[2]
        .partition("\n$ ")
    )
    assert f"{USER}/train" in would_end
    assert f"{USER}/next" in would_end
    assert "[3] task 3 has waited long enough" in day["14:00"]
    assert f"{USER}/sweep-web" in day["17:00"].partition("$ iris schedule")[0]
    assert re.search(rf"{USER}/nightly .*PAUSED", day["17:00"])
    assert f"schedule {USER}/nightly is active" in day["17:00"]
    assert re.search(r"TIME +STARTED +STATE.*\n.* UTC .* SUCCEEDED", day["17:00"])
    assert f"{USER}/sweep " in day["17:00"]
    assert " fit" in day["17:00"]
    assert "0 live job(s)" in day["18:00"]
