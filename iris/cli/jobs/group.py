"""Implements `iris job`: the commands for jobs by their noun, as for hosts, slices and clusters."""

from iris.cli.registry import JOB_COMMANDS, LazyGroup

#: `list` and `show` are the verbs of the other nouns.
_VERBS = {"jobs": "list", "status": "show"}

job = LazyGroup(
    "job",
    table={
        **{_VERBS.get(name, name): entry for name, entry in JOB_COMMANDS.items()},
        "check": ("submit.check", "check", "Check a job file. Contacts no cluster."),
        "schema": ("submit.check", "schema", "Print the JSON schema of job files, for editors."),
    },
    help=(
        "List, show, submit, follow and cancel jobs. `iris jobs`, `iris status` and so on are the"
        " same commands."
    ),
)
