"""Faults of the infrastructure, recognised by the last lines of a program that ended badly: not the program's failure.

A fault that is missed costs the program one of its own retries; a program's own failure taken for a fault is run again a hundred
times. So a pattern must be the words of a driver, a kernel or a registry, and nothing that a program could well cause or print
itself: a full disk or a port in use may be the program's doing, and "no TPU found" is said on every host that has none.
"""

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, field_validator

from iris.errors import InvalidValue


class Fault(BaseModel):
    """One way in which a host lets a program down.

    Raises:
        pydantic.ValidationError: wraps the `InvalidValue` of a name or pattern that is none.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    #: A regular expression, searched for in the output; `^` and `$` are the ends of a line.
    pattern: str
    #: A few words for people, to follow "the host is to blame: ".
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
        raise InvalidValue(field, name, "cannot name a fault", "use letters, digits, dots, dashes or underscores")
    return name


def _check_pattern(pattern: str, field: str) -> str:
    try:
        found = re.compile(pattern, re.MULTILINE).search("")
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidValue(field, pattern, f"is not a regular expression: {error}", r"escape ( ) [ ] . * + ? with \ ") from None
    if found:
        raise InvalidValue(field, pattern, "is found even in no output at all", "write words that only the fault prints")
    return pattern


#: The first that is recognised gives the reason. Wordings seen in libtpu, JAX and PyTorch/XLA, CUDA and NVML, Docker and
#: containerd, and the kernel.
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
        # libtpu says so under a status code (UNKNOWN, INTERNAL …). That there is no TPU at all, or that another host of the slice
        # does not answer, is no proof against this one; a program that announces its own fallback goes on, and fails of itself.
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
        # An image that does not exist exists on no other host either.
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
        why="a file system it mounts from the network went away",
    ),
)


#: Faults that say nothing against the host that met them: others would meet them as well, or the program may have caused them.
BEYOND_THE_HOST = frozenset({"network", "image-pull", "store", "bundle", "docker", "attempt-lost"})


def recognise(text: str, faults: Sequence[Fault] = FAULTS) -> Fault | None:
    """The first of the faults whose pattern occurs in the text."""
    return next((fault for fault in faults if re.search(fault.pattern, text, re.MULTILINE)), None)


def parse_fault(text: str, field: str = "fault") -> Fault:
    """The fault of `NAME=REGEX`, as a cluster's configuration adds its own.

    Raises:
        InvalidValue: no name, no regular expression, or one that matches any output.
    """
    name, equals, pattern = text.partition("=")
    if not equals:
        raise InvalidValue(field, text, "is not a fault", r'write NAME=REGEX, such as "fabric=NCCL WARN .* Link down"')
    return Fault(name=_check_name(name.strip(), field), pattern=_check_pattern(pattern.strip(), field))
