"""Finds out from a program's last lines why it failed: the line with the error, and the
infrastructure fault that the lines show.

Infrastructure faults do not count as the program's own failures. A fault that is not recognised
costs the program one of its own retries. A program's own failure that is mistaken for a fault is
retried a hundred times. So a pattern must match text of a driver, a kernel or a registry, and no
text that a program is likely to cause or print itself. For example, the program itself may fill a
disk or occupy a port, and every host without a TPU prints "no TPU found".
"""

import re
from collections.abc import Sequence

from pydantic import field_validator

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen

#: The names of two faults: a set-up exceeded its time limit, and a task kept the other tasks of its
#: gang waiting for too long.
SETUP_TIMEOUT, GANG_TIMEOUT = "setup-timeout", "gang-timeout"
#: Faults that prevent a program from starting although the cluster works: a package index, a git
#: server, an image registry or a service of Google fails, or the set-up takes too long.
OF_THE_SETUP = frozenset({"network", "image-pull", SETUP_TIMEOUT, GANG_TIMEOUT})
#: Faults that do not count towards a quarantine of the host, because they would also happen on
#: other hosts, or because the program may have caused them.
BEYOND_THE_HOST = OF_THE_SETUP | {"store", "bundle", "docker", "attempt-lost", "disk-filled"}
#: The limit on characters of an error line that becomes part of a reason.
MOST = 200
#: The limit on characters of a line in which `is_error_line` looks for an error.
MOST_OF_A_LINE = 2_000
#: Matches escape sequences of terminals, and other control characters.
_CONTROL = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TRACEBACK = "Traceback (most recent call last):"
#: Matches the last line of a Python traceback: a dotted name and the message. The traceback's
#: beginning may be missing.
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure)(?:: .*)?")
_ERROR = re.compile(r"\b[A-Za-z]*Error\b|\b(?:error|ERROR|fatal|FATAL|panic)(?:\[\w+\])?:")


class Fault(Frozen):
    """A kind of host failure that makes a program fail.

    Raises:
        pydantic.ValidationError: the name or the pattern is not valid; it wraps an `InvalidValue`.
    """

    name: str
    #: A regular expression for which Iris searches the program's output. `^` and `$` match at the
    #: ends of each line.
    pattern: str
    #: An explanation for users. The reason of the failed attempt shows it after the words
    #: "infrastructure fault: ".
    why: str = "the cluster's configuration counts it as a fault of the host"

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        return _check_name(name, "name")

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, pattern: str) -> str:
        return _check_pattern(pattern, "pattern")


def _check_name(name: str, field: str) -> str:
    if re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]*", name) is None:
        raise InvalidValue(
            field,
            name,
            "is not a valid name of a fault",
            "use letters, digits, dots, dashes or underscores",
        )
    return name


def _check_pattern(pattern: str, field: str) -> str:
    try:
        found = re.compile(pattern, re.MULTILINE).search("")
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidValue(
            field,
            pattern,
            f"is not a regular expression: {error}",
            r"escape ( ) [ ] . * + ? with \ ",
        ) from None
    if found:
        raise InvalidValue(
            field, pattern, "matches empty output", "write a text that only the fault prints"
        )
    return pattern


#: The known faults. If several patterns match, the first one counts. The patterns match messages of
#: libtpu, JAX and PyTorch/XLA, CUDA and NVML, Docker and containerd, and the kernel.
FAULTS: tuple[Fault, ...] = (
    Fault(
        name="accelerator-busy",
        pattern=r"/dev/(?:vfio/|accel)[0-9]+\b.*Device or resource busy"
        r"|The TPU is already in use by process with pid"
        r"|accessing libtpu multi-process lockfile"
        r"|(?:CUDA-capable device\(s\) is/are|all CUDA-capable devices are) busy or unavailable",
        why="its accelerator is still held by another process",
    ),
    Fault(
        name="tpu-broken",
        # libtpu prints this after a status code (UNKNOWN, INTERNAL …). Not included are a missing
        # TPU and another host of the slice that does not answer: they do not prove that this TPU is
        # broken. Not included either is a program that announces a fallback and continues: a later
        # failure is its own.
        pattern=r"\b[A-Z_]{5,}: TPU initialization failed: (?!No .*found|Failed to connect)"
        r"|Failed to initialize TPU system(?!.*\b[Ff]all)"
        r"|Couldn't open iommu group"
        r"|[Ff]ailed to set iommu for container",
        why="its TPU cannot be initialised",
    ),
    Fault(
        name="gpu-broken",
        pattern=(
            r"uncorrectable ECC error"
            r" encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable"
            r"|uncorrectable NVLink error detected"
            r"|GPU has fallen off the bus"
            r"|\bGPU is lost\b"
            r"|Unable to determine the device handle for GPU"
        ),
        why="its GPU is broken or lost",
    ),
    Fault(
        name="gpu-driver",
        pattern=r"Failed to initialize NVML: (?:Driver/library version mismatch|Unknown Error)"
        r"|NVML_ERROR_LIB_RM_VERSION_MISMATCH"
        r"|NVMLError_LibRmVersionMismatch",
        why="its GPU driver does not work",
    ),
    Fault(
        name="image-pull",
        # Not included: an image that does not exist is missing on every other host, too.
        pattern=r"pull access denied for \S"
        r"|\btoomanyrequests: "
        r"|error pulling image configuration: "
        r"|Error response from daemon: (?:Get|Head) .*/v2/"
        r"|Error response from daemon: (?:unauthorized|denied): "
        r"|[Ff]ailed to pull (?:and unpack )?image\b(?!.*(?:not found|manifest unknown))",
        why="it could not fetch the container image",
    ),
    Fault(
        name="stale-file-handle",
        pattern=r"(?:\[Errno 116\]|:) Stale (?:NFS )?file handle\b|\bESTALE: stale",
        why="a network file system that it mounts is gone",
    ),
)


def recognise(text: str, faults: Sequence[Fault] = FAULTS) -> Fault | None:
    """Returns the first fault whose pattern occurs in the text, or None."""
    return next((fault for fault in faults if re.search(fault.pattern, text, re.MULTILINE)), None)


def parse_fault(text: str, field: str = "fault") -> Fault:
    """Parses `NAME=REGEX`, the form in which a cluster's configuration adds its own faults.

    Raises:
        InvalidValue: the name or the regular expression is missing or invalid, or the expression
            matches any output.
    """
    name, equals, pattern = text.partition("=")
    if not equals:
        raise InvalidValue(
            field,
            text,
            "is not a fault",
            r'write NAME=REGEX, such as "fabric=NCCL WARN .* Link down"',
        )
    return Fault(
        name=_check_name(name.strip(), field), pattern=_check_pattern(pattern.strip(), field)
    )


def error_line(output: str) -> str:
    """Returns the last line of the last Python traceback; without one, the first line with an
    error; empty if there is neither.

    Args:
        output: the last lines that the program wrote.
    """
    lines = [
        _CONTROL.sub("", line.rsplit("\r", 1)[-1]).rstrip() for line in output.rstrip().split("\n")
    ]
    found = _raised(lines) or next((line.strip() for line in lines if _ERROR.search(line)), "")
    found = found.replace("\t", " ")  # tabs were needed until here, as indentation
    return found if len(found) <= MOST else f"{found[: MOST - 1]}…"


def is_error_line(line: str) -> bool:
    """Returns whether a line of a program's output reports an error: the start or the end of a
    Python traceback, a line with an error, or a known infrastructure fault.
    """
    text = _CONTROL.sub("", line[:MOST_OF_A_LINE]).rstrip()
    return (
        text.endswith(_TRACEBACK)
        or _RAISED.fullmatch(text) is not None
        or _ERROR.search(text) is not None
        or recognise(text) is not None
    )


def _raised(lines: list[str]) -> str:
    begun = max(
        (place for place, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)),
        default=None,
    )
    if begun is not None:
        # The lines of frames and of exception groups are indented; the exception's line is not.
        indent = lines[begun].find(_TRACEBACK)
        after = (
            line for line in lines[begun + 1 :] if len(line) > indent and not line[indent].isspace()
        )
        if (first := next(after, "")) and indent == 0:
            return first
    return next((line for line in reversed(lines) if _RAISED.fullmatch(line)), "")
