"""Formats the submission of a job, for people and programs: its command, resources, files.

Values of environment variables are not shown.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iris.cli.show.resources import resources_json
from iris.model.job.secrets import shown_source
from iris.model.job.tags import format_tags
from iris.model.units import format_bytes

if TYPE_CHECKING:
    from iris.client.jobs.notifications import NotificationRow
    from iris.client.jobs.submitted import Submission

#: The maximum number of characters of the job's command that are shown.
MAX_COMMAND = 200
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


def submission_text(
    submission: "Submission", notifications: Sequence["NotificationRow"] = ()
) -> str:
    """Returns one line for each fact of the submission, also its page in Temporal's Web UI."""
    return "\n".join(
        f"{name:<10}{_CONTROL.sub(' ', text)}" for name, text in _facts(submission, notifications)
    )


def submission_json(submission: "Submission") -> dict[str, Any]:
    """Returns the submission as `--json` of `iris status` and `explain` shows it.

    Has the names of environment variables, and not their values.
    """
    spec = submission.spec
    return {
        "command": list(spec.command),
        "resources": resources_json(spec.resources),
        "priority": submission.priority,
        "env": sorted(spec.env),
        "secrets": spec.secrets,
        "image": spec.image,
        "after": [{"job": each.name, "on": each.on} for each in spec.after],
        "from_checkpoint": str(spec.from_checkpoint) if spec.from_checkpoint is not None else None,
        "commit": spec.commit,
        "bundle": spec.bundle.sha256 if spec.bundle is not None else None,
        "tags": spec.tags,
        "limits": spec.limits,
        "note": spec.note,
        "page": submission.page,
    }


def _facts(
    submission: "Submission", notifications: Sequence["NotificationRow"]
) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each fact."""
    spec = submission.spec
    command = shlex.join(spec.command)
    yield "command", command if len(command) <= MAX_COMMAND else f"{command[: MAX_COMMAND - 1]}…"
    each = f" for each of {spec.replicas} tasks" if spec.replicas > 1 else ""
    yield "resources", f"{spec.resources}{each}"
    yield (
        "priority",
        submission.priority
        + (f", submitted as {spec.band}" if submission.priority != spec.band else ""),
    )
    if spec.tags:
        yield "tags", ", ".join(format_tags(spec.tags))
    if spec.limits:
        yield "limits", ", ".join(f"{name}={amount}" for name, amount in spec.limits.items())
    if spec.note:
        yield "note", spec.note
    if notifications:
        yield "notifies", ", ".join(map(str, notifications))
    if spec.after:
        yield "after", ", ".join(map(str, spec.after))
    if variables := [f"{name}=…" for name in sorted(spec.env)]:
        yield "env", ", ".join(variables)
    if spec.secrets:
        yield (
            "secrets",
            ", ".join(
                f"{name} from {shown_source(source)}"
                for name, source in sorted(spec.secrets.items())
            ),
        )
    if spec.image is not None:
        yield "image", spec.image
    if spec.from_checkpoint is not None:
        yield "starts", f"from the checkpoint of {spec.from_checkpoint}"
    if spec.bundle is not None:
        changed = ", modified" if spec.commit.endswith("+") else ""
        commit = f", commit {spec.commit[:12].rstrip('+')}{changed}" if spec.commit else ""
        yield "files", f"bundle {spec.bundle.sha256[:12]}, {format_bytes(spec.bundle.size)}{commit}"
    if submission.page:
        yield "page", submission.page
