"""Runs a command line of `iris`, and turns errors into messages and exit codes."""

import errno
import json
import os
import select
import sys
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType

import click
from click.core import ParameterSource

from iris.cli.command import LazyGroup
from iris.cli.notes import survive_readers
from iris.cli.registry import ALIASES, COMMANDS
from iris.cli.show.terminal import end_output, guard_terminal

#: Commands that run another command, each with an example.
RUNS_A_COMMAND = {
    "submit": "iris submit [options] -- python train.py --lr 0.1",
    "exec": "iris exec train -- ls -la",
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--cluster",
    metavar="NAME|ADDRESS",
    envvar="IRIS_CLUSTER",
    help="Name or address of the cluster.  [default: the only known cluster]",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="iris-temporal", prog_name="iris")
@click.pass_context
def cli(ctx: click.Context, cluster: str | None, debug: bool) -> None:
    """Run jobs on TPU slices, GPU and CPU machines.

    \b
    iris cluster start --local -d           a cluster on this machine
    iris submit -- python train.py          run a command, follow its logs
    iris submit --replicas 2 -d -- ./work   two tasks, without following
    iris explain train                      show why it waits
    """
    if (ctx.obj or {}).get("ends_with_it"):
        from iris.cli.processes.event_loops import keep_loops_open

        keep_loops_open()
    source = ctx.get_parameter_source("cluster")
    ctx.obj = {"cluster": cluster, "from_environment": source is ParameterSource.ENVIRONMENT}


def main() -> None:
    """Runs the `iris` command. Ends the process itself, because Temporal's client may abort during
    the interpreter's clean-up.
    """
    for stream in range(
        3
    ):  # a closed one is opened to nowhere: otherwise the next file or socket would get its number
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        click.echo("error: standard output is closed; to discard it, use >/dev/null", err=True)
        os._exit(1)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # as standard error: other locales than UTF-8 lack letters
    guard_terminal()
    survive_readers()
    if instruction := os.environ.get("_IRIS_COMPLETE"):
        from iris.cli.completion import answer  # a shell asks for completions

        os._exit(answer(instruction))
    _keep_pydantic_from_plugins()
    code = run(sys.argv[1:], ends_with_it=True)
    try:
        end_output(sys.stdout, sys.stderr)  # of a command that was interrupted
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        code = code or _explain(error, as_json=False)
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(code)


def _keep_pydantic_from_plugins() -> None:
    """Has Pydantic find no plugins. It would look for them in the metadata of every installed
    package.

    Pydantic's own switch is a variable of the environment, and with it each command still imports
    the reader of metadata.
    """
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader).update(get_plugins=tuple)
    sys.modules[loader.__name__] = loader


def run(arguments: list[str], *, ends_with_it: bool = False) -> int:
    """Runs one command line and returns its exit code.

    Args:
        ends_with_it: the process ends right after it, so nothing needs to be closed.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        result = cli.main(
            args=arguments,
            prog_name="iris",
            standalone_mode=False,
            obj={"ends_with_it": ends_with_it},
        )
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        example = RUNS_A_COMMAND.get(arguments[0]) if arguments else None
        if isinstance(error, click.NoSuchOption) and example and "--" not in arguments:
            click.echo(f"Put -- before the command to run: {example}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except (BrokenPipeError, SystemExit) as error:
        if not _reader_is_gone():
            if "--debug" in own:
                raise
            return _explain(
                error.__context__ or error, as_json="--json" in own
            )  # click's exit hides the error before it
        # The reader of the output has closed it (`iris logs … | head`). Click turns some of these
        # errors into its own exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if "--debug" in own:
            raise
        return _explain(error, as_json="--json" in own)


def _reader_is_gone() -> bool:
    """Returns whether the output is a pipe that its reader has closed. Other connections break with
    the same errors.
    """
    watched = select.poll()
    watched.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0))


#: The extra of the package that brings a library, by the beginning of the library's name.
_EXTRAS = {"google": "gcp", "asyncssh": "ssh"}


def _explain(error: BaseException, *, as_json: bool) -> int:
    from iris.model.errors import IrisError
    from iris.storage.files import is_full

    code = error.exit_code if isinstance(error, IrisError) else 1
    if isinstance(error, IrisError):
        message = str(error)
    elif isinstance(error, ImportError) and (
        extra := _EXTRAS.get((error.name or "").partition(".")[0])
    ):
        message = (
            f"this needs {error.name}, which is not installed; install it with: pip install"
            f" 'iris-temporal[{extra}]'"
        )
    elif isinstance(error, OSError) and error.filename is None and is_full(error):
        message = f"the output cannot be written: {error.strerror}"
    elif isinstance(error, FileNotFoundError) and error.filename is None and _directory_is_gone():
        message = "the current directory was deleted; change to another one"
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
        if _is_of_state_directory(error):
            message += "; to keep the state of Iris elsewhere, set IRIS_STATE_DIR"
    else:
        message = f"{type(error).__name__}: {error} (--debug shows where)"
    if as_json:
        click.echo(
            json.dumps({"error": type(error).__name__, "message": message, "exit_code": code}),
            err=True,
        )
    else:
        click.echo(f"error: {message}", err=True)
    return code


def _is_of_state_directory(error: OSError) -> bool:
    """Returns whether the state directory cannot be made or written."""
    from iris.client.connect.paths import state_dir

    state, path = state_dir(), Path(str(error.filename))
    if error.errno in (errno.ENOENT, errno.ENOTDIR):  # of a file in it, something else is wrong
        return path in (state, *state.parents)
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and (
        path in state.parents or state in (path, *path.parents)
    )


def _directory_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


if __name__ == "__main__":
    main()
