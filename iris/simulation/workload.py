"""Reads a workload from the text of a file: a trace of Iris, or a public trace."""

from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.simulation.gangs import spec_of
from iris.simulation.public.formats import PublicFormat, format_of, read_public
from iris.simulation.trace import Trace, first_problem, from_lines


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
        raise InvalidValue("workload", name, "is no trace", remedy)
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
            remedy = "correct its line"
            problem = f"is not a valid job: {text}"
            raise InvalidValue("workload", f"{name}, gang {gang.id}", problem, remedy) from None
