"""What the command line can do, a Python program can: each command is here with its method, or with
why it has none.

A new command, and a new option of a command on jobs, fails these tests until it has its line.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import click
import pytest

from iris.cli.main import cli
from iris.cli.registry import ALIASES, JOB_COMMANDS
from iris.client.blocking.client import IrisClient
from iris.client.blocking.generated.operations import (
    Autoscaler,
    Cluster,
    Hosts,
    Schedules,
    Secrets,
    Slices,
)
from iris.client.blocking.job import Job
from iris.client.operate.cluster_manager import ClusterManager
from iris.config import load_config
from iris.simulation.advice import steps_of
from iris.simulation.engine import simulate

#: The method of each command.
METHODS: dict[str, Any] = {
    "submit": IrisClient.submit,
    "jobs": IrisClient.jobs,
    "status": Job.status,
    "logs": Job.logs,
    "fetch": Job.fetch,
    "exec": Job.exec,
    "port-forward": Job.port_forward,
    "endpoints": IrisClient.endpoints,
    "profile": Job.profile,
    "wait": Job.wait,
    "cancel": Job.cancel,
    "rerun": Job.rerun,
    "explain": Job.explain,
    "hold": Job.hold,
    "release": Job.release,
    "open": Job.ui,
    "priority": Job.set_priority,
    "secret set": Secrets.set,
    "secret list": Secrets.list,
    "secret rm": Secrets.remove,
    "schedule create": IrisClient.schedule,
    "schedule list": Schedules.list,
    "schedule show": Schedules.show,
    "schedule pause": Schedules.pause,
    "schedule resume": Schedules.resume,
    "schedule trigger": Schedules.trigger,
    "schedule delete": Schedules.delete,
    "usage": Cluster.usage,  # and of a job: Job.usage_over_time
    "simulate": simulate,
    "cluster start": ClusterManager.start,
    "cluster stop": ClusterManager.stop,
    "cluster status": Cluster.status,
    "cluster pause": Cluster.pause,
    "cluster resume": Cluster.resume,
    "cluster reload": Cluster.reload,
    "cluster gc": Cluster.find_unused,
    "cluster config check": load_config,
    "autoscaler status": Autoscaler.status,
    "autoscaler advise": steps_of,
    "autoscaler pause": Autoscaler.pause,
    "autoscaler resume": Autoscaler.resume,
    "group list": Autoscaler.status,
    "quota list": Cluster.quotas,
    "slice list": Slices.list,
    "slice show": Slices.show,
    "slice drain": Slices.drain,
    "slice delete": Slices.delete,
    "host list": Hosts.list,
    "host show": Hosts.show,
    "host cordon": Hosts.cordon,
    "host uncordon": Hosts.uncordon,
    "host drain": Hosts.drain,
}
#: Why these have none.
AT_A_TERMINAL = "it draws on a terminal, and shows what methods return"
OF_A_SHELL = "it is for shells and editors"
ADMINISTRATION = (
    "administrators change files and machines by hand with it; a program has ClusterManager"
)
PROCESS = "it is a process of a cluster, which Iris starts"
REASONS: dict[str, str] = {
    "top, watch": AT_A_TERMINAL,
    "completion, config, version, ssh-config, job check, job schema, cluster config schema": (
        OF_A_SHELL
    ),
    "host add, host remove, host ssh, cluster init, cluster config show, cluster validate": (
        ADMINISTRATION
    ),
    "cluster list, cluster tunnel, cluster cleanup, cluster restart": ADMINISTRATION,
    "cluster dashboard": ADMINISTRATION,
    "secret rotate, secret new-keys": ADMINISTRATION,
    "agent, pool-worker, controller run, controller serve, controller guard-ui": PROCESS,
    "controller manual check, controller manual reload, controller manual serve": PROCESS,
    "controller manual stop, controller manual rotate": PROCESS,
}
WITHOUT = {words for several in REASONS for words in several.split(", ")}
#: Options about what is printed and asked, and the job itself.
OF_THE_COMMAND_LINE = {
    "job",
    "cluster",
    "as_json",
    "quiet",
    "watch",
    "output",
    "timestamps",
    "raw",
    "only_print",
    "page",
    "text",
}
#: Options of job commands that have another name, or that a program writes otherwise.
OTHERWISE = {
    "fetch": {"only_list": "they are listed by fetching them"},
    "logs": {
        "streams": "stream",
        "build": 'stream="build"',
        "all_tasks": "the default",
        "exit_code": "wait",
        "agent": "it is the log of a host, for administrators",
    },
    "exec": {"with_input": "input", "no_input": "input", "terminal": "a program has none"},
    "profile": {
        "dump": "format",
        "format_": "format",
        "rate": "the default is right for results as a whole",
    },
    "cancel": dict.fromkeys(
        ("all_jobs", "prefix", "tags", "dry_run", "yes"), "a loop over client.jobs(...)"
    ),
    "jobs": (
        dict.fromkeys(("all_jobs", "states", "user", "since", "tags"), "a field of JobFilter")
        | {"tree": "JobRow.parent"}
    ),
    "status": {"limit": "it cuts a table", "resources": "Job.usage"},
    "priority": {"band": "priority"},
    "port-forward": {},
}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command with its words. `iris job …` repeats others, and `iris debug …` looks into a
    cluster's own parts.
    """
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ALL = {
    words: command
    for words, command in commands(cli)
    if words.partition(" ")[0] != "debug" and words not in ALIASES
}
SAME = {words for words in ALL if words.startswith("job ")} - WITHOUT


def test_every_command_has_a_method_or_a_reason() -> None:
    """Notebooks and launchers are where researchers work; a command that only a shell has is of no
    use to them.
    """
    assert {*ALL} - SAME == {*METHODS, *WITHOUT}
    assert not {*METHODS} & WITHOUT


@pytest.mark.parametrize("words", sorted(set(JOB_COMMANDS) - {"submit", "open"}))
def test_every_option_of_a_command_on_jobs_is_a_parameter_of_its_method(words: str) -> None:
    """Or it is about a terminal. The options of `iris submit` are compared by
    tests/client/build/test_job_options.py.
    """
    parameters = {*inspect.signature(METHODS[words]).parameters}
    known = parameters | OF_THE_COMMAND_LINE | {*OTHERWISE.get(words, {})}
    assert {str(parameter.name) for parameter in ALL[words].params} - known == set()
    renamed = {
        new for new in OTHERWISE.get(words, {}).values() if new.isidentifier() and new != "wait"
    }
    assert renamed <= parameters
