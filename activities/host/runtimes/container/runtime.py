"""Runs programs in containers of this machine's Docker engine.

The agent fetches the image and creates the container. The shim then starts the container and waits
for its end. The program's output does not go through the engine: a shell in the container opens the
shim's named pipes and then executes the program (`container/init.py`), and the shim writes the
output into the attempt's files.
"""

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from iris.activities.host import runtimes
from iris.activities.host.runtimes.base import HostFault, JobFault, Launch
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.container import engine, images
from iris.activities.host.runtimes.container import init as container_init
from iris.activities.host.runtimes.container.engine import available, clear_host, docker_socket
from iris.activities.host.runtimes.container.programs import fault_of
from iris.activities.host.runtimes.container.rights import places_of, rights
from iris.activities.host.runtimes.shim import shim, start_errors
from iris.activities.host.runtimes.shim.container import of_the_job
from iris.activities.host.runtimes.threads import in_thread
from iris.activities.host.runtimes.variables import base_env
from iris.messages.task import RunTask
from iris.model import names
from iris.model.host.resources import DeviceKind
from iris.model.units import format_bytes

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["DockerRuntime", "available", "clear_host", "docker_socket"]

#: The attempt's directories that a container can read and write, and the directory that a container
#: can only read. No container gets the other files of the attempt, because with them a program
#: could run commands on the host with the agent's rights.
_FILES, _GIVEN = ("work", "call", "outputs", "checkpoint", "environment", "home"), "given"
#: The beginning of the engine's error about a mount of a host directory that does not exist. The
#: path of the directory follows.
_NO_SOURCE = "bind source path does not exist: "
_CERTIFICATES = "SSL_CERT_FILE"
#: The variable that lists the task's GPUs by their UUIDs, or by their numbers on the host.
_CUDA = "CUDA_VISIBLE_DEVICES"

#: The smallest memory limit that the engine accepts, in bytes.
_LEAST_MEMORY = 6 * 1024**2
#: The size limit of /dev/shm. Its used part counts as memory of the task. The engine's default of
#: 64 MiB is too small for data loaders and libtpu.
_SHM = "100g"


class DockerRuntime:
    """Runs the commands of one attempt in containers of an image, on the host's network.

    The container contains the attempt's files, the host's directories that the configuration lists,
    and the parts of the cache of environments that its command needs, all under the same paths as
    on the host. It contains no other file of the host, and none of the files that the agent and the
    shim keep about the attempt.

    The variables that the agent passes on from the host's environment describe the host, so the
    container does not get them. There are two exceptions: the entries of PATH before the host's own
    entries are kept, and the image's entries follow; SSL_CERT_FILE names a copy of the host's file.

    Memory is limited to the request. Cores are not limited: when cores are scarce, each container
    gets a share in proportion to its request. `rights` limits the rights of root in the container.

    Args:
        mounts: directories of the host that the cluster's configuration gives to every container.
        own: the agent's own directories and files, which `mounts` may not include.
        host_env: the variables that the agent passes on to programs from its own environment.
        devices: the directory with the host's accelerators.
        token: returns an access token for images in Google's registries.
    """

    def __init__(
        self,
        image: str,
        task: RunTask,
        host_id: str,
        cluster: str,
        directory: Path,
        *,
        mounts: Sequence[Path] = (),
        own: Sequence[Path] = (),
        host_env: Mapping[str, str] | None = None,
        devices: Path = Path("/dev"),
        token: images.Token = lambda: None,
    ) -> None:
        self._image, self._task, self._dir = image, task, directory
        self._configured, self._own, self._devices = tuple(mounts), tuple(own), devices
        self._host_env = base_env() if host_env is None else host_env
        self._token = token
        self._labels = {
            engine.LABEL_MANAGED: "true",
            engine.LABEL_CLUSTER: cluster,
            engine.LABEL_HOST: host_id,
            engine.LABEL_JOB: task.job,
            engine.LABEL_TASK: names.task_id(task.job, task.index),
            engine.LABEL_KEY: task.key,
            engine.LABEL_DIRECTORY: str(directory),
        }
        #: The id of the image, which `prepare` sets.
        self._image_id = ""
        #: The environment variables of the image, which `prepare` sets.
        self._image_env: dict[str, str] = {}
        #: True if the engine can run an init process in its containers; `prepare` sets it.
        self._init = False
        #: False if `prepare` has found no engine on the host.
        self._engine = True

    @property
    def identity(self) -> str:
        """Implements `Runtime.identity`. Set-up runs code of the user's, so users of one image
        share no environment.
        """
        return f"{self._image_id or self._image} for {self._task.job.partition('/')[0]}"

    @property
    def owner(self) -> int | None:
        """Implements `Runtime.owner`."""
        return None

    @property
    def apart(self) -> bool:
        """Implements `Runtime.apart`."""
        return True

    async def prepare(self) -> None:
        if why := await available():
            self._engine = False
            reason = (
                f"this host has no container engine: {why}; start docker there, or submit without"
                " --image"
            )
            raise HostFault(reason, engine.FAULT)
        await in_thread(self._prepare)

    def _prepare(self, stop: threading.Event) -> None:
        with _appended(self._dir / "build") as output, engine.engine(images.STALL) as docker:
            image = images.get(docker, self._image, output, stop, self._token)
            if image is None:
                return
            self._image_id = str(image.id)
            self._image_env = dict(
                each.split("=", 1) for each in image.attrs["Config"].get("Env") or () if "=" in each
            )
            # The first process of a container gets SIGTERM only if it has a handler. With an init,
            # the program is not the first process.
            self._init = docker.info().get("InitCommit", {}).get("ID") != "N/A"

    async def step(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: Path,
        output: Path,
        *,
        written: Sequence[Path] = (),
        read: Sequence[Path] = (),
    ) -> int:
        def make() -> str:
            _appended(output).close()  # a container can mount only files that exist
            return self._make(
                argv, env, workdir, output, output, written=[*written, output], read=read
            )

        return await in_thread(lambda stop: self._step(make(), output, stop))

    def _step(self, container: str, output: Path, stop: threading.Event) -> int:
        try:
            state = engine.run(container, stop)
        finally:
            with engine.engine() as docker:
                engine.remove(docker, container)
        if state["OOMKilled"]:
            with _appended(output) as file:
                print(
                    "out of memory: the task has"
                    f" {format_bytes(self._task.resources.memory_bytes)}",
                    file=file,
                )
        code = int(state["ExitCode"])
        return 128 - code if 128 < code < 160 else code

    async def launch(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: Path,
        *,
        read: Sequence[Path] = (),
    ) -> Launch:
        # The shim makes these pipes before it starts the container.
        out, err = (
            self._dir / shim.PIPES[0],
            self._dir / shim.PIPES[1],
        )
        container = await in_thread(
            lambda _: self._make(argv, env, workdir, out, err, read=read, waits=True)
        )
        # The launch contains only the variables that identify the shim's process. The container has
        # its own environment.
        recognised = {
            name: value for name, value in env.items() if name.startswith(names.RESERVED_PREFIX)
        }
        return Launch(
            argv=tuple(argv), env=recognised, container=container, docker_socket=docker_socket()
        )

    async def clear(self, *, swept: bool = False) -> None:
        labels = [f"{engine.LABEL_KEY}={self._task.key}", f"{engine.LABEL_DIRECTORY}={self._dir}"]
        if self._engine:
            await engine.clear(labels)

    # -- the container -----------------------------------------------------------------------------

    def _make(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: Path,
        out: Path,
        err: Path,
        *,
        written: Sequence[Path] = (),
        read: Sequence[Path] = (),
        waits: bool = False,
    ) -> str:
        """Creates a container that can run the command, and returns its id.

        Args:
            out: the file or pipe for the standard output.
            err: the file or pipe for the standard error.
            written: files and directories to which the container may write, besides the attempt's
                files.
            read: files and directories that the container may only read.
            waits: True if the container ends with the last process of the command, and not with the
                first.
        """
        places = places_of(self._configured, self._own)
        inside = self._env(env)
        files = [
            path
            for path in (self._dir / name for name in _FILES)
            if path.is_dir() and not path.is_symlink()
        ]
        written, read = [*dict.fromkeys((*files, *written))], [*read, self._given()]
        own = {"secrets": shim.SECRETS, "code": shim.CODE, "look": shim.LOOK}
        pipes = {name: str(self._dir / pipe) for name, pipe in own.items()}
        command = container_init.command(
            argv, out=str(out), err=str(err), **pipes, waits=waits and self._init
        )
        with engine.engine() as docker:
            container = self._create(
                docker,
                env,
                written,
                read,
                places,
                entrypoint=[container_init.SHELL],
                command=command,
                environment=inside | (container_init.TO_ALL if self._init else {}),
                working_dir=str(workdir),
            )
            try:
                look = _Look(docker, container, [*written, *read], self._configured)
                self._check(look, argv, inside["PATH"], workdir)
            except BaseException:
                engine.remove(docker, container)
                raise
        return container

    def _create(
        self,
        docker: "DockerClient",
        env: Mapping[str, str],
        written: Sequence[Path],
        read: Sequence[Path],
        places: Mapping[Path, Path],
        **what: Any,
    ) -> str:
        """Creates a container in the engine. Raises `JobFault` if no engine would create it,
        because of the image or the working directory. Raises `HostFault` if the engine refuses, or
        this host lacks a directory that the configuration lists.
        """
        library = runtimes.docker_library
        writable = {**{path: path for path in written}, **places}
        mounts = [
            library.Mount(str(path), str(place), type="bind") for path, place in writable.items()
        ]
        mounts += [
            library.Mount(str(path), str(path), type="bind", read_only=True) for path in read
        ]
        accelerators = self._accelerators(env)
        try:
            made = docker.api.create_container(
                self._image_id or self._image,
                user=f"{os.getuid()}:{os.getgid()}",
                labels=self._labels,
                host_config=docker.api.create_host_config(
                    network_mode="host",
                    mounts=mounts,
                    init=self._init,
                    log_config=library.LogConfig(type="json-file", config={"max-size": "64k"}),
                    shm_size=_SHM,
                    **self._limits(),
                    **accelerators,
                    **rights(tpu="devices" in accelerators),
                ),
                **what,
            )
        except library.APIError as error:
            _, found, path = str(error.explanation).partition(_NO_SOURCE)
            if found and Path(path) in places.values():
                reason = (
                    f"this host has no directory {path!r}; create it, or remove it from"
                    " bootstrap.mounts"
                )
                raise HostFault(reason, engine.FAULT) from None
            if of_the_job(str(error.explanation)):
                where = (
                    f"the image {self._image!r} cannot run in the working directory"
                    f" {what['working_dir']!r}"
                )
                raise JobFault(f"{where}: {error.explanation}", 126) from None
            raise
        return str(made["Id"])

    def _env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables that the container gets in addition to the image's own."""
        inside = {name: value for name, value in env.items() if self._host_env.get(name) != value}
        hosts = self._host_env.get("PATH", "")
        path = env.get("PATH", hosts)
        if path == hosts or path.endswith(f":{hosts}"):
            path = path.removesuffix(hosts) + self._image_env.get("PATH", engine.PATH)
        inside["PATH"] = path
        # The trusted certificates depend on the network, which is the host's.
        if (
            (trusted := env.get(_CERTIFICATES, ""))
            and _CERTIFICATES not in inside
            and os.access(trusted, os.R_OK)
        ):
            certificates = shutil.copyfile(trusted, self._given() / "certificates.pem")
            certificates.chmod(0o644)
            inside[_CERTIFICATES] = str(certificates)
        gpus = _gpus(env)
        # The container sees only these GPUs, with numbers from 0 on.
        if gpus and not any(gpu.startswith("MIG-") for gpu in gpus):
            inside[_CUDA] = ",".join(map(str, range(len(gpus))))
        if os.getuid() != 0 and "HOME" not in inside:  # HOME of the image belongs to root
            home = self._dir / "home"
            home.mkdir(exist_ok=True)
            inside["HOME"] = str(home)
        return inside

    def _given(self) -> Path:
        """Returns the directory of files that the agent gives to the container. Every user of the
        container can read them. Other users of the host cannot, because the attempt's directory is
        private.
        """
        directory = self._dir / _GIVEN
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        return directory

    def _limits(self) -> dict[str, Any]:
        resources = self._task.resources
        limits = {}
        if resources.cpu_millis:
            limits["cpu_shares"] = min(max(resources.cpu_millis * 1024 // 1000, 2), 262144)
        if resources.memory_bytes:
            memory = max(resources.memory_bytes, _LEAST_MEMORY)
            limits |= {"mem_limit": memory, "memswap_limit": memory}
        return limits

    def _accelerators(self, env: Mapping[str, str]) -> dict[str, Any]:
        """Returns the options that give the container the host's accelerators; none on a host with
        simulated accelerators.
        """
        device = self._task.resources.device
        if device is None:
            return {}
        if device.kind is DeviceKind.GPU:
            if not (self._devices / "nvidiactl").exists():
                return {}
            which = {"device_ids": _gpus(env)} if _gpus(env) else {"count": device.count}
            request = runtimes.docker_library.DeviceRequest(capabilities=[["gpu"]], **which)
            return {"device_requests": [request]}
        # Each chip has a file: accel* for older kinds, a number below vfio for newer ones, which
        # need vfio/vfio as well.
        found = [
            path
            for pattern in ("accel[0-9]*", "vfio/[0-9]*")
            for path in sorted(self._devices.glob(pattern))
        ]
        if not found:
            return {}
        found += self._devices.glob("vfio/vfio")
        return {"devices": [f"{path}:/dev/{path.relative_to(self._devices)}:rw" for path in found]}

    def _check(self, look: "_Look", argv: Sequence[str], path: str, workdir: Path) -> None:
        """Checks that the program, its interpreter and its directory exist, because the exit code
        of a container does not show that. Raises `JobFault` if one of them cannot be used.
        """
        if not look.has_directory(workdir):
            raise JobFault(
                f"the working directory {str(workdir)!r} is not in the image {self._image!r}, and"
                " containers get no directory of the host that bootstrap.mounts does not list;"
                " take your files along with --workspace, or leave out --workdir",
                126,
            )
        shell = container_init.SHELL
        if not (runs := look.at(Path(shell))):
            has = f"has no {shell}" if runs is None else f"has a {shell} that is not executable"
            raise JobFault(
                f"the image {self._image!r} {has}, which is needed to start a program in it", 126
            )
        if fault := fault_of(argv, path, workdir, look, f"the image {self._image!r}"):
            raise JobFault(*fault)


def _appended(file: Path) -> TextIO:
    return os.fdopen(links.open_file(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a")


def _gpus(env: Mapping[str, str]) -> list[str]:
    """Returns the UUIDs or numbers of the task's GPUs; empty if the task may have any GPUs."""
    gpus = env.get(_CUDA, "").split(",")
    return gpus if all(gpu.isdecimal() or gpu.startswith(("GPU-", "MIG-")) for gpu in gpus) else []


class _Look:
    """Examines the files of a container before it is started.

    Args:
        mounted: Iris's own directories in the container.
        configured: other directories of the host in the container. An agent that runs in a
            container itself may not see these directories.
    """

    def __init__(
        self,
        docker: "DockerClient",
        container: str,
        mounted: Sequence[Path],
        configured: Sequence[Path],
    ) -> None:
        self._docker, self._container, self._mounted, self._configured = (
            docker,
            container,
            mounted,
            configured,
        )

    def has_directory(self, path: Path) -> bool:
        """Returns True if the working directory existed before the engine created it."""
        path = Path(os.path.normpath(path))
        if any(path.is_relative_to(mount) for mount in self._mounted):
            return True
        if any(path.is_relative_to(mount) for mount in self._configured):
            return engine.executable(self._docker, self._container, path) is not None
        return engine.existed(self._docker, self._container, path)

    def at(self, path: Path) -> bool | None:
        """Implements `Files.at`."""
        path = Path(os.path.normpath(path))
        if any(path.is_relative_to(mount) for mount in self._mounted):
            # The target of a link may exist only in the image.
            return os.access(path, os.X_OK) or path.is_symlink() if os.path.lexists(path) else None
        return engine.executable(self._docker, self._container, path)

    def head(self, path: Path) -> bytes:
        """Implements `Files.head`."""
        path = Path(os.path.normpath(path))
        if any(path.is_relative_to(mount) for mount in self._mounted):
            return start_errors.head_of(str(path), links=False)
        return engine.head(self._docker, self._container, path)
