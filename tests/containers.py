"""An attempt in a container, as far as its runtime and its shim go, and a look at what the engine
has.
"""

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from iris.activities.host.runtimes.container.runtime import DockerRuntime
from iris.activities.host.runtimes.program import Exit, Program
from iris.activities.host.runtimes.shim import shim
from iris.messages.task import RunTask
from iris.model import names
from iris.model.host.resources import Resources
from tests.e2e.cluster import eventually

#: What the agent passes on from its host.
HOST_ENV = {"PATH": "/host/bin:/usr/sbin", "HOME": "/home/of-the-host", "LANG": "xx_XX"}
A_DAY = 86400.0
ANY = Resources(cpu_millis=0)


class Bench:
    """One attempt's directory and runtime."""

    def __init__(
        self, directory: Path, image: str, resources: Resources = ANY, devices: Path = Path("/dev")
    ) -> None:
        self.directory = directory
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        self.key = f"ada/train:0@0/{uuid4().hex[:13]}"
        self.task = RunTask(
            key=self.key,
            placement_key=self.key,
            owner="",
            job="ada/train",
            index=0,
            attempt=0,
            num_tasks=1,
            incarnation="",
            command=(),
            env={},
            workdir=None,
            timeout=None,
            grace=timedelta(seconds=10),
            logs="",
            resources=resources,
        )
        self.runtime = DockerRuntime(
            image,
            self.task,
            "h0",
            f"c-{self.key[-13:]}",
            directory,
            host_env=HOST_ENV,
            devices=devices,
        )
        self.program = Program(directory)

    def env(self, **more: str) -> dict[str, str]:
        return {**HOST_ENV, names.ENV_ATTEMPT_KEY: self.key, **more}

    async def start(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        workdir: Path | None = None,
        lease: float = A_DAY,
        secrets: Mapping[str, str] = MappingProxyType({}),
        read: Sequence[Path] = (),
        grace: float = 0.0,
    ) -> Program:
        await self.runtime.prepare()
        launch = await self.runtime.launch(
            argv, self.env() if env is None else env, workdir or self.work, read=read
        )
        self.program.start(
            launch.model_copy(update={"grace": grace}), shim.now() + lease, secrets=secrets
        )
        return self.program

    async def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        workdir: Path | None = None,
        read: Sequence[Path] = (),
    ) -> Exit:
        program = await self.start(*argv, env=env, workdir=workdir, read=read)
        return await asyncio.wait_for(program.wait(), 60)

    @property
    def out(self) -> str:
        return (self.directory / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self.directory / "stderr").read_text()

    def says(self, word: str) -> None:
        """Wait until the program has said it."""

        def said() -> bool:
            there = (self.directory / "stdout").exists() and word in self.out
            assert there or self.program.exit is None, self.program.exit
            return there

        eventually(said, within=60)


def containers(*labels: str) -> list[str]:
    """The ids of all containers with these labels."""
    filters = [f"--filter=label={label}" for label in labels]
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--no-trunc", *filters], capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def inspect(container: str) -> dict[str, Any]:
    """What the engine knows of it."""
    shown = subprocess.run(["docker", "inspect", container], capture_output=True, check=True)
    return dict(json.loads(shown.stdout)[0])


def python(script: str) -> Sequence[str]:
    return ("python3", "-c", script)
