"""Prints lines of logs on standard output: as text, as unchanged bytes, or as JSON."""

import codecs
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import click

from iris.cli.show.terminal import bytes_of, end_output, shows_colours
from iris.client.logs.stored import TaskLine
from iris.storage.log_format import LogLine, Stream

#: The maximum number of bytes of an unfinished line that are held back until the line is complete.
#: A longer line is printed in parts, because its program has probably forgotten the newlines.
MAX_LINE = 1024 * 1024
#: The task, attempt and stream from which a line comes.
_Key = tuple[int, int, Stream]


class Printer(Protocol):
    """Prints the lines of logs as they arrive."""

    def print(self, lines: list[TaskLine]) -> None: ...

    def finish(self) -> None:
        """Prints unfinished lines."""


class LinePrinter:
    """Prints the lines of logs for people: only whole lines if each line has a prefix, and
    otherwise the output as it was written.

    Args:
        prefixed: print the number of its task before each line.
        timestamps: also print the time at which each line was complete. Lines are printed in the
            order of these times.
        growing: print each state of a line that is overwritten repeatedly, such as a progress bar.
        next_attempt: returns a text for standard error that precedes the first line of another
            attempt of a task.
    """

    def __init__(
        self,
        *,
        prefixed: bool,
        timestamps: bool = False,
        growing: bool = False,
        next_attempt: Callable[[int, int], str] | None = None,
    ) -> None:
        self._prefixed = prefixed
        self._timestamps = timestamps
        self._growing = growing
        self._next_attempt = next_attempt
        self._stdout = bytes_of(sys.stdout)
        self._coloured = shows_colours(sys.stdout)
        #: The time of the last write to each unfinished line, and its text so far. It is used only
        #: if whole lines are printed.
        self._begun: dict[_Key, tuple[int, bytes]] = {}
        #: The source of the unfinished line at the end of standard output; None if the last line is
        #: complete. It is not used if only whole lines are printed.
        self._open: _Key | None = None
        self._attempts: dict[int, int] = {}
        self._out: list[bytes] = []

    @property
    def in_line(self) -> bool:
        """Whether the last text on standard output has no newline yet."""
        return self._open is not None

    def print(self, lines: list[TaskLine]) -> None:
        for task, attempt, line in lines:
            if self._attempts.get(task, 1) != attempt:
                self._begin_attempt(task, attempt)
            self._attempts[task] = attempt
            key = (task, attempt, line.stream)
            if self._prefixed or self._timestamps:
                self._add_whole(key, line)
            else:
                self._add(key, line)
        self._flush()

    def finish(self) -> None:
        """Prints unfinished lines."""
        for key, (at_ms, data) in sorted(self._begun.items(), key=lambda each: each[1][0]):
            self._add_line(key, at_ms, data)
        self._begun.clear()
        self._flush()
        end_output(self._stdout)

    def _begin_attempt(self, task: int, attempt: int) -> None:
        # An earlier attempt has an unfinished line if its host died within the line.
        for key in [key for key in self._begun if key[0] == task and key[1] != attempt]:
            self._add_line(key, *self._begun.pop(key))
        if self._next_attempt is not None:
            self._end_line()
            self._flush()
            click.echo(self._next_attempt(task, attempt), err=True)

    def _add(self, key: _Key, line: LogLine) -> None:
        if self._open is not None and (
            self._open[:2] != key[:2] or (key[2] is Stream.BUILD) != (self._open[2] is Stream.BUILD)
        ):
            self._end_line()
        self._out.append(line.data if line.goes_on else line.data + b"\n")
        self._open = key if line.goes_on else None

    def _end_line(self) -> None:
        if self._open is not None:
            self._out.append(b"\n")
            self._open = None

    def _add_whole(self, key: _Key, line: LogLine) -> None:
        data = self._begun.pop(key, (0, b""))[1] + line.data
        if not line.goes_on or len(data) > MAX_LINE:
            self._add_line(key, line.at_ms, data)
            return
        if b"\r" in data:
            data = _last_written(data) + (b"\r" if data.endswith(b"\r") else b"")
            if self._growing:
                self._add_line(key, line.at_ms, data)
        self._begun[key] = (line.at_ms, data)

    def _add_line(self, key: _Key, at_ms: int, data: bytes) -> None:
        if self._prefixed:
            prefix = b"[%d]" % key[0]
            self._out.append(
                b"\x1b[%dm%b\x1b[0m " % (_colour(key[0]), prefix)
                if self._coloured
                else prefix + b" "
            )
        if self._timestamps:
            self._out.append(f"{_time(at_ms)} ".encode())
        # A carriage return would overwrite the prefix.
        self._out.append(_last_written(data) + b"\n")

    def _flush(self) -> None:
        self._stdout.write(b"".join(self._out))
        self._stdout.flush()
        self._out.clear()


class RawPrinter:
    """Prints the output of one task without changes, for other programs.

    Args:
        apart: print the lines that the host wrote, such as those of the environment's set-up, on
            standard error.
    """

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart

    def print(self, lines: list[TaskLine]) -> None:
        written = [line.written for _, _, line in lines if not self._is_apart(line)]
        sys.stdout.buffer.write(b"".join(written))
        sys.stdout.buffer.flush()
        for _, _, line in lines:
            if self._is_apart(line):
                click.echo(line.text, err=True)

    def _is_apart(self, line: LogLine) -> bool:
        return self._apart and line.stream is Stream.BUILD

    def finish(self) -> None:
        """Does nothing, because no text is held back."""


class JsonPrinter:
    """Prints each line of a log as a JSON object, for programs.

    Args:
        agent: the host, if the log is that of an agent and not of a job's tasks.
    """

    def __init__(self, agent: str | None = None) -> None:
        self._agent = agent
        #: A decoder for each unfinished line, because a piece of a line may end inside a character.
        self._decoders: dict[_Key, codecs.IncrementalDecoder] = {}

    def print(self, lines: list[TaskLine]) -> None:
        sys.stdout.write("".join(f"{json.dumps(self._object(entry))}\n" for entry in lines))
        sys.stdout.flush()

    def finish(self) -> None:
        """Does nothing, because no text is held back."""

    def _object(self, entry: TaskLine) -> dict[str, Any]:
        key = (entry.task, entry.attempt, entry.line.stream)
        decoder = self._decoders.pop(key, None) or codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(entry.line.data, not entry.line.goes_on)
        if entry.line.goes_on:
            self._decoders[key] = decoder
        source = (
            {"task": entry.task, "attempt": entry.attempt}
            if self._agent is None
            else {"host": self._agent, "life": entry.attempt}
        )
        return {
            "time": _time(entry.line.at_ms),
            **source,
            "stream": entry.line.stream.name.lower(),
            "text": text,
            "goes_on": entry.line.goes_on,
        }


def _colour(task: int) -> int:
    """Returns the code of the prefix's colour. Neighbouring tasks have different colours.

    Red and the terminal's own colour are left out.
    """
    return 32 + task % 5


def iso_time(time: datetime) -> str:
    """Returns a time in UTC in the format of the lines."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(at_ms: int) -> str:
    return iso_time(datetime.fromtimestamp(at_ms / 1000, UTC))


def _last_written(data: bytes) -> bytes:
    """Returns the last state of a line that was overwritten with `\\r`.

    A `\\r` at the very end belongs to the newline.
    """
    return data.rstrip(b"\r").rpartition(b"\r")[2]
