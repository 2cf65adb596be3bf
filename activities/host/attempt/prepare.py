"""Prepares an attempt before its program starts: files, ports, environment, container. All of it
can be repeated.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.environment.projects import reading_the_jobs_files
from iris.activities.host.environment.set_up import set_up
from iris.activities.host.files.bundles import row_of
from iris.activities.host.files.caches import DISK_FAULT
from iris.activities.host.files.checkpoint_files import FOLDER
from iris.activities.host.files.restore import restore
from iris.activities.host.machine.ports import COORDINATOR_FAULT
from iris.activities.host.runtimes.base import HostFault, JobFault, Launch, Runtime
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.environment import attempt_env, needs_own_coordinator
from iris.activities.host.runtimes.process.job_users import USERS_FAULT, files_of
from iris.activities.host.runtimes.threads import in_thread
from iris.messages.task import RunTask
from iris.model import names
from iris.model.job import bundles
from iris.model.job.arrays import substituted, task_values
from iris.model.job.environments import has_digest
from iris.model.units import MIB, format_bytes

#: The least free disk space, in bytes. With less, a program could not even write its first lines.
MIN_FREE_BYTES = 4 * MIB
#: The faults that other attempts cause, which may be those of other agents of the machine.
CAUSED_BY_OTHERS = (USERS_FAULT, COORDINATOR_FAULT)


#: The command that runs a task's function: in the interpreter that the call names, if this host has
#: it, else in the first one on PATH. Some machines and images have only one of the two names of
#: Python.
CALL = (
    "sh",
    "-c",
    (
        f'python="$(cat "${names.ENV_CALL_DIR}/{bundles.PYTHON}" 2>/dev/null)"; '
        '[ -x "$python" ] || python="$(command -v python || echo python3)"; '
        f'exec "$python" "${names.ENV_CALL_DIR}/{bundles.SCRIPT}"'
    ),
)
#: The name that programs show for a user who has only a number.
USER_NAME = "iris-job"
#: Names the port of a task that needs a coordinator of its own; the program sees it in the variable
#: for JAX only.
COORDINATOR = "coordinator"


def has_attempts(directory: Path, besides: Path | None = None) -> bool:
    """Returns whether the attempts' directory has any that may use its disk, besides this one."""
    return any(each != besides for each in directory.iterdir())


class Built(NamedTuple):
    """A program that is ready to be started."""

    launch: Launch
    #: Descriptors of locks on what the program uses, open for as long as it lives. The caller of
    #: `build` closes its own copies.
    keep: tuple[int, ...]
    ports: dict[str, int]
    #: The values of further variables of the program, which its launch does not have.
    secrets: Mapping[str, SecretStr]


class Listeners(NamedTuple):
    """What is called with texts for the user while an attempt is prepared."""

    #: With a line for the log.
    log: Callable[[str], object]
    #: With what is done now, for the status of the task; empty: nothing that may take long.
    status: Callable[[str], object]


async def build(
    context: HostContext, task: RunTask, directory: Path, runtime: Runtime, listeners: Listeners
) -> Built:
    """Prepares the attempt. The output of the set-up goes into the file `build` of its directory.

    Raises:
        JobFault: the attempt cannot start on any host, because of its secrets, bundle, image,
            environment or directory.
        HostFault: this host cannot prepare the attempt, or not now.
    """
    image = context.image_of(task)
    if image and context.require_digests and not has_digest(image):
        why = (
            "names the image by a tag, which can be changed to another image, and this cluster"
            " requires digests"
        )
        raise JobFault(f"{image} {why} (bootstrap.require_image_digests); use NAME@sha256:…", 126)
    users = context.users_of(task)
    if (free := shutil.disk_usage(users.directory if users else directory).free) < MIN_FREE_BYTES:
        raise HostFault(
            f"the disk for tasks is full on this host: {format_bytes(free)} are free", DISK_FAULT
        )
    secrets = await context.secrets.values(
        task.secrets, task.job
    )  # first: if one is missing, the rest of the work is for nothing
    with contextlib.ExitStack() as undo:
        ports, gpus = context.ports.take(task.ports), None
        undo.callback(_close, ports.keep)
        meeting = context.ports.hold(port) if (port := task.coordinator_port) is not None else ()
        undo.callback(_close, meeting)
        if (taken := context.gpus_of(task)) is not None:
            gpus = taken.names
            undo.callback(_close, taken.keep)
        own = context.ports.take(
            (COORDINATOR,) if needs_own_coordinator(task, context.accelerators.tpu) else ()
        )
        undo.callback(_close, own.keep)
        if image:
            listeners.status(f"getting the image {image}")
        await runtime.prepare()
        listeners.status("")

        def begin(_: object) -> tuple[Path, Mapping[str, str]]:
            made = (
                _make_files(directory, task, in_container=bool(image))
                if users is None
                else users.make_files(directory)
            )
            return made, context.host_env(task)

        files, host_env = await in_thread(begin)
        if (
            task.bundle is not None and task.workdir is not None
        ):  # no job has both, but somebody may send one
            raise JobFault(
                "a task with a bundle has no workdir: its files are unpacked into a directory of"
                " its own",
                2,
            )
        if task.checkpoints and (task.attempt > 1 or task.from_checkpoint):
            saves, other, tell = task.checkpoints, task.from_checkpoint, listeners.status
            if restored := await restore(
                context.store,
                saves,
                directory,
                files,
                runtime.owner,
                start_from=other,
                announce=tell,
            ):
                listeners.log(restored)
                listeners.status("")
        root = Path(task.workdir) if task.workdir is not None else files / "work"
        if task.bundle is not None:
            await context.bundles.unpack(task.bundle, root, runtime.owner)
        call = None
        if task.call is not None:
            call = files / "call"
            await context.bundles.unpack(task.call, call, runtime.owner)
        row = await row_of(context.bundles, task, directory / "array")
        if task.workdir is None and context.umask >= 0:
            if task.bundle is not None:
                await in_thread(lambda _: _set_modes(root, context.umask))
            else:
                root.chmod(0o777 & ~context.umask)  # it is empty
        workdir = root / task.environment.project if task.bundle is not None else root
        with reading_the_jobs_files():
            exists = task.bundle is None or workdir.is_dir()
        if not exists:
            raise JobFault(
                f"the workspace has no directory {task.environment.project!r}; submit it, too", 2
            )
        env = attempt_env(
            task,
            host_env if users is None else {**host_env, **_own_env(files)},
            context.cluster,
            context.host,
            defaults=context.env_vars,
            contact=context.contact_env,
            workdir=workdir,
            outputs=files / "outputs",
            checkpoint=files / FOLDER,
            checkpoint_url=_checkpoint_url(context, task),
            call=call,
            params=row,
            ports=ports.numbers,
            tpu=context.accelerators.tpu,
            gpus=gpus,
            coordinator_port=own.numbers.get(COORDINATOR),
        )
        # Only the attempt's own copy of a project is synced: in a directory of the user, a sync
        # would write a lock file.
        wanted = task.environment.model_copy(
            update={} if task.bundle is not None else {"sync": False}
        )
        ready = await set_up(
            wanted,
            runtime,
            workdir,
            env,
            context.environments(task),
            files / "environment",
            directory / "build",
            root=root,
            content=task.bundle.sha256 if task.bundle is not None else "",
            announce=listeners.status,
        )
        undo.callback(ready.release)
        command = task.command
        if task.array is not None:
            values = task_values(task.index, row)
            command = tuple(substituted(word, values) for word in command)
        launch = await runtime.launch(
            CALL if call is not None else command, ready.env, workdir, read=ready.read
        )
        undo.pop_all()
        keep = (*ports.keep, *own.keep, *meeting, *(taken.keep if taken else ()), *ready.keep)
        return Built(launch, keep, ports.numbers, secrets)


def is_final(directory: Path) -> bool:
    """Returns whether the program of this attempt has left the mark that another attempt would end
    in the same way.
    """
    mark = files_of(directory) / "outputs" / bundles.FINAL
    return os.path.exists(mark)  # noqa: PTH110 Path raises for a folder that the job has closed


def _checkpoint_url(context: HostContext, task: RunTask) -> str:
    """Returns where in the store the program can store checkpoints itself; empty: nowhere.

    A directory of the agent's user as a store is closed to containers and to programs with users of
    their own.
    """
    closed = context.store.url.startswith("file:") and (
        context.image_of(task) or context.users_of(task)
    )
    return (
        ""
        if closed or not task.checkpoints
        else f"{context.store.url}/{names.shared_checkpoints(task.checkpoints)}"
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
    """Gives the directories of the program's files the modes that the user's umask gives.

    So a program that changes its user can still read them. Other users cannot reach them, because
    the attempt's directory above them is private.
    """
    for visit in trees.visits(workdir):
        if not visit.left:
            os.fchmod(visit.at, 0o777 & ~umask)


def _make_files(directory: Path, task: RunTask, *, in_container: bool) -> Path:
    """Makes the directories of an attempt without a user of its own, and returns the directory in
    which they are.

    A process gets only those that it uses: on ext4, a new file costs the more the more files were
    deleted lately.
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
    """Makes an empty directory; removes what an agent that died has left there."""
    try:
        directory.mkdir()
    except FileExistsError:
        trees.remove(directory)
        directory.mkdir()
