"""One chaos run: a cluster, its jobs, its faults, and the verdict."""

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.chaos import checker
from tests.chaos.checker import Summary, Violation
from tests.chaos.cluster import ChaosCluster, a_chaos_cluster
from tests.chaos.faults import TARGETS, Faults
from tests.chaos.journal import Journal, now
from tests.chaos.load import PROGRAM, Load
from tests.chaos.plan import Fault, plan
from tests.chaos.services import DevServer, OfficialServer

#: How long everything may take to end after the last fault, in seconds. A job whose host dies with
#: the last fault starts again after a minute, runs for up to 40 s, and may meet a host that is
#: given up meanwhile, which takes another minute.
BOUND = 300.0
#: How long the programs and the machines of jobs that have ended may take to go, in seconds.
GOES = 120.0
#: The time between two looks at the jobs, in seconds.
LOOK = 3.0


class Outcome(NamedTuple):
    """What came of a run."""

    seed: int
    #: What was done, in the order of the times.
    faults: list[Fault]
    violations: list[Violation]
    summary: Summary
    #: The time from the last fault to the end of the last job, in seconds.
    calm_after: float
    #: Evidence and logs: they are kept if there is a violation.
    directory: Path
    #: What runs the same again.
    again: str

    def __str__(self) -> str:
        verdict = f"{len(self.violations)} VIOLATIONS" if self.violations else "ok"
        calm = f"all ended {self.calm_after:.0f} s after the last fault"
        return f"seed {self.seed}: {verdict}: {self.summary}, {calm}"

    def explained(self) -> str:
        """Returns everything that is needed to look into a run that failed."""
        return "\n".join(
            [
                str(self),
                *("  fault  " + str(fault) for fault in self.faults),
                *("  " + str(violation) for violation in self.violations),
                f"  records, faults: {self.directory}/evidence; logs: {self.directory}/logs",
                f"  again: {self.again}",
            ]
        )


def run(seed: int, seconds: float, *, official: bool = False) -> Outcome:
    """Runs a cluster for so long, and then until everything has ended.

    Args:
        official: on Temporal's official server on PostgreSQL instead of the dev server.
    """
    home = Path(tempfile.mkdtemp(prefix="iris-x"))
    home.chmod(0o711)
    try:
        return _run(home, seed, seconds, official)
    except BaseException as error:
        error.add_note(f"seed {seed}; what there is of the run: {home}")
        raise


def _run(home: Path, seed: int, seconds: float, official: bool) -> Outcome:
    evidence = home / "evidence"
    evidence.mkdir()
    journal = Journal(evidence)
    service = OfficialServer(home / "t") if official else DevServer(home / "t")
    with a_chaos_cluster(home, service, seed) as cluster:
        targets = TARGETS | {"servers": service.servers, "databases": service.databases}
        if not cluster.has_clocks:
            targets["clocks"] = ()
        faults = plan(seed, seconds, targets)
        doing, load = Faults(cluster, faults, journal), Load(cluster, journal, seed)
        last_fault, ended = _carry_out(doing, load)
        _look_for_the_rest(cluster, journal)
        errors = [*doing.errors, *load.errors]
        shutil.copytree(cluster.store, home / "store")  # from a disk that is about to go
    shutil.copy(home / "google" / "state" / "audit.jsonl", evidence)
    times = {"last_fault": last_fault, "bound": BOUND, "seed": seed}
    (evidence / "run.json").write_text(json.dumps(times))
    found = checker.read(evidence)
    broken = checker.violations(found) + [Violation("RUN", error) for error in errors]
    again = f".venv/bin/python -m tests.chaos --seeds {seed} --seconds {seconds:g}"
    outcome = Outcome(
        seed,
        faults,
        broken,
        checker.summary(found),
        ended - last_fault,
        home,
        again + " --official" * official,
    )
    if not broken:
        shutil.rmtree(home, ignore_errors=True)
    return outcome


def _carry_out(doing: Faults, load: Load) -> tuple[float, float]:
    """Returns the time of the end of the last fault, and that of the last job."""
    over = threading.Event()

    def looks() -> None:
        while not over.wait(LOOK):
            load.look()

    load.start_pool()
    threads = [threading.Thread(target=each) for each in (load.run, looks)]
    for thread in threads:
        thread.start()
    try:
        doing.run()
        last_fault = now()
        load.stop()
        threads[0].join()
        _until(lambda: load.done, BOUND)
        ended = now()
    finally:
        load.stop()
        load.end_pool(1)
        over.set()
        load.close()
        for thread in threads:
            thread.join()
    for job in load.unseen():
        load.look_at(job)
    return last_fault, ended


def _look_for_the_rest(cluster: ChaosCluster, journal: Journal) -> None:
    """Writes down the processes that are left when all jobs have ended, and when the cluster has
    stopped.
    """
    marked = str(journal.directory)

    def programs() -> list[psutil.Process]:
        return [each for each in cluster.processes() if {str(PROGRAM), marked} <= _words(each)]

    _until(lambda: not programs(), GOES)
    _write(journal, programs(), "after all jobs have ended")
    _until(lambda: not cluster.google.alive(), GOES)
    cluster.stop_all()
    outside = cluster.outside()
    _until(lambda: not set(cluster.processes()) - outside, GOES / 4)
    _write(journal, [*set(cluster.processes()) - outside], "after the stop of the cluster")


def _words(process: psutil.Process) -> set[str]:
    with suppress(psutil.Error):
        return set(process.cmdline())
    return set()


def _write(journal: Journal, processes: list[psutil.Process], when: str) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            journal.write("left", {"pid": process.pid, "command": command, "when": when})


def _until(holds: Callable[[], bool], within: float) -> None:
    """Waits until the condition holds, or the time is over."""
    deadline = time.monotonic() + within
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.5)
