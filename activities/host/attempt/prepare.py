"""Prepares an attempt before its program starts: files, ports, environment, container. Every step
can be repeated.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.environment.job_files import reading_the_jobs_files
from iris.activities.host.environment.set_up import Places, ProgramFiles, Ready, set_up
from iris.activities.host.files.bundles import row_of
from iris.activities.host.files.caches import DISK_FAULT
from iris.activities.host.files.checkpoint_files import FOLDER
from iris.activities.host.files.restore import restore
from iris.activities.host.runtimes.base import HostFault, JobFault, Launch, Runtime
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.process.job_users import files_of
from iris.activities.host.runtimes.threads import in_thread
from iris.activities.host.runtimes.variables import Prepared, attempt_env, needs_own_coordinator
from iris.messages.task import RunTask
from iris.metrics.declared import SET_UP_DURATION
from iris.model import names, store_paths
from iris.model.job import bundles
from iris.model.job.arrays import substituted, task_values
from iris.model.job.environments import has_digest
from iris.model.units import MIB, format_bytes

#: The least free disk space with which a program is started, in bytes. With less space, the program
#: could not write its first lines.
MIN_FREE_BYTES = 4 * MIB
#: The command that runs a task's function. It uses the interpreter that is recorded with the
#: function, if this host has this interpreter, and otherwise the first `python` or `python3` on
#: PATH. Some machines and images have only one of these two names.
CALL = (
    "sh",
    "-c",
    (
        f'python="$(cat "${names.ENV_CALL_DIR}/{bundles.PYTHON}" 2>/dev/null)"; '
        '[ -x "$python" ] || python="$(command -v python || echo python3)"; '
        f'exec "$python" "${names.ENV_CALL_DIR}/{bundles.SCRIPT}"'
    ),
)
#: The value of the variables USER and LOGNAME if a program runs as a user of its own. This user has
#: only a uid, and no name on the host.
USER_NAME = "iris-job"
#: The name of the reserved port on which a task runs a JAX coordinator of its own. The program
#: learns the port only from the environment variable that JAX reads.
COORDINATOR = "coordinator"


def has_attempts(directory: Path, besides: Path | None = None) -> bool:
    """Returns whether the directory contains attempts, which may use its disk.

    Args:
        besides: the directory of an attempt that does not count.
    """
    return any(each != besides for each in directory.iterdir())


class Built(NamedTuple):
    """A program that is ready to be started."""

    launch: Launch
    #: The descriptors of the locks on the program's ports, GPUs and cached environment. They stay
    #: open while the program lives. The caller of `build` closes its own copies.
    keep: tuple[int, ...]
    ports: dict[str, int]
    #: The values of the job's secrets, by variable. They are not in `launch`, because a launch is
    #: written to the disk.
    secrets: Mapping[str, SecretStr]
    #: The UUIDs of the GPUs that the program can use.
    gpus: tuple[str, ...]


class Listeners(NamedTuple):
    """The functions that receive texts for the user while an attempt is prepared."""

    #: Receives each line that is written to the log.
    log: Callable[[str], object]
    #: Receives the present step, which the status of the task shows; an empty text when the step
    #: ends.
    status: Callable[[str], object]


class _Reserved(NamedTuple):
    """The ports and GPUs that the attempt has locked."""

    ports: dict[str, int]
    gpus: tuple[str, ...] | None
    #: The port for JAX's coordinator; None if the task needs no coordinator of its own.
    coordinator_port: int | None
    #: The descriptors of the locks on the ports and GPUs.
    keep: tuple[int, ...]


class _Fetched(NamedTuple):
    """The program's files on this host."""

    #: The directory of all files of the program.
    root: Path
    #: The directory in which the program starts.
    workdir: Path
    #: The directory of the function call; None if the task does not run a function.
    call: Path | None
    #: The task's row of the job's parameter table, as values by column; empty if the job has no
    #: table.
    row: Mapping[str, str]


async def build(
    context: HostContext,
    task: RunTask,
    directory: Path,
    runtime: Runtime,
    listeners: Listeners,
    *,
    trace: str = "",
) -> Built:
    """Prepares the attempt. The output of the set-up goes into the file `build` of its directory.

    Args:
        trace: the program's variable `TRACEPARENT`; empty for none.

    Raises:
        JobFault: the attempt cannot start on any host, because of its secrets, bundle, image,
            environment or directory.
        HostFault: this host cannot prepare the attempt, at least not now.
    """
    preparation = _Preparation(context, task, directory, runtime, listeners, trace)
    with _measured():
        return await _build(preparation)


@contextlib.contextmanager
def _measured() -> Iterator[None]:
    """Measures the block as the preparation of an attempt, unless it is cancelled."""
    began, result = time.monotonic(), "ready"
    try:
        yield
    except JobFault:
        result = "job_fault"
        raise
    except HostFault:
        result = "host_fault"
        raise
    except BaseException:
        result = ""
        raise
    finally:
        if result:
            SET_UP_DURATION.add(time.monotonic() - began, result)


async def _build(preparation: "_Preparation") -> Built:
    context, task, runtime = preparation.context, preparation.task, preparation.runtime
    preparation.check()
    # The secrets are first: if one is missing, the other steps would be useless.
    secrets = await context.secrets.values(task.secrets, task.job)
    with contextlib.ExitStack() as undo:
        reserved = preparation.reserve(undo)
        await preparation.prepare_runtime()
        files, host_env = await preparation.make_files()
        await preparation.restore_checkpoint(files)
        fetched = await preparation.fetch(files)
        env = preparation.variables(host_env, files, fetched, reserved)
        ready = await preparation.set_up(env, files, fetched)
        undo.callback(ready.release)
        launch = await runtime.launch(
            _command(task, fetched), ready.env, fetched.workdir, read=ready.read
        )
        undo.pop_all()
    keep, gpus = (*reserved.keep, *ready.keep), context.usable_gpus(task, reserved.gpus)
    return Built(launch, keep, reserved.ports, secrets, gpus)


@dataclass(frozen=True)
class _Preparation:
    """The steps that prepare one attempt, in the order in which `build` calls them."""

    context: HostContext
    task: RunTask
    #: The directory of the attempt.
    directory: Path
    runtime: Runtime
    listeners: Listeners
    trace: str

    def check(self) -> None:
        """Checks what the task requests, and the free space of the host's disk."""
        image = self.context.image_of(self.task)
        if image and self.context.require_digests and not has_digest(image):
            why = (
                "names the image by a tag, which can be changed to another image, and this cluster"
                " requires digests"
            )
            raise JobFault(
                f"{image} {why} (bootstrap.require_image_digests); use NAME@sha256:…", 126
            )
        users = self.context.users_of(self.task)
        free = shutil.disk_usage(users.directory if users else self.directory).free
        if free < MIN_FREE_BYTES:
            raise HostFault(
                f"the disk for tasks is full on this host: {format_bytes(free)} are free",
                DISK_FAULT,
            )

    def reserve(self, undo: contextlib.ExitStack) -> _Reserved:
        """Locks the ports and GPUs of the attempt. `undo` releases them."""
        context, task = self.context, self.task
        ports = context.ports.take(task.ports)
        undo.callback(_close, ports.keep)
        meeting = context.ports.hold(port) if (port := task.coordinator_port) is not None else ()
        undo.callback(_close, meeting)
        taken = context.gpus_of(task)
        of_gpus = () if taken is None else taken.keep
        undo.callback(_close, of_gpus)
        needs_own = needs_own_coordinator(task, context.accelerators.tpu)
        own = context.ports.take((COORDINATOR,) if needs_own else ())
        undo.callback(_close, own.keep)
        return _Reserved(
            ports.numbers,
            None if taken is None else taken.names,
            own.numbers.get(COORDINATOR),
            (*ports.keep, *own.keep, *meeting, *of_gpus),
        )

    async def prepare_runtime(self) -> None:
        """Gets the image, if the program runs in a container."""
        if image := self.context.image_of(self.task):
            self.listeners.status(f"getting the image {image}")
        await self.runtime.prepare()
        self.listeners.status("")

    async def make_files(self) -> tuple[Path, Mapping[str, str]]:
        """Makes the attempt's directories.

        Returns:
            The directory that contains them, and the host's variables for the program.
        """
        context, task = self.context, self.task
        users, in_container = context.users_of(task), bool(context.image_of(task))

        def make(_: object) -> tuple[Path, Mapping[str, str]]:
            if users is None:
                files = _make_files(self.directory, task, in_container=in_container)
            else:
                files = users.make_files(self.directory)
            return files, context.host_env(task)

        return await in_thread(make)

    async def restore_checkpoint(self, files: Path) -> None:
        """Restores the last save of the task, or of the task that it starts from."""
        task = self.task
        if not task.checkpoints or (task.attempt == 1 and not task.from_checkpoint):
            return
        restored = await restore(
            self.context.store,
            task.checkpoints,
            self.directory,
            files,
            self.runtime.owner,
            start_from=task.from_checkpoint,
            announce=self.listeners.status,
        )
        if restored:
            self.listeners.log(restored)
            self.listeners.status("")

    async def fetch(self, files: Path) -> _Fetched:
        """Unpacks the bundle, the call and the array's row of the task."""
        context, task = self.context, self.task
        if task.bundle is not None and task.workdir is not None:  # no client sends such a task
            raise JobFault(
                "a task with a bundle cannot have a workdir: the bundle is unpacked into a"
                " directory of the attempt",
                2,
            )
        root = Path(task.workdir) if task.workdir is not None else files / "work"
        if task.bundle is not None:
            await context.bundles.unpack(task.bundle, root, self.runtime.owner)
        call = None
        if task.call is not None:
            call = files / "call"
            await context.bundles.unpack(task.call, call, self.runtime.owner)
        row = await row_of(context.bundles, task, self.directory / "array")
        await self._apply_umask(root)
        workdir = root / task.environment.project if task.bundle is not None else root
        with reading_the_jobs_files():
            exists = task.bundle is None or workdir.is_dir()
        if not exists:
            raise JobFault(
                f"the submitted workspace has no directory {task.environment.project!r}; add the"
                " directory to the workspace, and submit the job again",
                2,
            )
        return _Fetched(root, workdir, call, row)

    async def _apply_umask(self, root: Path) -> None:
        umask = self.context.umask
        if self.task.workdir is not None or umask < 0:
            return
        if self.task.bundle is not None:
            await in_thread(lambda _: _set_modes(root, umask))
        else:
            root.chmod(0o777 & ~umask)  # the directory is empty

    def variables(
        self, host_env: Mapping[str, str], files: Path, fetched: _Fetched, reserved: _Reserved
    ) -> dict[str, str]:
        """Returns the variables of the program, except for those of its environment's packages."""
        context, task = self.context, self.task
        own = {} if context.users_of(task) is None else _own_env(files)
        prepared = Prepared(
            workdir=fetched.workdir,
            outputs=files / "outputs",
            checkpoint=files / FOLDER,
            checkpoint_url=_checkpoint_url(context, task),
            call=fetched.call,
            params=fetched.row,
            ports=reserved.ports,
            tpu=context.accelerators.tpu,
            gpus=reserved.gpus,
            coordinator_port=reserved.coordinator_port,
        )
        return attempt_env(
            task,
            {**host_env, **own, **({names.ENV_TRACEPARENT: self.trace} if self.trace else {})},
            context.cluster,
            context.host,
            prepared,
            defaults=context.env_vars,
            contact=context.contact(task),
        )

    async def set_up(self, env: Mapping[str, str], files: Path, fetched: _Fetched) -> Ready:
        """Makes the environment with the packages of the program."""
        task = self.task
        # Only the attempt's own copy of a project is synced: in a directory of the user, a sync
        # would write a lock file.
        unsynced = {} if task.bundle is not None else {"sync": False}
        return await set_up(
            task.environment.model_copy(update=unsynced),
            self.runtime,
            ProgramFiles(
                fetched.workdir,
                fetched.root,
                content=task.bundle.sha256 if task.bundle is not None else "",
            ),
            env,
            self.context.environments(task),
            Places(files / "environment", self.directory / "build"),
            announce=self.listeners.status,
        )


def _command(task: RunTask, fetched: _Fetched) -> tuple[str, ...]:
    if fetched.call is not None:
        return CALL
    if task.array is None:
        return task.command
    values = task_values(task.index, fetched.row)
    return tuple(substituted(word, values) for word in task.command)


def is_final(directory: Path) -> bool:
    """Returns whether the program of this attempt has written the file that says that another
    attempt would end in the same way.
    """
    mark = files_of(directory) / "outputs" / bundles.FINAL
    return os.path.exists(mark)  # noqa: PTH110 Path raises for a folder that the job has closed


def _checkpoint_url(context: HostContext, task: RunTask) -> str:
    """Returns the place in the store where the program can save checkpoints itself; empty if the
    program cannot reach the store.

    Containers and programs with users of their own cannot reach a store that is a directory of the
    agent's user.
    """
    closed = context.store.url.startswith("file:") and (
        context.image_of(task) or context.users_of(task)
    )
    return (
        ""
        if closed or not task.checkpoints
        else f"{context.store.url}/{store_paths.shared_checkpoints(task.checkpoints)}"
    )


def _own_env(files: Path) -> dict[str, str]:
    """Returns the variables of a job with a user of its own, instead of those of the agent's
    user.
    """
    return {
        "HOME": str(files / "home"),
        "TMPDIR": str(files / "tmp"),
        "USER": USER_NAME,
        "LOGNAME": USER_NAME,
    }


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _set_modes(workdir: Path, umask: int) -> None:
    """Sets the modes of the directories of the program's files as the user's umask requires.

    So a program that changes its user can still read them. Other users cannot reach them, because
    the attempt's directory above them is private.
    """
    for visit in trees.visits(workdir):
        if not visit.left:
            os.fchmod(visit.at, 0o777 & ~umask)


def _make_files(directory: Path, task: RunTask, *, in_container: bool) -> Path:
    """Makes the directories of an attempt without a user of its own, and returns the directory that
    contains them.

    A process gets only the directories that it uses: on ext4, a new file takes longer after many
    files were deleted.
    """
    used = {
        "work": True,
        "call": task.call is not None,
        "environment": bool(task.environment.setup),
    }
    for name in (name for name, is_used in used.items() if is_used or in_container):
        _make_fresh(directory / name)
    (directory / "outputs").mkdir(exist_ok=True)
    (directory / FOLDER).mkdir(exist_ok=True)
    return directory


def _make_fresh(directory: Path) -> None:
    """Makes an empty directory, and first removes what an agent that died has left there."""
    try:
        directory.mkdir()
    except FileExistsError:
        trees.remove(directory)
        directory.mkdir()
