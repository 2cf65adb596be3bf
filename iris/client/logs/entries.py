"""Lines of logs for Python programs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from iris.client.logs.stored import TaskLine
from iris.storage.log_format import LogLine, Stream

#: The maximum length of a line in bytes. A longer line is returned in parts, because its program
#: has probably forgotten the newlines.
MAX_LINE = 1024 * 1024


class LogEntry(NamedTuple):
    """A line of a task's output. `str` and `print` show its text."""

    task: int
    attempt: int
    #: The time at which the line was complete, by the clock of the host. The entries of a task are
    #: in the order of their times.
    time: datetime
    #: The stream of the line: `stdout`, `stderr` or `build`.
    stream: str
    text: str

    def __str__(self) -> str:
        return self.text


class Entries:
    """Joins pieces of log lines into entries. A host stores an incomplete line as a piece if the
    program writes no newline for a while.
    """

    def __init__(self) -> None:
        #: The pieces read so far of each incomplete line, by task, attempt and stream.
        self._begun: dict[tuple[int, int, Stream], LogLine] = {}

    def add(self, lines: Sequence[TaskLine]) -> Iterator[LogEntry]:
        """Yields each line that these pieces complete."""
        for task, attempt, line in lines:
            key = (task, attempt, line.stream)
            if (begun := self._begun.pop(key, None)) is not None:
                line = line._replace(data=begun.data + line.data)
            if line.goes_on and len(line.data) <= MAX_LINE:
                self._begun[key] = line
            else:
                yield _entry(task, attempt, line)

    @property
    def begun(self) -> list[LogEntry]:
        """The lines that have no newline so far, such as a progress bar."""
        return [_entry(task, attempt, line) for (task, attempt, _), line in self._begun.items()]

    def finish(self) -> Iterator[LogEntry]:
        """Yields the lines that have no newline at their end."""
        yield from self.begun
        self._begun.clear()


def _entry(task: int, attempt: int, line: LogLine) -> LogEntry:
    return LogEntry(
        task,
        attempt,
        datetime.fromtimestamp(line.at_ms / 1000, UTC),
        line.stream.name.lower(),
        line.text,
    )
