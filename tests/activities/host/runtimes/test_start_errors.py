"""A program that cannot be started: its user reads what is wrong with it and what to do, wherever
it would run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from iris.activities.host.runtimes.base import JobFault, Launch
from iris.activities.host.runtimes.container.exec import ContainerCommand
from iris.activities.host.runtimes.process.exec import ProcessCommand
from iris.activities.host.runtimes.process.runtime import ProcessRuntime
from iris.activities.host.runtimes.program import Program
from iris.activities.host.runtimes.shim import shim
from iris.messages.exec import ExecRequest, Frame
from tests import images
from tests.builders import some
from tests.containers import Bench

ENV = {"PATH": "/usr/bin:/bin"}
#: How a program is started in a directory: returns the reason and the exit code; empty: it runs.
Start = Callable[..., Awaitable[tuple[str, int]]]
SED = r"sed -i 's/\r$//'"
WINDOWS = "has the line ends of Windows (CRLF), so its first line asks for"
#: Name of the file, its text, its mode, the words to run it, the reason, the exit code.
SCRIPTS = {
    "CRLF": (
        "run.sh",
        "#!/bin/sh\r\necho\r\n",
        0o755,
        f"{WINDOWS} '/bin/sh\\r'; convert it with: {SED} ./run.sh",
        127,
    ),
    "CRLF by env": (
        "run",
        "#!/usr/bin/env sh\r\necho\r\n",
        0o755,
        f"{WINDOWS} '/usr/bin/env sh\\r'",
        127,
    ),
    "CRLF after an option": (
        "run",
        "#!/bin/sh -e\r\necho\r\n",
        0o755,
        f"{WINDOWS} '/bin/sh -e\\r'",
        127,
    ),
    "no interpreter": (
        "run",
        "#! /opt/no/python -u\n",
        0o755,
        "'./run' needs the interpreter '/opt/no/python', which",
        127,
    ),
    "none by env": (
        "run",
        "#!/usr/bin/env nopython\n",
        0o755,
        "'./run' needs the interpreter 'nopython', which",
        127,
    ),
    "a relative one": (
        "run",
        "#!bin/python\n",
        0o755,
        "needs the interpreter 'bin/python', which",
        127,
    ),
    "no path": (
        "run",
        "#!python3\n",
        0o755,
        "'./run' needs the interpreter 'python3', which is not a path; write its path",
        127,
    ),
    "not executable": (
        "run",
        "#!/bin/sh -e\n",
        0o644,
        "; make it so with chmod +x, or run it with: /bin/sh -e ./run",
        126,
    ),
}


async def _drop(_: Frame) -> None:
    """Output is not looked at here."""


async def as_a_process(directory: Path, *argv: str) -> tuple[str, int]:
    runtime = ProcessRuntime(f"ada/train:0@1/{uuid4().hex}", directory, some(cpu=1))
    try:
        launch = await runtime.launch(argv, ENV, directory)
    except JobFault as error:
        return str(error), error.exit_code
    records = directory / f"attempt-{uuid4().hex}"
    records.mkdir()
    program = Program(records)
    program.start(launch, lease=shim.now() + 60)
    ended = await asyncio.wait_for(program.wait(), 60)
    return (ended.error, ended.status or 0)


async def as_a_step(directory: Path, *argv: str) -> tuple[str, int]:
    runtime = ProcessRuntime(f"ada/train:0@1/{uuid4().hex}", directory, some(cpu=1))
    try:
        return "", await runtime.step(argv, ENV, directory, directory / "build")
    except JobFault as error:
        return str(error), error.exit_code


async def by_exec(directory: Path, *argv: str) -> tuple[str, int]:
    request = ExecRequest(job="ada/train", index=0, session="s", argv=argv)
    command = ProcessCommand(request, Launch(argv=("true",), env=ENV, cwd=str(directory)))

    try:
        await command.start()
    except JobFault as error:
        return str(error), error.exit_code
    return "", await command.run(_drop)


HOW = pytest.mark.parametrize("start", [as_a_process, as_a_step, by_exec])


def a_file(directory: Path, name: str, content: str | bytes, mode: int = 0o755) -> None:
    (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (directory / name).chmod(mode)


@HOW
@pytest.mark.parametrize("case", SCRIPTS)
async def test_a_script_that_cannot_run_names_its_interpreter_and_the_remedy(
    tmp_path: Path, start: Start, case: str
) -> None:
    """The system says only that there is no such file, and the file is there."""
    name, text, mode, words, code = SCRIPTS[case]
    a_file(tmp_path, name, text, mode)
    reason, status = await start(tmp_path, f"./{name}")

    assert words in reason
    assert status == code


@HOW
@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nexit 0\r\n",
        "#!/usr/bin/env -S sh -e\nexit 0\n",
        "#!/usr/bin/env -S sh -e\r\nexit 0\n",
        "#! \t/bin/sh\t-e \nexit 0\n",
        "#!own\nnothing\n",
    ],
    ids=[
        "CRLF later",
        "options of env",
        "options of env and CRLF",
        "spaces",
        "its own interpreter",
    ],
)
async def test_a_script_that_the_system_runs_is_left_alone(
    tmp_path: Path, start: Start, text: str
) -> None:
    """What is examined before the start must refuse nothing that runs."""
    (tmp_path / "own").symlink_to("/bin/true")
    a_file(tmp_path, "run", text)

    assert (await start(tmp_path, "./run"))[0] == ""


@HOW
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"echo hi\n", "its first line names no interpreter; begin it with one such as #!/bin/sh"),
        (
            b"#!\necho hi\n",
            "its first line names no interpreter; begin it with one such as #!/bin/sh",
        ),
        (
            b"\xef\xbb\xbf#!/bin/sh\n",
            "it begins with a byte order mark, so its first line names no interpreter; ",
        ),
        (b"\x7fELF\x02\x01\x01" + bytes(57), "it was built for another kind of machine"),
    ],
    ids=["empty", "no first line", "nothing in it", "byte order mark", "another machine's"],
)
async def test_an_executable_file_that_is_no_program_says_what_it_is(
    tmp_path: Path, start: Start, content: bytes, words: str
) -> None:
    """`Exec format error` means nothing to most people."""
    a_file(tmp_path, "run", content)
    reason, status = await start(tmp_path, "./run")

    assert f"'./run' could not be started: {words}" in reason
    assert status == 126


@HOW
async def test_a_command_in_quotes_suggests_their_removal(tmp_path: Path, start: Start) -> None:
    """`iris submit -- "python3 x.py"` is one word, the name of a program that does not exist."""
    reason, status = await start(tmp_path, "python3 x.py", "--lr", "1")
    assert reason.startswith("there is no program 'python3 x.py' on ")
    assert reason.endswith(": it is one word; write it without the quotes: python3 x.py --lr 1")
    assert status == 127

    a_file(tmp_path, "two words", "#!/bin/sh\n")
    assert await start(tmp_path, "./two words") == ("", 0)


@HOW
async def test_a_file_beside_the_program_is_not_found_by_its_bare_name_and_says_so(
    tmp_path: Path, start: Start
) -> None:
    """As in a shell; who comes from one without that rule has to know."""
    a_file(tmp_path, "train.py", "#!/usr/bin/env python3\n")
    reason, status = await start(tmp_path, "train.py")

    assert reason.endswith(
        "; for the file of this name in the program's directory, write ./train.py"
    )
    assert status == 127


# -- containers ----------------------------------------------------------------------------------


@pytest.mark.docker
async def test_a_container_and_a_command_in_it_refuse_a_script_in_the_same_words(
    tmp_path: Path,
) -> None:
    """A container has an exit code and no words; the engine gives the words to the command's
    output.
    """
    bench = Bench(tmp_path / "attempt", images.docker_image())
    for case, (_, text, mode, _, _) in SCRIPTS.items():
        a_file(bench.work, case, text, mode)
    a_file(bench.work, "fine", "#!/usr/bin/env sh\nexit 5\n")
    await bench.start("sleep", "1000")
    launch = bench.program.launch

    async def beside(*argv: str) -> tuple[str, int]:
        command = ContainerCommand(
            ExecRequest(job="ada/x", index=0, session="s", argv=argv), launch
        )

        try:
            await command.start()
        except JobFault as error:
            return str(error), error.exit_code
        return "", await command.run(_drop)

    async def first(*argv: str) -> tuple[str, int]:
        with pytest.raises(JobFault) as refused:
            await bench.runtime.launch(argv, bench.env(), bench.work)
        return str(refused.value), refused.value.exit_code

    for case, (name, _, _, words, code) in SCRIPTS.items():
        for start in (first, beside):
            reason, status = await start(f"./{case}")
            assert words.replace(f"./{name}", f"./{case}") in reason, (case, start)
            assert status == code
    for start in (first, beside):
        assert "without the quotes: sh fine" in (await start("sh fine"))[0]
        assert "write ./fine" in (await start("fine"))[0]
    assert await beside("./fine") == ("", 5)
    await bench.runtime.clear()
