"""Implements `iris job`: the commands for jobs by their noun, as for hosts, slices and clusters."""

from iris.cli.command import CommandPlace, LazyGroup
from iris.cli.registry import JOB_COMMANDS

#: The names of two commands in this group: other nouns have the verbs `list` and `show`, too.
_VERBS = {"jobs": "list", "status": "show"}

job = LazyGroup(
    "job",
    table={
        **{_VERBS.get(name, name): place for name, place in JOB_COMMANDS.items()},
        "check": CommandPlace("submit.check", "check", "Check a job file. Contacts no cluster."),
        "schema": CommandPlace(
            "submit.check", "schema", "Print the JSON schema of job files, for editors."
        ),
    },
    help=(
        "List, show, submit, follow and cancel jobs. `iris jobs`, `iris status` and so on are the"
        " same commands."
    ),
)
