"""The log format of Iris's processes: agents, control planes and the supervisor of a local cluster.

A record names the object that it is about in `extra`, with the keys of `FIELDS`, for instance
`logger.warning("refused by the provider: %s", error, extra={"slice": slice_id})`. The formatter
appends those fields to the message's line, so that a search for `job=ada/train` finds every line
about that job.
"""

import logging
from contextvars import ContextVar

#: The host for which the code runs, if the process serves several hosts; empty in other processes.
host_of_context: ContextVar[str] = ContextVar("host_of_context", default="")
#: The fields that a log record may have, in the order in which they are shown.
FIELDS = ("job", "attempt", "host", "slice")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class FieldsFormatter(logging.Formatter):
    """Formats a log record and appends ` job=… attempt=… host=… slice=…`. A field that the record
    does not have is left out.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name in logging
        """Returns the line of the message. A traceback follows on lines of its own."""
        found = (
            (name, host_of(record) if name == "host" else getattr(record, name, ""))
            for name in FIELDS
        )
        return "".join(
            [super().formatMessage(record), *(f" {name}={value}" for name, value in found if value)]
        )


def host_of(record: logging.LogRecord) -> str:
    """Returns the host that a record is about, or for which the code runs that logs it; empty: no
    particular host.
    """
    return getattr(record, "host", "") or host_of_context.get()


def log_to_stderr() -> None:
    """Logs the records of this process to stderr, from level INFO."""
    handler = logging.StreamHandler()
    handler.setFormatter(FieldsFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
