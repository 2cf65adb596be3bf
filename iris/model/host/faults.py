"""Infrastructure faults, recognised from the last lines of a program that failed. They do not count as the program's failure.

A fault that is not recognised costs the program one of its own retries. A program's own failure that is taken for a fault is
run again a hundred times. So a pattern must match text of a driver, a kernel or a registry, and nothing that a program is
likely to cause or print itself. For example, the program itself may fill a disk or occupy a port, and every host without a TPU
prints "no TPU found".
"""

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, field_validator

from iris.model.errors import InvalidValue


class Fault(BaseModel):
    """A kind of host failure that makes a program fail.

    Raises:
        pydantic.ValidationError: wraps the `InvalidValue` of an invalid name or pattern.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    #: A regular expression, searched for in the output; `^` and `$` match at the ends of each line.
    pattern: str
    #: A short text for users, shown after "infrastructure fault: ".
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
        raise InvalidValue(field, name, "is not a valid name of a fault", "use letters, digits, dots, dashes or underscores")
    return name


def _check_pattern(pattern: str, field: str) -> str:
    try:
        found = re.compile(pattern, re.MULTILINE).search("")
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidValue(field, pattern, f"is not a regular expression: {error}", r"escape ( ) [ ] . * + ? with \ ") from None
    if found:
        raise InvalidValue(field, pattern, "matches empty output", "write a text that only the fault prints")
    return pattern


#: The first match gives the reason. The texts come from libtpu, JAX and PyTorch/XLA, CUDA and NVML, Docker and containerd, and
#: the kernel.
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
        # libtpu prints this after a status code (UNKNOWN, INTERNAL …). A missing TPU, or another host of the slice that does not
        # answer, does not prove that this TPU is broken. A program that announces its own fallback continues, and a later failure
        # is its own.
        pattern=r"\b[A-Z_]{5,}: TPU initialization failed: (?!No .*found|Failed to connect)"
        r"|Failed to initialize TPU system(?!.*\b[Ff]all)"
        r"|Couldn't open iommu group"
        r"|[Ff]ailed to set iommu for container",
        why="its TPU cannot be initialised",
    ),
    Fault(
        name="gpu-broken",
        pattern=r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable"
        r"|uncorrectable NVLink error detected"
        r"|GPU has fallen off the bus"
        r"|\bGPU is lost\b"
        r"|Unable to determine the device handle for GPU",
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
        # An image that does not exist is missing on every other host too.
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


#: The faults of a set-up that was not done in time, and of a task that kept the others of its gang waiting for too long.
SETUP_TIMEOUT, GANG_TIMEOUT = "setup-timeout", "gang-timeout"
#: Faults of what a job needs from outside the cluster, if they occur before its program starts: package indexes, git servers,
#: registries of images, and Google's services.
OF_THE_SETUP = frozenset({"network", "image-pull", SETUP_TIMEOUT, GANG_TIMEOUT})
#: Faults that do not count against the host: other hosts would have them too, or the program may have caused them.
BEYOND_THE_HOST = OF_THE_SETUP | {"store", "bundle", "docker", "attempt-lost", "disk-filled"}


def recognise(text: str, faults: Sequence[Fault] = FAULTS) -> Fault | None:
    """Returns the first of the faults whose pattern occurs in the text, or None."""
    return next((fault for fault in faults if re.search(fault.pattern, text, re.MULTILINE)), None)


def parse_fault(text: str, field: str = "fault") -> Fault:
    """Parses `NAME=REGEX`, the form in which a cluster's configuration adds its own faults.

    Raises:
        InvalidValue: no name, no regular expression, or one that matches any output.
    """
    name, equals, pattern = text.partition("=")
    if not equals:
        raise InvalidValue(field, text, "is not a fault", r'write NAME=REGEX, such as "fabric=NCCL WARN .* Link down"')
    return Fault(name=_check_name(name.strip(), field), pattern=_check_pattern(pattern.strip(), field))
