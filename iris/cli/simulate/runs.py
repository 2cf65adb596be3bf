"""Runs simulations, each in a process of its own if this machine has several cores."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import NamedTuple

from iris.model.errors import IrisError
from iris.simulation.engine import Cluster, simulate
from iris.simulation.history import History
from iris.simulation.report.answers import Answers, answers_of
from iris.simulation.report.results import Results
from iris.simulation.trace import Trace
from iris.simulation.world import World
from iris.usage.accounting import Accounting


class Configuration(NamedTuple):
    """A configuration to simulate."""

    #: The name under which the report shows the configuration.
    name: str
    cluster: Cluster
    accounting: Accounting


class Simulated(NamedTuple):
    """The results of the simulations of one configuration."""

    results: Results
    #: The history of the simulation with the first seed; None if the histories were not kept.
    first: History | None = None


class _Run(NamedTuple):
    """One simulation to run: the index of its configuration, and its seed."""

    number: int
    seed: int
    #: True if the result contains the whole history of the simulation, in addition to the values
    #: that the report shows.
    keeps_history: bool


class _Found(NamedTuple):
    answers: Answers
    history: History | None


class _Work(NamedTuple):
    """The input that all simulations of one command share."""

    configurations: Sequence[Configuration]
    trace: Trace
    world: World

    def do(self, run: _Run) -> _Found:
        """Runs one simulation."""
        _, cluster, accounting = self.configurations[run.number]
        history = simulate(cluster, self.trace, self.world, run.seed)
        return _Found(answers_of(history, accounting), history if run.keeps_history else None)


def simulate_all(
    configurations: Sequence[Configuration],
    trace: Trace,
    world: World,
    seeds: Sequence[int],
    *,
    progress: Callable[[str], None] = lambda _: None,
    histories: bool = False,
) -> list[Simulated]:
    """Simulates each configuration with each seed.

    Args:
        progress: called with a text about how many simulations have ended.
        histories: whether to return what happened with the first seed.

    Raises:
        IrisError: a process was killed.
    """
    work = _Work(configurations, trace, world)
    runs = [
        _Run(number, seed, histories and seed == seeds[0])
        for seed in seeds
        for number in range(len(configurations))
    ]
    processes = min(_cores(), len(runs))
    found: dict[tuple[int, int], _Found] = {}
    progress(f"simulating: 0 of {len(runs)} have ended")
    for run, result in (
        _here(work, runs) if processes == 1 else _in_processes(work, runs, processes)
    ):
        found[run.number, run.seed] = result
        progress(f"simulating: {len(found)} of {len(runs)} have ended")
    return [
        _joined(each.name, seeds, [found[number, seed] for seed in seeds])
        for number, each in enumerate(configurations)
    ]


def _joined(name: str, seeds: Sequence[int], found: Sequence[_Found]) -> Simulated:
    answers = tuple(each.answers for each in found)
    return Simulated(Results(name, tuple(seeds), answers), found[0].history)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # macOS lacks it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _here(work: _Work, runs: Sequence[_Run]) -> Iterator[tuple[_Run, _Found]]:
    for run in runs:
        yield run, work.do(run)


def _in_processes(
    work: _Work, runs: Sequence[_Run], processes: int
) -> Iterator[tuple[_Run, _Found]]:
    """Yields the results as they come. The processes end with this one, whatever ends it."""
    # A fork would copy the locks of other threads, such as those of Temporal's client.
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(work,)
    )
    try:
        with _without_interrupts():  # Ctrl-C reaches all processes of a terminal; this one answers
            asked = {pool.submit(_do, run): run for run in runs}
        for each in as_completed(asked):
            yield asked[each], each.result()
    except BrokenProcessPool:
        text = "a simulation was killed, probably for lack of memory; try fewer gangs"
        raise IrisError(text) from None
    finally:
        for child in multiprocessing.active_children():
            child.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks Ctrl-C, which processes that begin meanwhile never get. It comes later to this one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: The input of the simulations that this worker process runs; empty before `_begin`.
_work: list[_Work] = []


def _begin(work: _Work) -> None:
    """Prepares a process."""
    _work.append(work)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(run: _Run) -> _Found:
    (work,) = _work
    return work.do(run)
