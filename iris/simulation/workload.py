"""Reads a workload from the text of a file: a trace of Iris, or a public trace."""

from iris.model.errors import InvalidValue
from iris.simulation.public.formats import PublicFormat, format_of, read_public
from iris.simulation.trace import Trace, from_lines


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
        return from_lines(text.lstrip("\ufeff").splitlines(), name)
    found = format_of(text)
    if found is None:
        remedy = (
            "give a file of iris usage --trace, or a public trace"
            f" ({', '.join(PublicFormat)}; docs/workloads.md)"
        )
        raise InvalidValue("workload", name, "is no trace", remedy)
    return read_public(text, found, name, gpu)
