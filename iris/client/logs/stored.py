"""Reads the logs of jobs and of host agents from the object store. This needs neither the host nor
the control plane.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from iris.client.logs.reading import AT_ONCE, Found, Reader, TaskLine
from iris.concurrency import for_each
from iris.model import store_paths
from iris.storage.log_format import Stream
from iris.storage.object_store import Store

__all__ = ["AgentReader", "LogReader", "TaskLine"]

#: The maximum number of tasks whose new attempts one quick search (`find(quick=True)`) looks up. If
#: a job has more tasks, the searches cover them in turns.
FIND_AT_ONCE = 32


class LogReader(Reader):
    """Reads the logs of one run of a job.

    Args:
        task: reads only this task. None reads all tasks.
        attempt: reads only this attempt. None reads all attempts.
        streams, since_ms, position: as for `Reader`.
    """

    def __init__(
        self,
        store: Store,
        job: str,
        run_id: str,
        task: int | None = None,
        attempt: int | None = None,
        *,
        streams: Collection[Stream] | None = None,
        since_ms: int | None = None,
        position: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> None:
        super().__init__(
            store,
            JobLogs(job, run_id, task, attempt),
            streams=streams,
            since_ms=since_ms,
            position=position,
        )


class AgentReader(Reader):
    """Reads the log of one host's agent. Each run of the agent's process counts as an attempt."""

    def __init__(
        self, store: Store, cluster: str, host_id: str, *, since_ms: int | None = None
    ) -> None:
        super().__init__(store, _AgentLogs(cluster, host_id), since_ms=since_ms)


class JobLogs:
    """Finds the logs of one run of a job.

    Args:
        task, attempt: as for `LogReader`.
    """

    def __init__(
        self, job: str, run_id: str, task: int | None = None, attempt: int | None = None
    ) -> None:
        self._job = job
        self._run_id = run_id
        self._task = task
        self._attempt = attempt
        self._turn = 0

    async def find(self, store: Store, *, quick: bool) -> list[Found]:
        root = store_paths.job_logs(self._job, self._run_id)
        tasks = [self._task] if self._task is not None else _numbers(await store.folders(root))
        if quick and len(tasks) > FIND_AT_ONCE:
            self._turn = (self._turn + FIND_AT_ONCE) % len(tasks)
            tasks = (tasks + tasks)[self._turn : self._turn + FIND_AT_ONCE]
        attempts = await for_each(
            tasks, lambda task: store.folders(f"{root}/{task}"), at_once=AT_ONCE
        )
        return [
            Found(task, attempt, store_paths.attempt_logs(self._job, self._run_id, task, attempt))
            for task, folders in zip(tasks, attempts, strict=True)
            for attempt in _numbers(folders)
            if self._attempt in (None, attempt)
        ]


class _AgentLogs:
    """Finds the logs of one host's agent. Each run of the agent's process counts as an attempt."""

    def __init__(self, cluster: str, host_id: str) -> None:
        self._prefix = store_paths.agent_logs(cluster, host_id)

    async def find(self, store: Store, *, quick: bool) -> list[Found]:
        lives = await store.folders(self._prefix)
        return [Found(0, number, f"{self._prefix}/{life}") for number, life in enumerate(lives, 1)]


def _numbers(folders: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in folders if name.isdecimal())
