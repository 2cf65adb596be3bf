"""What each kind of fault does to a cluster, and how it ends. `plan` chooses among them."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psutil

from tests.chaos.clocks import step
from tests.chaos.cluster import CONTROLS, HOSTS, ChaosCluster
from tests.chaos.journal import Journal, now
from tests.chaos.links import Mode
from tests.chaos.plan import Fault
from tests.chaos.services import continue_processes, stop_processes

#: The targets of each group that every run has.
TARGETS = {
    "hosts": HOSTS,
    "controls": CONTROLS,
    "stores": ("store",),
    "disks": ("h3",),
    "clocks": (*HOSTS, *CONTROLS),
    "clouds": ("cloud",),
}
#: The delay of a slow link, in seconds.
SLOW = 0.4
#: By how much a clock is wrong, in seconds.
STEP = 3600

#: The faults of `Trouble` from which a cluster recovers within a run. An operation of Google that is
#: stuck delays its slice by ten minutes.
CLOUD_FAULTS = (
    *("preempt", "vanish", "breaks", "reboot"),
    *("stock_out", "zone_down", "storm", "drop", "lists"),
)

Facts = dict[str, Any]
Does = Callable[[ChaosCluster, str], AbstractContextManager[Facts]]


@contextmanager
def killed(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """An agent or a control plane; what it has started goes on."""
    part = cluster.parts[target]
    part.kill()
    yield {}
    part.begin()


@contextmanager
def host_killed(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    cluster.kill_host(target)
    yield {}
    cluster.parts[target].begin()


@contextmanager
def frozen(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """An agent or a control plane; what it has started goes on."""
    with _stopped([psutil.Process(cluster.parts[target].pid)]):
        yield {}


@contextmanager
def host_frozen(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """Everything on a host, also what was being started."""
    found: list[psutil.Process] = []
    while new := [each for each in cluster.host_processes(target) if each not in found]:
        stop_processes(new)
        found += new
    yield {"frozen_hosts": [target]}
    # Programs first, so that they run before anything can end them.
    continue_processes(found[::-1])


def linked(mode: Mode = Mode.OPEN, delay: float = 0.0) -> Does:
    """Returns the fault of a link."""

    @contextmanager
    def fault(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
        cluster.links[target].turn(mode, delay)
        yield {}
        cluster.links[target].turn()

    return fault


@contextmanager
def service_killed(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    cluster.service.kill(target)
    yield {}
    cluster.service.begin(target)


@contextmanager
def service_frozen(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    with _stopped(cluster.service.processes(target)):
        yield {}


@contextmanager
def disk_full(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """No byte is free. What is freed meanwhile can be used again."""
    junk = cluster.disks[target] / "junk"
    with junk.open("wb") as file:
        # The file system takes some blocks for itself, and others write meanwhile.
        while (free := _free(file.fileno())) > 0:
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
                continue
            break
    yield {}
    junk.unlink()


def _free(file: int) -> int:
    found = os.fstatvfs(file)
    return found.f_bavail * found.f_frsize


@contextmanager
def store_away(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """The directory is not there, as when its mount is lost."""
    elsewhere = cluster.store.with_name("elsewhere")
    cluster.store.rename(elsewhere)
    yield {}
    elsewhere.rename(cluster.store)


def stepped(seconds: int) -> Does:
    """Returns the fault of a clock that is set, and set right at the end."""

    @contextmanager
    def fault(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
        step(cluster.clock(target), seconds)
        yield {}
        step(cluster.clock(target), 0)

    return fault


@contextmanager
def cloud_trouble(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """Something that a cloud does: it takes machines back, has none, or answers with errors."""
    before = cluster.trouble.happened.copy()
    cluster.trouble.goes_wrong(*CLOUD_FAULTS)
    yield {"what": [*(cluster.trouble.happened - before)]}
    cluster.trouble.passes()


@contextmanager
def cloud_killed(cluster: ChaosCluster, target: str) -> Iterator[Facts]:
    """Its machines go on."""
    cluster.google.kill()
    yield {}
    cluster.google.restart()


@contextmanager
def _stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    stop_processes([*processes])
    try:
        yield
    finally:
        continue_processes([*processes])


DOES: dict[str, Does] = {
    "kill agent": killed,
    "freeze agent": frozen,
    "kill host": host_killed,
    "freeze host": host_frozen,
    "link silent": linked(Mode.SILENT),
    "link deaf": linked(Mode.DEAF),
    "link mute": linked(Mode.MUTE),
    "link cut": linked(Mode.CUT),
    "link slow": linked(delay=SLOW),
    "kill control": killed,
    "freeze control": frozen,
    "control silent": linked(Mode.SILENT),
    "kill server": service_killed,
    "freeze server": service_frozen,
    "store full": disk_full,
    "store away": store_away,
    "disk full": disk_full,
    "clock ahead": stepped(STEP),
    "clock behind": stepped(-STEP),
    "cloud trouble": cloud_trouble,
    "kill cloud": cloud_killed,
    "kill database": service_killed,
    "freeze database": service_frozen,
}


class Faults:
    """Carries out a plan, each fault in a thread of its own."""

    def __init__(self, cluster: ChaosCluster, plan: Sequence[Fault], journal: Journal) -> None:
        self._cluster, self._plan, self._journal = cluster, plan, journal
        self._threads: list[threading.Thread] = []
        self._given_up = threading.Event()
        #: The end of a fault may take longer than planned: the next one of its target waits for it.
        self._locks = {fault.target: threading.Lock() for fault in plan}
        #: What went wrong with the faults themselves.
        self.errors: list[str] = []

    def run(self) -> None:
        """Returns when the last fault has ended. If the run is given up, all faults end at once."""
        try:
            self._run()
        except BaseException:
            self._given_up.set()
            self._join()
            raise

    def _run(self) -> None:
        began = time.monotonic()
        for fault in self._plan:
            time.sleep(max(0.0, began + fault.at - time.monotonic()))
            thread = threading.Thread(target=self._do, args=(fault,))
            thread.start()
            self._threads.append(thread)
        self._join()
        self._cluster.trouble.calm()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _do(self, fault: Fault) -> None:
        with self._locks[fault.target]:
            self._do_alone(fault)

    def _do_alone(self, fault: Fault) -> None:
        begin, facts = now(), dict[str, Any]()
        try:
            with DOES[fault.kind](self._cluster, fault.target) as facts:
                self._given_up.wait(fault.lasts)
        except Exception as error:
            self.errors.append(f"{fault}: {error!r}")
        row = {"kind": fault.kind, "target": fault.target, "begin": begin, "end": now()}
        self._journal.write("faults", row | facts)
