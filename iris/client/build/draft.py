"""From what a user asks for to a job: `iris submit`, job files, batches, schedules and Python
programs make the same `JobDraft`, and `plan` makes the job that it describes.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import ValidationError

from iris.client.build.child_digest import work_of_command
from iris.client.build.conflicts import invalid_job
from iris.client.build.files import FileOptions, JobFiles, choose_files
from iris.client.build.names import new_name
from iris.client.build.tasks import TaskOptions, tasks_of
from iris.model.host.resources import Resources
from iris.model.job.array_tables import Table
from iris.model.job.demand_limits import check_demands
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import Band, JobSpec

if TYPE_CHECKING:
    from iris.client.build.parent import EnclosingJob


@dataclass(frozen=True, kw_only=True)
class JobDraft:
    """A job as its user asks for it. The options are parsed, and the files are not chosen yet."""

    user: str
    #: The name of the job. None if Iris chooses the name.
    name: str | None
    #: The first word of a name that Iris chooses.
    word: str = "job"
    command: tuple[str, ...]
    #: The resources of each task, without devices.
    resources: Resources
    tasks: TaskOptions
    files: FileOptions
    #: The rows of the job's array. None if the job has no array, or an array without rows.
    table: Table | None = None
    #: The priority band. None means the band of the parent job, or the default band without a
    #: parent.
    band: Band | None = None
    #: The values of the fields of `JobSpec` that no other attribute of the draft decides, by the
    #: names of the fields.
    fields: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, files: JobFiles | None = None, workdir: str | None = None) -> JobSpec:
        """Returns the specification of the job.

        Args:
            files: the files that the job gets.
            workdir: the directory in which the program starts if the user named none.

        Raises:
            InvalidJob: the job is invalid; the message has every problem.
            InvalidValue: options exclude each other.
        """
        files = files or JobFiles()
        try:
            tasks = tasks_of(self.tasks)
            return JobSpec(
                **{
                    **self.fields,
                    "environment": _environment(self.fields.get("environment"), files),
                },
                user=self.user,
                name=new_name(self.word) if self.name is None else self.name,
                command=self.command,
                resources=self.resources.model_copy(update={"device": tasks.device}),
                array=self.tasks.array,
                replicas=tasks.number,
                coscheduling=tasks.coscheduling,
                workdir=self.files.workdir or workdir,
                image=self.files.image,
                band=self.band or Band.INTERACTIVE,
            )
        except ValidationError as error:
            raise invalid_job(error) from None


class PlannedJob(NamedTuple):
    """A job and the files to send for it. The files are not sent yet."""

    spec: JobSpec
    files: JobFiles
    #: The rows of the job's array. None if the job has no array, or an array without rows.
    table: Table | None = None

    def with_spec(self, spec: JobSpec) -> Self:
        """Returns the same files for another specification."""
        return self._replace(spec=spec)


def plan(
    draft: JobDraft,
    *,
    shares_files: bool,
    within: "EnclosingJob | None" = None,
    digest: Callable[[JobSpec], str] | None = None,
) -> PlannedJob:
    """Returns the job that the draft describes, and chooses its files.

    Args:
        shares_files: whether the hosts see the same files as this process, as in a local cluster.
        within: the job in which this program runs. The planned job becomes its child.
        digest: returns what identifies the work of the job among the children of that job. By
            default this is made from the command.

    Raises:
        InvalidJob: the job is invalid; the message has every problem.
        InvalidValue: options exclude each other, or the job demands more of its hosts than the
            scheduler can represent.
        Rejected: a file that an option names cannot be sent.
    """
    if within is None:
        planned = _planned(draft, shares_files=shares_files)
    else:
        planned = _child(draft, within, digest, shares_files=shares_files)
    check_demands(planned.spec)
    return planned


def _planned(draft: JobDraft, *, shares_files: bool) -> PlannedJob:
    files = choose_files(draft.files, shares_files=shares_files)
    # A container does not have the current directory.
    here = shares_files and not files.are_sent and draft.files.image is None
    spec = draft.spec(files, str(Path.cwd()) if here else None)
    return PlannedJob(spec, files, draft.table)


def _child(
    draft: JobDraft,
    within: "EnclosingJob",
    digest: Callable[[JobSpec], str] | None,
    *,
    shares_files: bool,
) -> PlannedJob:
    """Returns the job as a child of the job in which it is submitted."""
    inherits = draft.files.inherits(within)
    if inherits:
        draft = replace(draft, files=draft.files.without_workspace())
    planned = _planned(draft, shares_files=shares_files and not inherits)
    chosen = {
        name
        for name, given in (
            ("files", not inherits),
            ("workdir", draft.files.workdir is not None),
            ("priority", draft.band is not None),
        )
        if given
    }
    work = _command_digest(planned) if digest is None else digest(planned.spec)
    return planned.with_spec(
        within.child(planned.spec, work, named=draft.name is not None, given=chosen)
    )


def _command_digest(planned: PlannedJob) -> str:
    rows = () if planned.table is None else planned.table.lines()
    return work_of_command([*planned.spec.command, *rows], planned.spec, os.environ)


def _environment(given: object, files: JobFiles) -> object:
    """Returns the environment with the project and the requirements of the files that are sent."""
    if given is None:
        given = EnvironmentSpec()
    if not isinstance(given, EnvironmentSpec | Mapping):
        return given  # the specification refuses it
    fields = dict(given)
    if files.project is not None:
        fields["project"] = files.project.project
    if files.pip is not None:
        fields["pip"] = files.pip
    return fields
