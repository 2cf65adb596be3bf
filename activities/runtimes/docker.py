"""Programs in containers, which the Docker engine of this machine runs.

The agent has the image fetched and the container made; the shim then starts it and sees it through. What the program prints goes
through the shim's named pipes into the attempt's files, never through the engine: a shell in the image opens them and becomes the
program.
"""

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris import names
from iris.activities.environment import base_env
from iris.activities.runtimes import engine, images, shim
from iris.activities.runtimes.base import CannotStart, HostUnable, Launch
from iris.activities.runtimes.engine import available, clear_strays, docker_socket
from iris.activities.threads import in_thread
from iris.resources import DeviceKind
from iris.units import format_bytes
from iris.workflows.messages import RunTask

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.types import Mount

__all__ = ["DockerRuntime", "available", "clear_strays", "docker_socket"]

#: Opens the files and becomes the program, with no word of the user's among the shell's.
_SHELL = "/bin/sh"
_BECOME = 'unset TINI_KILL_PROCESS_GROUP; exec 2>>"$1"; shift; exec "$@" >>"$0"'
#: Has the engine's init pass signals on to all of the program, as is done with processes.
_TO_ALL = {"TINI_KILL_PROCESS_GROUP": "1"}
#: What holds in an image that does not say.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Directories that are the image's own, whatever the host has under these names.
_IMAGES_OWN = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"}
_CERTIFICATES = "SSL_CERT_FILE"
#: Which of the host's GPUs are the task's.
_CUDA = "CUDA_VISIBLE_DEVICES"

#: The least the engine takes.
_LEAST_MEMORY = 6 * 1024**2
#: Room in /dev/shm; what is in use there is memory of the task. The engine's own 64 MiB break data loaders and libtpu.
_SHM = "100g"
#: libtpu pins memory, in bytes; and what may be given to it that others do not get.
_MEMLOCK = 64 * 1024**3
TPU_RIGHTS = {"cap_add": ["SYS_RESOURCE"], "ulimits": [{"Name": "memlock", "Soft": _MEMLOCK, "Hard": _MEMLOCK}]}


class DockerRuntime:
    """Runs the commands of one attempt in containers of an image, on the host's network.

    The attempt's directory, what is shared, and a working directory of the host are there under their own paths. What the agent
    passes on from the host's environment describes the host, and so stays outside: of `PATH` what stands before the host's own is
    kept, and the image's follows; `SSL_CERT_FILE` becomes a copy. Memory is limited to what was asked for. Cores are not, as with
    processes: when they do not suffice they are shared in proportion to what was asked for.

    Args:
        shared: directories that every attempt on this host uses.
        host_env: what every environment has from the host.
        devices: where the host's accelerators are.
        token: see `iris.activities.runtimes.images`.
    """

    def __init__(
        self,
        image: str,
        task: RunTask,
        host_id: str,
        cluster: str,
        directory: Path,
        shared: Sequence[Path] = (),
        *,
        host_env: Mapping[str, str] | None = None,
        devices: Path = Path("/dev"),
        token: images.Token = lambda: None,
    ) -> None:
        self._image, self._task, self._dir = image, task, directory
        self._shared, self._devices = tuple(shared), devices
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
        #: Known once it is prepared: the image's id and environment, and whether the engine has an init for its containers.
        self._image_id = ""
        self._image_env: dict[str, str] = {}
        self._init = False
        #: Whether there is one, as far as is known.
        self._engine = True

    @property
    def identity(self) -> str:
        return self._image_id or self._image

    async def prepare(self) -> None:
        if why := await available():
            self._engine = False
            words = f"this host has no container engine: {why}; start docker there, or submit without --image"
            raise HostUnable(words, engine.FAULT)
        await in_thread(self._prepare)

    def _prepare(self, stop: threading.Event) -> None:
        with (self._dir / "build").open("a") as output, engine.engine(images.STALL) as docker:
            image = images.get(docker, self._image, output, stop, self._token)
            if image is None:
                return
            self._image_id = str(image.id)
            self._image_env = dict(each.split("=", 1) for each in image.attrs["Config"].get("Env") or () if "=" in each)
            # The first process of a container gets no SIGTERM unless it has a handler; with an init the program is not the first.
            self._init = docker.info().get("InitCommit", {}).get("ID") != "N/A"

    async def step(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path, output: Path) -> int:
        return await in_thread(lambda stop: self._step(argv, env, workdir, output, stop))

    def _step(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path, output: Path, stop: threading.Event) -> int:
        container = self._make(argv, env, workdir, output, output)
        try:
            state = engine.run(container, stop)
        finally:
            with engine.engine() as docker:
                engine.remove(docker, container)
        if state["OOMKilled"]:
            with output.open("a") as file:
                print(f"out of memory: the task has {format_bytes(self._task.resources.memory_bytes)}", file=file)
        code = int(state["ExitCode"])
        return 128 - code if 128 < code < 160 else code

    async def launch(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> Launch:
        out, err = self._dir / shim.PIPES[0], self._dir / shim.PIPES[1]  # which the shim makes before it starts the container
        container = await in_thread(lambda _: self._make(argv, env, workdir, out, err))
        # For the shim alone, which needs only what it is recognised by; the container has its own.
        recognised = {name: value for name, value in env.items() if name.startswith(names.RESERVED_PREFIX)}
        return Launch(argv=tuple(argv), env=recognised, container=container, docker_socket=docker_socket())

    async def clear(self, *, swept: bool = False) -> None:
        labels = [f"{engine.LABEL_KEY}={self._task.key}", f"{engine.LABEL_DIRECTORY}={self._dir}"]
        if self._engine:
            await engine.clear(labels)

    # -- the container -------------------------------------------------------------------------------------------------------

    def _make(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path, out: Path, err: Path) -> str:
        """The id of a new container that would run the command."""
        from docker.types import LogConfig

        inside, mounts = self._env(env), self._mounts(workdir)
        with engine.engine() as docker:
            container = docker.api.create_container(
                self._image_id or self._image,
                entrypoint=[_SHELL],
                command=["-c", _BECOME, str(out), str(err), *argv],
                environment=inside | (_TO_ALL if self._init else {}),
                user=f"{os.getuid()}:{os.getgid()}",
                working_dir=str(workdir),
                labels=self._labels,
                host_config=docker.api.create_host_config(
                    network_mode="host",
                    mounts=mounts,
                    init=self._init,
                    log_config=LogConfig(type="json-file", config={"max-size": "64k"}),
                    shm_size=_SHM,
                    **self._limits(),
                    **self._accelerators(env),
                ),
            )["Id"]
            try:
                look = _Look(docker, container, [Path(mount["Target"]) for mount in mounts])
                self._check(look, argv[0], inside["PATH"], workdir)
            except BaseException:
                engine.remove(docker, container)
                raise
        return str(container)

    def _mounts(self, workdir: Path) -> list["Mount"]:
        from docker.types import Mount

        for path in self._shared:
            path.mkdir(parents=True, exist_ok=True)
        paths = [self._dir, *self._shared]
        images_own = len(workdir.parts) < 2 or workdir.parts[1] in _IMAGES_OWN
        if not images_own and workdir.is_dir() and not any(workdir.is_relative_to(path) for path in paths):
            paths.append(workdir)
        return [Mount(str(path), str(path), type="bind") for path in dict.fromkeys(paths)]

    def _env(self, env: Mapping[str, str]) -> dict[str, str]:
        """What is set in the container, over the image's own."""
        inside = {name: value for name, value in env.items() if self._host_env.get(name) != value}
        hosts = self._host_env.get("PATH", "")
        path = env.get("PATH", hosts)
        if path == hosts or path.endswith(f":{hosts}"):
            path = path.removesuffix(hosts) + self._image_env.get("PATH", _PATH)
        inside["PATH"] = path
        # Whom to trust is a matter of the network, which is the host's.
        if (trusted := env.get(_CERTIFICATES, "")) and _CERTIFICATES not in inside and os.access(trusted, os.R_OK):
            inside[_CERTIFICATES] = shutil.copyfile(trusted, str(self._dir / "certificates.pem"))
        if gpus := _gpus(env):  # it has these and no others, numbered anew
            inside[_CUDA] = ",".join(map(str, range(len(gpus))))
        if os.getuid() != 0 and "HOME" not in inside:  # the image's is root's, if it has any
            home = self._dir / "home"
            home.mkdir(exist_ok=True)
            inside["HOME"] = str(home)
        return inside

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
        """What the container has of the host's accelerators; hosts that only pretend to have some are left alone."""
        from docker.types import DeviceRequest

        device = self._task.resources.device
        if device is None:
            return {}
        if device.kind is DeviceKind.GPU:
            if not (self._devices / "nvidiactl").exists():
                return {}
            which = {"device_ids": _gpus(env)} if _gpus(env) else {"count": device.count}
            return {"device_requests": [DeviceRequest(capabilities=[["gpu"]], **which)]}
        # A file for each chip: older kinds are accel*, newer ones numbers below vfio, opened through the file beside them.
        found = [path for pattern in ("accel[0-9]*", "vfio/[0-9]*") for path in sorted(self._devices.glob(pattern))]
        if not found:
            return {}
        found += self._devices.glob("vfio/vfio")
        return {"devices": [f"{path}:/dev/{path.relative_to(self._devices)}:rwm" for path in found], **TPU_RIGHTS}

    def _check(self, look: "_Look", program: str, path: str, workdir: Path) -> None:
        """See that what is to be run is there: of a container that has run there is only an exit code.

        Raises:
            CannotStart: it is not.
        """
        if not look.has_directory(workdir):
            raise CannotStart(f"the working directory {str(workdir)!r} is neither on this host nor in the image", 126)
        if look.at(Path(_SHELL)) is None:
            raise CannotStart(f"the image {self._image!r} has no {_SHELL}, which is needed to start a program in it", 126)
        folders = [""] if "/" in program else path.split(":")
        there = False
        for folder in folders:
            runs = look.at(workdir / folder / program)
            if runs:
                return
            there = there or runs is not None
        if there:
            raise CannotStart(f"{program!r} is not a program that may be executed", 126)
        raise CannotStart(f"there is no program {program!r} in the image {self._image!r}", 127)


def _gpus(env: Mapping[str, str]) -> list[str]:
    """The numbers of the GPUs that the task was given; none: no matter which."""
    numbers = env.get(_CUDA, "").split(",")
    return numbers if all(number.isdecimal() for number in numbers) else []


class _Look:
    """A look at the files of a container that has not been started."""

    def __init__(self, docker: "DockerClient", container: str, mounted: Sequence[Path]) -> None:
        self._docker, self._container, self._mounted = docker, container, mounted

    def has_directory(self, path: Path) -> bool:
        """Whether the working directory was there before the engine made it."""
        return any(path.is_relative_to(mount) for mount in self._mounted) or engine.existed(self._docker, self._container, path)

    def at(self, path: Path) -> bool | None:
        """Whether the file may be executed; None: there is none."""
        path = Path(os.path.normpath(path))
        if any(path.is_relative_to(mount) for mount in self._mounted):
            # A link may lead to where only the image has something.
            return os.access(path, os.X_OK) or path.is_symlink() if os.path.lexists(path) else None
        return engine.executable(self._docker, self._container, path)
