"""The jobs of a chaos run: chosen by the seed, submitted and steered by the command line."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.chaos.checker import FINAL
from tests.chaos.cluster import ChaosCluster
from tests.chaos.journal import Journal, now
from tests.e2e.cluster import USER, Ran

PROGRAM = Path(__file__).with_name("program.py")
POOL = Path(__file__).with_name("pool_program.py")
SMALL = ("--cpu", "0.5", "--memory", "64m")
#: How often each kind of job is chosen.
WEIGHTS = {
    "single": 9,
    "long": 9,
    "retried": 3,
    "failing": 1,
    "array": 3,
    "gang": 3,
    "parent": 2,
    "held": 2,
    "cancelled": 3,
    "preemptible": 3,
}
#: So many jobs are submitted at first, and how long they run.
AT_FIRST, PATIENT = 12, (75, 90)
#: How long later attempts of long programs run, in seconds: they need not be waited for.
LATER = "5"
#: Commands that run at the same time: one that waits for the service must not hold up the others.
AT_ONCE = 4
#: The time limit of a command, and the pause before it is repeated, in seconds.
PATIENCE, AGAIN = 60, 2


class Load:
    """Submits jobs until it is stopped, and finishes what it has begun with them."""

    def __init__(self, cluster: ChaosCluster, journal: Journal, seed: int) -> None:
        self._cluster, self._journal = cluster, journal
        self._dice = random.Random(f"load {seed}")
        self._over = threading.Event()
        #: Nothing is repeated any more.
        self.given_up = threading.Event()
        self._commands = ThreadPoolExecutor(AT_ONCE)
        self._begun = self._finished = 0
        self._lock = threading.Lock()
        #: The states of the jobs that have ended.
        self.seen: dict[str, str] = {}
        self._listed: set[str] = set()
        self.accepted: list[str] = []
        self.errors: list[str] = []

    def run(self) -> None:
        """Submits a job every second or so. The first ones come at once and run for longer than a
        silent host is kept, so that one that is not ended in time runs beside its successor.
        """
        number = 0
        while not self._over.wait(self._dice.uniform(0.5, 2) if number >= AT_FIRST else 0):
            (kind,) = self._dice.choices([*WEIGHTS], [*WEIGHTS.values()])
            kind = kind if number >= AT_FIRST else "patient"
            does = getattr(self, f"_{kind}")(f"{kind}-{number}")
            self._begun += 1
            self._commands.submit(self._safely, does)
            number += 1

    def start_pool(self) -> None:
        """Starts the program with the pool of workers, which `stop` ends."""
        cluster = f"{self._cluster.address}/{self._cluster.name}"
        files = [self._journal.directory / name for name in ("pool.jsonl", "pool-done")]
        with (self._journal.directory / "pool.log").open("wb") as log:
            self._pool = subprocess.Popen(
                [sys.executable, str(POOL), cluster, *map(str, files)],
                cwd=self._cluster.work,
                env=os.environ | {"IRIS_STATE_DIR": str(self._cluster.home), "IRIS_USER": USER},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end_pool(self, within: float) -> None:
        """Waits for the end of the program with the pool, and kills it after some time."""
        with suppress(subprocess.TimeoutExpired):
            self._pool.wait(within)
        self._pool.kill()
        self._journal.write("pool", {"ended": self._pool.wait()})

    def stop(self) -> None:
        self._over.set()
        (self._journal.directory / "pool-done").touch()

    def close(self) -> None:
        self.given_up.set()
        self._commands.shutdown()

    @property
    def done(self) -> bool:
        """Whether all that was begun with the jobs is done, and all jobs have ended."""
        ended = self._pool.poll() is not None
        return ended and self._begun == self._finished and not self.unseen()

    def unseen(self) -> list[str]:
        """The accepted jobs, and the children of others, whose ends have not been reported."""
        return [each for each in [*self.accepted, *self._listed] if each not in self.seen]

    def look(self) -> None:
        """Writes down which jobs are reported as ended, for the first time."""
        listed = self._iris("jobs", "--all", "--limit", "10000", "--json")
        if listed is None or listed.code != 0:
            return
        for row in listed.json:
            self._listed.add(row["id"])
            self._saw(row["id"], row["state"])

    def look_at(self, job: str) -> None:
        """Asks for one job. Its state is written down even if the job has not ended."""
        shown = self._iris("status", job, "--json")
        if shown is not None and shown.code == 3:
            self._journal.write("seen", {"job": job, "state": None, "time": now()})
        elif shown is not None and shown.code == 0:
            state, why = shown.json["state"], str(shown.json.get("reason"))
            if state in FINAL:
                self._saw(job, state)
            else:
                self._journal.write("seen", {"job": job, "state": state, "why": why, "time": now()})

    def _saw(self, job: str, state: str) -> None:
        if state in FINAL and job not in self.seen:
            self.seen[job] = state
            self._journal.write("seen", {"job": job, "state": state, "time": now()})

    # -- kinds of jobs. Each returns what is to be done, so that all choices are made in one order.

    def _single(self, name: str) -> Callable[[], None]:
        seconds = self._dice.uniform(0, 6)
        return lambda: self._submit(name, seconds)

    def _patient(self, name: str) -> Callable[[], None]:
        seconds = self._dice.uniform(*PATIENT)
        return lambda: self._submit(name, seconds)

    def _long(self, name: str) -> Callable[[], None]:
        seconds = self._dice.uniform(10, 40)
        return lambda: self._submit(name, seconds)

    def _retried(self, name: str) -> Callable[[], None]:
        seconds, fails = self._dice.uniform(0, 3), self._dice.randint(1, 2)
        return lambda: self._submit(name, seconds, "--max-retries", str(fails), failures=fails)

    def _failing(self, name: str) -> Callable[[], None]:
        seconds = self._dice.uniform(0, 2)
        return lambda: self._submit(name, seconds, "--max-retries", "1", failures=9, fails=2)

    def _array(self, name: str) -> Callable[[], None]:
        seconds, tasks = self._dice.uniform(0, 6), self._dice.randint(3, 6)
        return lambda: self._submit(name, seconds, "--array", f"0-{tasks - 1}", tasks=tasks)

    def _gang(self, name: str) -> Callable[[], None]:
        seconds = self._dice.uniform(1, 25)
        return lambda: self._submit(name, seconds, "--gang-by", "rack", "--replicas", "2", tasks=2)

    def _parent(self, name: str) -> Callable[[], None]:
        child = ["iris", "submit", "-q", "-n", "child", "--no-workspace", *SMALL, "--"]
        child += self._program(self._dice.uniform(0, 6))
        return lambda: self._submit(name, 2, child=child)

    def _preemptible(self, name: str) -> Callable[[], None]:
        seconds = self._dice.uniform(0, 20)
        return lambda: self._submit(name, seconds, "--preemptible")

    def _held(self, name: str) -> Callable[[], None]:
        seconds, pause = self._dice.uniform(0, 6), self._dice.uniform(0, 5)

        def does() -> None:
            self._submit(name, seconds)
            self._until_done("hold", name, once=True)
            time.sleep(pause)
            self._until_done("release", name)

        return does

    def _cancelled(self, name: str) -> Callable[[], None]:
        pause = self._dice.uniform(0, 8)

        def does() -> None:
            self._submit(name, 30)
            time.sleep(pause)
            self._journal.write("cancelled", {"job": f"{USER}/{name}", "time": now()})
            self._until_done("cancel", name)

        return does

    # -- commands

    def _submit(
        self,
        name: str,
        seconds: float,
        *options: str,
        tasks: int = 1,
        failures: int = 0,
        fails: int = 0,
        child: list[str] | None = None,
    ) -> None:
        """Submits a job until that is accepted, or until the run gives up.

        Args:
            failures: how often each task fails before it succeeds.
            fails: after how many failures of a task the job is to fail; 0: never.
        """
        program = self._program(seconds, failures, child or [])
        common = ("-q", "-n", name, "--no-workspace", *SMALL, *options)
        while not self.given_up.is_set():
            done = self._iris("submit", *common, "--", *program)
            # A submission whose answer was lost may have been accepted.
            if (done is not None and done.code == 0) or self._exists(name):
                job = f"{USER}/{name}"
                self._journal.write("accepted", {"job": job, "tasks": tasks, "fails": fails})
                self.accepted.append(job)
                return
            time.sleep(AGAIN)

    def _exists(self, name: str) -> bool:
        shown = self._iris("status", name, "--json")
        return shown is not None and shown.code == 0

    def _program(
        self, seconds: float, failures: int = 0, child: list[str] | None = None
    ) -> list[str]:
        program = [sys.executable, str(PROGRAM), str(self._journal.directory)]
        program += ["--seconds", f"{seconds:.1f}", "--fails", str(failures)]
        program += ["--again", LATER] if seconds > float(LATER) else []
        return [*program, *(["--child", json.dumps(child)] if child else [])]

    def _until_done(self, verb: str, name: str, *, once: bool = False) -> None:
        """Repeats a command until it is done, or the job has ended."""
        while not self.given_up.is_set():
            done = self._iris(verb, name)
            if once or (done is not None and done.code == 0) or f"{USER}/{name}" in self.seen:
                return
            time.sleep(AGAIN)

    def _iris(self, *arguments: str) -> Ran | None:
        """Runs a command; None: it was ended, because it took too long."""
        running = self._cluster.begin(*arguments)
        try:
            code = running.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
            return None
        finally:
            if "Traceback" in running.err:
                self._journal.write("commands", {"command": arguments[0], "said": running.err})
        return Ran(code, running.out.encode(), running.err)

    def _safely(self, does: Callable[[], None]) -> None:
        try:
            does()
        except Exception as error:
            self.errors.append(repr(error))
        finally:
            with self._lock:
                self._finished += 1
