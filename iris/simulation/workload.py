"""Reads a workload from the text of a file: a trace of Iris, or a public trace, whose first line
tells which one it is.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.simulation.gangs import spec_of
from iris.simulation.public import alibaba, helios, philly
from iris.simulation.public.jobs import PublicJobs, workload_of
from iris.simulation.trace import Trace, first_problem, from_lines

#: The number of characters at the beginning of a Philly log in which `format_of` looks for the id
#: of the first job.
_HEAD = 100_000


class PublicFormat(StrEnum):
    """The formats of public traces that Iris can read."""

    PHILLY = "philly"  # cluster_job_log
    HELIOS = "helios"  # cluster_log.csv
    ALIBABA_2020 = "alibaba-2020"  # pai_task_table.csv
    ALIBABA_2023 = "alibaba-2023"  # openb_pod_list_*.csv


class _Reader(NamedTuple):
    read: Callable[[str, str], PublicJobs]
    source: str


_READERS: Mapping[PublicFormat, _Reader] = {
    PublicFormat.PHILLY: _Reader(philly.read_philly, philly.SOURCE),
    PublicFormat.HELIOS: _Reader(helios.read_helios, helios.SOURCE),
    PublicFormat.ALIBABA_2020: _Reader(alibaba.read_2020, alibaba.SOURCE_2020),
    PublicFormat.ALIBABA_2023: _Reader(alibaba.read_2023, alibaba.SOURCE_2023),
}
#: Columns that occur in only one of the formats, with this format.
_OWN_COLUMNS = {
    "node_num": PublicFormat.HELIOS,
    "inst_num": PublicFormat.ALIBABA_2020,
    "pod_phase": PublicFormat.ALIBABA_2023,
}


def format_of(text: str) -> PublicFormat | None:
    """Returns the format of a text; None if it is none of them."""
    text = text.lstrip("\ufeff \t\r\n")
    if text.startswith("["):
        return PublicFormat.PHILLY if '"jobid"' in text[:_HEAD] else None
    columns = [each.strip() for each in text.partition("\n")[0].split(",")]
    for column, found in _OWN_COLUMNS.items():
        if column in columns:
            return found
    # The table of 2020 is published without the names of its columns.
    is_task = len(columns) == len(alibaba.COLUMNS_2020) and columns[3] in alibaba.STATUSES
    return PublicFormat.ALIBABA_2020 if is_task else None


def read_public(text: str, of: PublicFormat, name: str, gpu: str = "") -> Trace:
    """Returns the workload of a public trace.

    Args:
        name: the name of the file, for errors.
        gpu: the variant of all GPUs; empty if it is as in the trace.

    Raises:
        InvalidValue: the text has not this format, or no job; or a job needs GPUs of one variant on
            several hosts, and the trace does not name it.
    """
    reader = _READERS[of]
    return workload_of(reader.read(text.lstrip("\ufeff"), name), name, reader.source, gpu)


def read_workload(name: str, text: str, gpu: str = "") -> Trace:
    """Returns the workload that a file has.

    Args:
        name: the name of the file, for errors.
        gpu: for a public trace, the variant of the GPUs that all its jobs ask for; empty if it is
            as in the trace, which often does not name one.

    Raises:
        InvalidValue: the text is no trace, or one with errors.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        trace = from_lines(text.lstrip("\ufeff").split("\n"), name)
        _check_gangs(trace, name)
        return trace
    found = format_of(text)
    if found is None:
        remedy = (
            "give a file of iris usage --trace, or a public trace"
            f" ({', '.join(PublicFormat)}; docs/workloads.md)"
        )
        raise InvalidValue("workload", name, "is not a trace in a format that Iris reads", remedy)
    return read_public(text, found, name, gpu)


def _check_gangs(trace: Trace, name: str) -> None:
    """Checks that each gang could be a job, before a simulation begins.

    Raises:
        InvalidValue: one could not.
    """
    for gang in trace.gangs:
        try:
            spec_of(gang, 1)
        except ValueError as error:
            text = first_problem(error) if isinstance(error, ValidationError) else str(error)
            remedy = "correct the gang's line in the file"
            problem = f"is not a valid job: {text}"
            raise InvalidValue("workload", f"{name}, gang {gang.id}", problem, remedy) from None
