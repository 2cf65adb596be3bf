"""Runs a command line of `iris`, and turns its errors into exit codes."""

import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from iris.cli.command import LazyGroup
from iris.cli.registry import ALIASES, COMMANDS
from iris.cli.streams import discard_output, flush_streams, prepare_streams, reader_is_gone
from iris.model import names

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: For each command of Iris that runs a command of the user: an example of its use with `--`. The
#: example is shown if a command line without `--` has an unknown option.
RUNS_A_COMMAND = {
    "submit": "iris submit [options] -- python train.py --lr 0.1",
    "exec": "iris exec train -- ls -la",
}


def _cluster_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    from iris.cli.name_completion import Kind, names_of  # only a shell needs it

    return names_of(Kind.CLUSTERS)(ctx, param, incomplete)


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
    shell_complete=_cluster_names,
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
    """Runs the `iris` command.

    Ends the process itself, because Temporal's client may abort during the interpreter's clean-up.
    """
    prepare_streams()
    if instruction := os.environ.get("_IRIS_COMPLETE"):
        from iris.cli.completion import answer  # a shell asks for completions

        os._exit(answer(cli, instruction))
    _keep_pydantic_from_plugins()
    code = run(sys.argv[1:], ends_with_it=True)
    if names.ENV_TRACING in os.environ:
        from iris.tracing.spans import flush  # most commands have no traces

        with suppress(KeyboardInterrupt):
            flush()
    try:
        flush_streams()
    except OSError as error:
        code = code or _explain(error)
    os._exit(code)


def _keep_pydantic_from_plugins() -> None:
    """Replaces Pydantic's search for plugins, which reads the metadata of every installed package.

    Pydantic's own switch is an environment variable. With it, each command would still import the
    reader of metadata.
    """
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader).update(get_plugins=tuple)
    sys.modules[loader.__name__] = loader


def run(arguments: list[str], *, ends_with_it: bool = False) -> int:
    """Runs one command line and returns its exit code.

    Args:
        ends_with_it: the process ends right after the command, so nothing needs to be closed.
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
        if reader_is_gone():  # as in `iris logs … | head`; click turns some errors into an exit
            discard_output(sys.stdout)
            return 0
        if "--debug" in own:
            raise
        # click's exit has the error as its context
        return _explain(error.__context__ or error, as_json="--json" in own)
    except Exception as error:
        if "--debug" in own:
            raise
        return _explain(error, as_json="--json" in own)


def _explain(error: BaseException, *, as_json: bool = False) -> int:
    """Prints the message of an error, and returns the exit code."""
    from iris.cli.show.messages import explain  # most commands succeed

    return explain(error, as_json=as_json)


if __name__ == "__main__":
    main()
