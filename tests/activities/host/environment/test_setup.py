"""The set-up of an attempt, with the real uv and without the internet: packages made by hand, in an
index that may misbehave.
"""

import asyncio
import base64
import ensurepip
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import uv

from iris.activities.host.environment import steps
from iris.activities.host.environment.set_up import Places, ProgramFiles, Ready, build_env, set_up
from iris.activities.host.environment.uv_places import uv_version
from iris.activities.host.files.caches import Cache
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.process.runtime import ProcessRuntime
from iris.model.host.resources import Resources
from iris.model.job.environments import EnvironmentSpec
from tests.e2e.cluster import eventually
from tests.platforms.worlds import until
from tests.pythons import a_real_other_python
from tests.small_disk import small_disk

ROOM = 1 << 32
PROJECT = """
[project]
name = "study"
version = "1"
requires-python = ">=3.11"
dependencies = ["tiny"]
[project.optional-dependencies]
more = ["other"]
[dependency-groups]
dev = ["linter"]
"""


def a_wheel(folder: Path, name: str, version: str = "1.0", code: str = "") -> None:
    """A package with one module and a command of the same name."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": (
            f"version = {version!r}\n{code}\ndef main(): print({name!r}, version)\n"
        ),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    hashes = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        for path, text in files.items()
    }
    record = "".join(
        f"{path},sha256={digest},{len(files[path])}\n" for path, digest in hashes.items()
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(path, text)


class Index(http.server.ThreadingHTTPServer):
    """An index of packages that misbehaves, in this way so many times, and then has the packages of
    a folder.
    """

    def __init__(self, wheels: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.wheels = wheels
        self.trouble, self.times = "503", 0
        self.silence = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/simple"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        if self.server.times > 0:
            self.server.times -= 1
            return self.trouble(self.server.trouble)
        name = self.path.strip("/").rpartition("/")[2]
        if name.endswith(".whl"):
            return self.send(
                200, (self.server.wheels / name).read_bytes(), "application/octet-stream"
            )
        links = [
            f'<a href="/{file.name}">{file.name}</a>'
            for file in self.server.wheels.glob(f"{name}-*")
        ]
        return self.send(200 if links else 404, "\n".join(links).encode(), "text/html")

    def do_HEAD(self) -> None:
        self.send(405, b"", "text/plain")

    def trouble(self, trouble: str) -> None:
        if trouble == "silence":
            self.server.silence.wait(30)
            self.close_connection = True
        elif trouble == "cut off":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"<html>")
        else:
            self.send(int(trouble), b"", "text/plain")

    def send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


class Host:
    """A host on which environments are set up, and an attempt on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workdir, self.own, self.output, self.wheels = (
            root / "work",
            root / "own",
            root / "build",
            root / "wheels",
        )
        for directory in (self.workdir, self.own, self.wheels):
            directory.mkdir()
        for name in ("tiny", "other", "linter"):
            a_wheel(self.wheels, name)
        self.cache = Cache(root / "cache", ROOM)
        self.runtime: Any = ProcessRuntime(
            f"ada/x:0@1/{uuid4().hex}", root, Resources(cpu_millis=0)
        )
        self.index = Index(self.wheels)
        #: Of the agent.
        self.agent = {
            "UV_INDEX_URL": self.index.url,
            "UV_HTTP_RETRIES": "0",
            "UV_HTTP_TIMEOUT": "1",
            "SECRET": "agent's",
        }
        #: Of the program.
        self.env = {"PATH": os.environ["PATH"], "HOME": str(root), "MINE": "yes"}

    def next_attempt(self) -> None:
        """Another one, which has got the same bundle."""
        (self.workdir / "uv.lock").unlink(missing_ok=True)  # made by the one before
        self.output.unlink()

    def write(self, **files: str) -> None:
        """Files of the workspace; `pyproject` is short for `pyproject.toml`, `uv_lock` for
        `uv.lock`.
        """
        long = {"pyproject": "pyproject.toml", "uv_lock": "uv.lock"}
        for name, text in files.items():
            path = self.workdir / long.get(name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    async def ready(self, pauses: tuple[float, ...] = (), **spec: Any) -> Ready:
        asked = EnvironmentSpec(**spec)
        return await set_up(
            asked,
            self.runtime,
            ProgramFiles(self.workdir / asked.project, self.workdir),
            self.env,
            self.cache,
            Places(self.own, self.output),
            agent_env=self.agent,
            pauses=pauses,
        )

    async def sees(self, ready: Ready, code: str) -> str:
        """What a python program prints that is started with this."""
        program = await asyncio.create_subprocess_exec(
            "python",
            "-c",
            code,
            env=ready.env,
            cwd=self.workdir,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await program.communicate()
        return out.decode().strip()

    @property
    def told(self) -> str:
        return self.output.read_text()

    @property
    def environments(self) -> list[Path]:
        """Those that are kept."""
        return [path.parent for path in self.cache.directory.glob("entries/*/*/venv")]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    index = host.index
    with index:
        threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield host
        index.silence.set()
        index.shutdown()


async def test_a_program_that_asks_for_nothing_gets_its_environment_as_it_is(host: Host) -> None:
    """Most tasks are started by the thousand and pay for nothing."""
    ready = await host.ready()

    assert ready == Ready(host.env)
    assert not host.output.exists()


async def test_a_project_finds_what_it_depends_on(host: Host) -> None:
    """`uv sync`, as at home: dependencies, but neither other extras nor what is for developers
    only.
    """
    host.write(pyproject=PROJECT)
    host.write(**{"helper.py": "here = True"})
    host.env["PYTHONPATH"] = "/mine"
    ready = await host.ready()

    assert await host.sees(ready, "import tiny, helper; print(tiny.version)") == "1.0"
    assert "ModuleNotFoundError" in await host.sees(ready, "import other")
    assert "ModuleNotFoundError" in await host.sees(ready, "import linter")
    assert ready.env["PYTHONPATH"] == f"{host.workdir}:/mine"
    assert await host.sees(ready, "import subprocess; subprocess.run('tiny')") == "tiny 1.0"
    assert ready.env["MINE"] == "yes"
    assert "[iris] uv sync" in host.told
    assert "[iris] environment ready (" in host.told
    ready.release()


async def test_extras_and_packages_are_added(host: Host) -> None:
    """What is for one job only need not stand in the project."""
    host.write(pyproject=PROJECT)
    a_wheel(host.wheels, "third", "3.0")
    with_extra = await host.ready(extras=("more",), pip=("third>=2",))

    assert await host.sees(with_extra, "import tiny, other, third; print(third.version)") == "3.0"
    with_extra.release()


async def test_an_environment_that_is_there_is_used_without_any_command(host: Host) -> None:
    """BUILDING takes no time when nothing has changed: the runtime is not asked to run anything."""
    host.write(pyproject=PROJECT)
    (await host.ready()).release()
    host.write(**{"train.py": "print('changed')"})
    host.runtime = Unable(host.runtime)
    host.next_attempt()
    again = await host.ready()

    assert await host.sees(again, "import tiny; print(tiny.version)") == "1.0"
    assert host.told == "[iris] environment ready: cached\n"
    again.release()


class Unable:
    """A runtime of the same kind that cannot run a thing."""

    def __init__(self, like: ProcessRuntime) -> None:
        self.identity = like.identity

    async def step(self, *_: Any) -> int:
        raise HostFault("not here", "test")


@pytest.mark.parametrize(
    "change", ["dependencies", "lock", "extras", "packages", "python", "index", "runtime"]
)
async def test_a_change_that_matters_makes_another_environment(host: Host, change: str) -> None:
    """Old packages under new code are the worst kind of bug."""
    host.write(pyproject=PROJECT)
    (await host.ready()).release()
    lock = (host.workdir / "uv.lock").read_text()
    host.next_attempt()
    spec: dict[str, Any] = {}
    match change:
        case "dependencies":
            host.write(pyproject=PROJECT.replace('["tiny"]', '["tiny", "other"]'))
        case "lock":
            host.write(uv_lock=lock)
        case "extras":
            spec = {"extras": ("more",)}
        case "packages":
            spec = {"pip": ("other",)}
        case "python":
            host.write(**{".python-version": "3.11"})
        case "index":
            host.agent["UV_PRERELEASE"] = "allow"
        case "runtime":
            host.runtime.__class__ = type("Other", (ProcessRuntime,), {"identity": "another image"})
    (await host.ready(**spec)).release()

    assert len(host.environments) == 2


async def test_a_lock_is_obeyed(host: Host) -> None:
    """What was tried at home is what runs, whatever has been published since."""
    host.write(pyproject=PROJECT)
    subprocess.run(  # noqa: ASYNC221
        [uv.find_uv_bin(), "lock", "--quiet"],
        cwd=host.workdir,
        env={**os.environ, **host.agent},
        check=True,
    )
    a_wheel(host.wheels, "tiny", "2.0")
    ready = await host.ready()

    assert await host.sees(ready, "import tiny; print(tiny.version)") == "1.0"
    assert "--locked" in host.told
    ready.release()


def lock(host: Host, index: str = "", **env: str) -> None:
    """What the user has done at home."""
    ways = {**os.environ, **host.agent, **({"UV_INDEX_URL": index} if index else {}), **env}
    subprocess.run([uv.find_uv_bin(), "lock", "--quiet"], cwd=host.workdir, env=ways, check=True)


@pytest.mark.long
async def test_a_lock_that_does_not_fit_is_the_users_to_mend(host: Host) -> None:
    """Old versions under new code would run for a week before anybody noticed."""
    host.write(pyproject=PROJECT)
    lock(host)
    a_wheel(host.wheels, "tiny", "2.0")
    host.write(pyproject=PROJECT.replace('"tiny"', '"tiny>=2"'))
    remedy = r"uv.lock does not fit pyproject.toml; run `uv lock` in the project and submit again$"
    with pytest.raises(
        JobFault, match=f"^set-up failed: `uv sync .*--locked` exited with [12]: {remedy}"
    ):
        await host.ready(pauses=(60.0,))
    assert host.environments == []

    lock(host)
    ready = await host.ready()
    assert await host.sees(ready, "import tiny; print(tiny.version)") == "2.0"
    ready.release()


async def test_a_lock_fits_whatever_the_hosts_own_settings_are(host: Host) -> None:
    """An agent may have a mirror, or settings that would resolve otherwise: the lock says what is
    installed, and from where.
    """
    host.write(pyproject=PROJECT)
    lock(host, index=host.index.url.replace("127.0.0.1", "localhost"))
    host.agent |= {
        "UV_PRERELEASE": "allow",
        "UV_EXCLUDE_NEWER": "2020-01-01",
        "UV_RESOLUTION": "lowest",
    }
    ready = await host.ready()

    assert await host.sees(ready, "import tiny; print(tiny.version)") == "1.0"
    ready.release()


async def test_a_project_without_a_lock_gets_what_fits_now(host: Host) -> None:
    """A first try needs no lock; what is resolved stays in the attempt's copy of the files."""
    host.write(pyproject=PROJECT)
    (await host.ready()).release()

    assert "--locked" not in host.told
    assert (host.workdir / "uv.lock").is_file()


PACKAGE = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "study"
version = "1"
requires-python = ">=3.11"
"""
#: A build backend without dependencies: it packs `study.py`.
BACKEND = """
import zipfile
def build_wheel(directory, settings=None, metadata=None):
    name = "study-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.write("study.py")
        facts = "Metadata-Version: 2.1\\nName: study\\nVersion: 1\\n"
        wheel.writestr("study-1.dist-info/METADATA", facts)
        tags = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr("study-1.dist-info/WHEEL", tags)
        wheel.writestr("study-1.dist-info/RECORD", "study.py,,\\n")
    return name
"""


async def test_a_project_that_is_a_package_is_installed_as_it_is_now(host: Host) -> None:
    """Its environment has a copy of the code: changed code must not meet the old copy, nor need the
    old directory.
    """
    host.write(pyproject=PACKAGE, **{"backend.py": BACKEND, "study.py": "print('one')"})
    first = await host.ready()
    host.write(**{"study.py": "print('two')"})
    second = await host.ready()
    host.workdir.rename(host.root / "gone")
    host.workdir.mkdir()

    assert await host.sees(first, "import study") == "one"
    assert await host.sees(second, "import study") == "two"
    first.release()
    second.release()


async def test_packages_alone_make_an_environment_beside_what_the_host_has(host: Host) -> None:
    """`--pip` needs no project; what the image or the host brings along stays in reach."""
    ready = await host.ready(pip=("tiny",))

    assert await host.sees(ready, "import tiny; print(tiny.version)") == "1.0"
    assert (
        "include-system-site-packages = true"
        in (Path(ready.env["VIRTUAL_ENV"]) / "pyvenv.cfg").read_text()
    )
    assert len(ready.keep) == 1
    ready.release()


async def test_commands_run_in_order_in_the_programs_directory_and_environment(host: Host) -> None:
    """The last resort for whatever else is needed: compile, fetch, generate."""
    host.write(pyproject=PROJECT)
    ready = await host.ready(
        setup=(
            "python -c 'import tiny' && echo $MINE > first",
            "cat first first > second; env > seen",
        )
    )

    assert (host.workdir / "second").read_text() == "yes\nyes\n"
    assert "agent's" not in (host.workdir / "seen").read_text()
    assert "[iris] cat first first > second; env > seen (" in host.told
    assert ready.keep == ()
    assert "UV_INDEX_URL" not in ready.env


async def test_what_commands_install_is_seen_by_this_attempt_and_by_no_other(host: Host) -> None:
    """`pip install` is what people write; it must change neither the host nor an environment that
    others use.
    """
    host.write(pyproject=PROJECT)
    patch = "import tiny; open(tiny.__file__, 'a').write('version = 2')"
    ready = await host.ready(setup=("pip install other", f'python -c "{patch}"'))
    shared = await host.ready()

    assert await host.sees(ready, "import tiny, other; print(other.version)") == "1.0"
    assert Path(ready.env["VIRTUAL_ENV"]).is_relative_to(host.own)
    assert await host.sees(ready, "import tiny; print(tiny.version)") == "2"
    assert "ModuleNotFoundError" in await host.sees(shared, "import other")
    assert await host.sees(shared, "import tiny; print(tiny.version)") == "1.0"
    shared.release()


class Machine:
    """The pythons of a machine: its own, and that of the agent, which is a virtual environment
    beside it. Both have pip.

    Here both are virtual environments, so that nothing of this machine is at stake.
    """

    def __init__(self, root: Path) -> None:
        self.python, self.agent = root / "machine", root / "agent"
        a_wheel(root, "beside")
        wheels = [
            "--no-index",
            "--find-links",
            str(root),
            "--find-links",
            str(Path(ensurepip.__file__).parent / "_bundled"),
        ]
        for place, packages in ((self.python, ["pip"]), (self.agent, ["pip", "beside"])):
            venv.create(place, symlinks=True)
            command = [
                uv.find_uv_bin(),
                "pip",
                "install",
                "--quiet",
                "--compile-bytecode",
                "--python",
                str(place),
                *wheels,
            ]
            subprocess.run([*command, *packages], check=True)
        shutil.copy(uv.find_uv_bin(), self.agent / "bin" / "uv")
        self.path = f"{self.agent}/bin:{self.python}/bin"
        #: What both have before any test.
        self.original = self.files

    @property
    def files(self) -> list[str]:
        """All of both, without what python itself leaves there when it imports something."""
        found = (path for place in (self.python, self.agent) for path in place.rglob("*"))
        return sorted(
            str(path) for path in found if path.suffix != ".pyc" and path.name != "__pycache__"
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One for all tests: none of them may change it."""
    return Machine(tmp_path_factory.mktemp("machine"))


COMMANDS = [
    "pip install tiny",
    "pip3 install tiny",
    "pip install --user tiny",
    "python -m pip install tiny",
    "python3 -m pip install --user tiny",
    "uv pip install tiny",
    "uv pip install --system tiny",
    "uv sync --project project",
]


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
async def test_what_commands_install_without_a_project_goes_into_no_python_of_the_machine(
    host: Host, machine: Machine, command: str
) -> None:
    """Neither the machine's python nor that of the agent changes, whatever people write; and the
    program finds what it wants.
    """
    host.env["PATH"] = machine.path
    host.write(**{"project/pyproject.toml": PROJECT})
    host.agent |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(host.wheels)}
    ready = await host.ready(setup=(command,))

    assert machine.files == machine.original
    assert not (host.root / ".local").exists()
    assert (
        await host.sees(ready, "import tiny, beside; print(tiny.version, beside.version)")
        == "1.0 1.0"
    )
    assert Path(ready.env["VIRTUAL_ENV"]).is_relative_to(host.own)
    assert host.environments == []


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
async def test_no_setting_of_the_agent_sends_what_commands_install_elsewhere(
    host: Host, machine: Machine, command: str
) -> None:
    """Build machines and images have such settings."""
    host.env["PATH"] = machine.path
    host.write(**{"project/pyproject.toml": PROJECT})
    host.agent |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(host.wheels),
        "PIP_USER": "1",
        "PIP_TARGET": str(host.root / "target"),
        "UV_SYSTEM_PYTHON": "1",
        "UV_PYTHON": str(machine.python / "bin" / "python"),
    }
    ready = await host.ready(setup=(command,))

    assert machine.files == machine.original
    assert not (host.root / "target").exists()
    assert await host.sees(ready, "import tiny; print(tiny.version)") == "1.0"


async def test_pip_called_by_the_path_of_the_machines_python_refuses(host: Host) -> None:
    """It would be the only way left to change the machine."""
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    with pytest.raises(JobFault, match="Could not find an activated virtualenv"):
        await host.ready(
            setup=(
                (
                    f"{base} -m pip install --no-index --dry-run"
                    f" {host.wheels}/tiny-1.0-py3-none-any.whl"
                ),
            )
        )


async def test_packages_go_into_their_environment_whatever_settings_say(
    host: Host, machine: Machine
) -> None:
    """Images and build machines have `UV_SYSTEM_PYTHON=1`, and some projects the same in their
    `pyproject.toml`.
    """
    host.write(pyproject=f"{PROJECT}\n[tool.uv.pip]\nsystem = true\n")
    host.env["PATH"] = machine.path
    host.agent |= {"UV_SYSTEM_PYTHON": "1", "UV_PYTHON": str(machine.python / "bin" / "python")}
    ready = await host.ready(pip=("other",), setup=("uv pip install --dry-run linter",))

    assert await host.sees(ready, "import other; print(other.version)") == "1.0"
    assert machine.files == machine.original
    assert host.told.count("environment at: ") == host.told.count(f"environment at: {host.own}")


@pytest.mark.parametrize(
    "answer",
    [
        'truncate -s 100M "$4"',
        'mkfifo "$4"',
        'ln -s /dev/zero "$4"',
        'mkdir "$4"',
        'ln -s "$0".json "$4"',
        "head -c 60000 /dev/zero | tr '\\0' '[' > \"$4\"",
        'printf "\\377" > "$4"',
        'echo "[1, 2]" > "$4"',
        'echo "{}" > "$4"',
        'echo "[\\"/bin/x\\", [1]]" > "$4"',
        'rm -rf "$(dirname "$4")"',
    ],
)
async def test_a_program_in_the_place_of_python_cannot_stop_or_fill_the_agent(
    host: Host, answer: str
) -> None:
    """The agent reads what the program wrote, for all attempts of the host. The job's variables say
    what `python` is.
    """
    tools = host.root / "tools"
    tools.mkdir()
    (tools / "python.json").write_text('["/usr/bin/false", []]')
    (tools / "python").write_text(f"#!/bin/sh\n{answer}\n")
    (tools / "python").chmod(0o755)
    host.env["PATH"] = f"{tools}:/usr/bin:/bin"
    ready = await host.ready(setup=("echo ran",))

    assert "ran\n" in host.told
    assert "VIRTUAL_ENV" not in ready.env


async def test_commands_run_where_there_is_no_python(host: Host) -> None:
    """`--setup 'make'` needs none; nothing is fetched for it."""
    (host.root / "bin").mkdir()
    (host.root / "bin" / "touch").symlink_to("/usr/bin/touch")
    host.env["PATH"] = str(host.root / "bin")
    ready = await host.ready(setup=("touch made",))

    assert (host.workdir / "made").exists()
    assert ready == Ready(host.env)


async def test_tools_configured_in_pyproject_are_no_project(host: Host) -> None:
    """Many repositories have a pyproject.toml for ruff alone."""
    line = (
        "pyproject.toml has no [project]: nothing is installed for it; declare its dependencies"
        " there, or in requirements.txt"
    )
    host.write(pyproject="[tool.ruff]\nline-length = 100\n")
    ready = await host.ready()

    assert ready == Ready(host.env)
    assert host.told == f"[iris] {line}\n"


async def test_a_user_may_do_without(host: Host) -> None:
    """`--no-sync`: the image has it all."""
    host.write(pyproject=PROJECT)

    assert await host.ready(sync=False) == Ready(host.env)


@pytest.mark.parametrize(
    ("files", "spec", "reason", "code"),
    [
        ({"pyproject": "[project"}, {}, "pyproject.toml is not TOML", 2),
        ({"pyproject": "\udcff"}, {}, "pyproject.toml cannot be read", 2),
        (
            {"pyproject": "[project]\nname = 'x'\n"},
            {},
            "`uv sync --no-default-groups --no-install-project` exited with 2",
            2,
        ),
        ({}, {"extras": ("gpu",)}, "the extra 'gpu' needs a project", 2),
        (
            {"pyproject": PROJECT},
            {"extras": ("gpu",)},
            "exited with 2: Extra `gpu` is not defined",
            2,
        ),
        (
            {},
            {"pip": ("no-such-thing",)},
            "`uv pip install no-such-thing` exited with 1: .*no-such-thing was not found",
            1,
        ),
        ({}, {"pip": ("tiny>7",)}, "exited with 1: Because only tiny==1.0 is available", 1),
        (
            {},
            {"setup": ("echo first; echo 'no such data' >&2; exit 3",)},
            "`echo first; .*` exited with 3: no such data",
            3,
        ),
        ({}, {"setup": ("nonsense",)}, "exited with 127: .*nonsense", 127),
        ({}, {"setup": ("kill -9 $$",)}, r"`kill -9 \$\$` was ended by SIGKILL", 137),
        (
            {"pyproject": PACKAGE, "backend.py": "import nothing"},
            {},
            "ModuleNotFoundError: No module named 'nothing'",
            1,
        ),
    ],
)
async def test_a_step_that_fails_says_which_and_why_and_is_the_users(
    host: Host, files: dict[str, str], spec: dict[str, Any], reason: str, code: int
) -> None:
    """It would fail on every host; the one line that matters is in the reason, the rest in the
    output.
    """
    (
        (host.workdir / "pyproject.toml").write_bytes(b"\xff")
        if "\udcff" in files.get("pyproject", "")
        else host.write(**files)
    )
    with pytest.raises(JobFault, match=f"^set-up failed: .*{reason}") as caught:
        await host.ready(pauses=(60.0,), **spec)

    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)
    assert host.environments == []


async def test_commands_after_a_failed_one_are_not_run(host: Host) -> None:
    """They would work on what is not there."""
    with pytest.raises(JobFault):
        await host.ready(setup=("false", "touch made"))

    assert not (host.workdir / "made").exists()


async def test_an_index_that_comes_back_costs_only_time(host: Host) -> None:
    """The user sees why it takes so long."""
    host.index.times = 2
    ready = await host.ready(pip=("tiny",), pauses=(0.01, 0.02, 0.03))

    assert await host.sees(ready, "import tiny; print(tiny.version)") == "1.0"
    assert "503 Service Unavailable" in host.told
    assert "[iris] the network failed; trying again in 0.01 s (1 of 3)" in host.told
    assert "(2 of 3)" in host.told
    assert "(3 of 3)" not in host.told
    ready.release()


@pytest.mark.parametrize(
    "trouble", ["503", "429", "silence", "cut off", "no server", "no such host"]
)
async def test_a_network_that_fails_is_not_the_users_fault(host: Host, trouble: str) -> None:
    """Another host may have a better one; no retry of the user's is spent."""
    host.index.trouble, host.index.times = trouble, 100
    if trouble == "no server":
        host.agent["UV_INDEX_URL"] = "http://127.0.0.1:1/simple"
    if trouble == "no such host":
        host.agent["UV_INDEX_URL"] = "http://no-such-host.invalid/simple"
    with pytest.raises(
        HostFault, match=r"^set-up failed: `uv pip install tiny` could not reach"
    ) as caught:
        await host.ready(pip=("tiny",), pauses=(0.01,))

    assert caught.value.fault == "network"
    assert host.told.count("[iris] the network failed; trying again") == 1
    assert host.environments == []


async def test_a_step_that_has_failed_slowly_is_left_to_the_next_attempt(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv itself waits for minutes for an index that never answers; four times that, the host was
    kept from others.
    """
    monkeypatch.setattr(steps, "_QUICK", 0.0)
    host.index.trouble, host.index.times = "503", 99

    with pytest.raises(HostFault, match="could not reach a server"):
        await host.ready(pauses=(0.01, 0.01, 0.01), pip=("tiny",))
    assert "trying again" not in host.told


async def test_a_set_up_that_hangs_ends_with_its_time_and_names_the_step(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held its host for ever. Nothing of it stays behind, and the next attempt may do better."""
    command = "echo $$ > new; mv new pid; sleep 1000"
    setting_up = asyncio.create_task(host.ready(setup=(command,), setup_timeout=timedelta(hours=1)))
    pid = host.workdir / "pid"
    await until(lambda: pid.exists() or setting_up.done())
    loop, an_hour = asyncio.get_running_loop(), 3600
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + an_hour)
    with pytest.raises(HostFault) as caught:
        await setting_up

    reason = f"set-up failed: it took longer than 1h (--setup-timeout); last step: `{command}`"
    assert (str(caught.value), caught.value.fault) == (reason, "setup-timeout")
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("404", "tiny was not found"),
        ("401", "401 Unauthorized"),
        ("403", "returned a 403 Forbidden"),
    ],
)
async def test_a_package_that_is_not_to_be_had_is_no_matter_of_the_network(
    host: Host, trouble: str, says: str
) -> None:
    """A typo tried again a hundred times, host by host, would hide for a day."""
    host.index.trouble, host.index.times = trouble, 100
    with pytest.raises(JobFault, match=says):
        await host.ready(pip=("tiny",), pauses=(60.0,))


async def test_a_full_disk_is_the_hosts(host: Host, tmp_path: Path) -> None:
    """uv says so in its own words."""
    a_wheel(host.wheels, "large", code=f"data = '{os.urandom(2_000_000).hex()}'")
    with small_disk(tmp_path / "disk", kib=1500) as disk:
        host.cache = Cache(disk, ROOM)
        (disk / "bin").mkdir()
        (disk / "bin" / f"uv-{uv_version()}").symlink_to(uv.find_uv_bin())
        with pytest.raises(HostFault, match="disk of this host is full") as caught:
            await host.ready(pip=("large",))

        assert caught.value.fault == "disk"
        assert host.environments == []


async def test_a_cancelled_set_up_leaves_neither_a_process_nor_half_an_environment(
    host: Host,
) -> None:
    """A user who sees his mistake in time wants to submit the right thing at once."""
    host.index.trouble, host.index.times = "silence", 100
    host.agent["UV_HTTP_TIMEOUT"] = "30"
    running = asyncio.create_task(host.ready(pip=("tiny",)))
    await asyncio.to_thread(eventually, lambda: host.index.times < 100)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert host.environments == []
    assert [
        p
        for p in psutil.process_iter(["exe"])
        if (p.info["exe"] or "").startswith(str(host.cache.directory))
    ] == []


async def test_tasks_that_come_together_make_one_environment(host: Host) -> None:
    """A gang's eight tasks on one host: one works, seven wait and are told so."""
    host.write(pyproject=PROJECT)
    all_ready = await asyncio.gather(*(host.ready() for _ in range(4)))

    assert len({ready.env["VIRTUAL_ENV"] for ready in all_ready}) == 1
    assert host.told.count("[iris] uv sync") == 1
    assert "waiting for it" in host.told
    for ready in all_ready:
        ready.release()


def _content(path: Path) -> tuple[int, int, int]:
    """What a write would change. Tests beside this one make and remove hard links of the file."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@pytest.mark.long
async def test_a_uv_that_a_program_has_changed_is_not_run(host: Host) -> None:
    """Programs and containers reach the copy in the cache: what they write there must not run for
    the next user's job.
    """
    own = _content(Path(uv.find_uv_bin()))
    (await host.ready(pip=("tiny",))).release()
    copy = host.cache.directory / "bin" / f"uv-{uv_version()}"
    assert not copy.samefile(uv.find_uv_bin())
    copy.write_text(f"#!/bin/sh\ntouch {host.root}/evil\n")
    ready = await host.ready(pip=("tiny", "other"))

    assert await host.sees(ready, "import other; print(other.version)") == "1.0"
    assert not (host.root / "evil").exists()
    assert _content(Path(uv.find_uv_bin())) == own
    ready.release()


async def test_what_a_program_runs_in_is_kept_when_room_is_needed(host: Host) -> None:
    """And goes, with all that uv has kept for it, once nobody needs it."""
    ready = await host.ready(pip=("tiny",))
    await host.cache.trim(0)
    assert await host.sees(ready, "import tiny; print(tiny.version)") == "1.0"

    ready.release()
    await host.cache.trim(0)
    assert list((host.cache.directory / "entries").iterdir()) == []


def test_ways_to_packages_are_for_the_set_up_and_nothing_else_is() -> None:
    """An agent may stand behind a proxy or a mirror; its secrets are its own."""
    ways = {
        "UV_INDEX_URL": "https://mirror",
        "PIP_INDEX_URL": "https://mirror",
        "https_proxy": "http://proxy",
        "NO_PROXY": "local",
    }

    assert (
        build_env({**ways, "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/root", "MY_UV_X": "1"}) == ways
    )


# -- the version of Python
# --------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("wanted", ["pip", "project", "setup"])
async def test_an_environment_has_the_version_of_python_that_its_function_needs(
    host: Host, wanted: str
) -> None:
    """The host finds another version first. A function is pickled for one version, and no other can
    unpickle it.
    """
    version, python = a_real_other_python()
    host.env["PATH"] = f"{host.env['PATH']}:{python.parent}"
    if wanted == "project":
        host.write(pyproject=PROJECT)
    ready = await host.ready(
        **{"pip": {"pip": ["tiny"]}, "project": {}, "setup": {"setup": ["true"]}}[wanted],
        python=version,
    )

    assert await host.sees(ready, "import sys; print('%d.%d' % sys.version_info[:2])") == version
