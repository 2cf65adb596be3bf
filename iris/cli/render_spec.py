"""Formats what a job was submitted with, for people and programs. Values of environment variables are not shown."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iris.model.jobs import JobSpec
from iris.model.tags import format_tags
from iris.model.units import format_bytes

if TYPE_CHECKING:
    from iris.client.notifications import NotificationRow

#: The most characters of the command.
MAX_COMMAND = 200
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


def submission_text(spec: JobSpec, page: str, notifications: Sequence["NotificationRow"] = ()) -> str:
    """Returns the lines that say what runs, with what, and where Temporal's Web UI shows it.

    Args:
        page: the address of the job's page; empty: the cluster has no Web UI.
    """
    return "\n".join(f"{name:<10}{_CONTROL.sub(' ', text)}" for name, text in _facts(spec, page, notifications))


def spec_json(spec: JobSpec, notifications: Sequence["NotificationRow"]) -> dict[str, Any]:
    """Returns what `iris status --json` has of the submission."""
    calls = [row.model_dump(mode="json") for row in notifications]
    bundle = spec.bundle.sha256 if spec.bundle is not None else None
    return {"commit": spec.commit, "bundle": bundle, "tags": spec.tags, "note": spec.note, "notifications": calls}


def _facts(spec: JobSpec, page: str, notifications: Sequence["NotificationRow"]) -> Iterator[tuple[str, str]]:
    command = shlex.join(spec.command)
    yield "command", command if len(command) <= MAX_COMMAND else f"{command[: MAX_COMMAND - 1]}…"
    each = f" for each of {spec.replicas} tasks" if spec.replicas > 1 else ""
    yield "resources", f"{spec.resources}{each}; submitted in band {spec.band}"
    if spec.tags:
        yield "tags", ", ".join(format_tags(spec.tags))
    if spec.note:
        yield "note", spec.note
    if notifications:
        yield "notifies", ", ".join(map(str, notifications))
    if spec.after:
        yield "after", ", ".join(map(str, spec.after))
    if variables := [f"{name}=…" for name in sorted(spec.env)]:
        yield "env", ", ".join(variables)
    if spec.secrets:
        yield "secrets", ", ".join(f"{name} from {source}" for name, source in sorted(spec.secrets.items()))
    if spec.image is not None:
        yield "image", spec.image
    if spec.from_checkpoint is not None:
        yield "starts", f"from the checkpoint of {spec.from_checkpoint}"
    if spec.bundle is not None:
        changed = ", modified" if spec.commit.endswith("+") else ""
        commit = f", commit {spec.commit[:12].rstrip('+')}{changed}" if spec.commit else ""
        yield "files", f"bundle {spec.bundle.sha256[:12]}, {format_bytes(spec.bundle.size)}{commit}"
    if page:
        yield "page", page
