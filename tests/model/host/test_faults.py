"""Which last words of a program accuse its host."""

import pytest
from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.model.host.faults import FAULTS, Fault, parse_fault, recognise


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "accelerator-busy",
            (
                "jax.errors.JaxRuntimeError: UNKNOWN: TPU initialization failed: open(/dev/vfio/0):"
                " Device or resource busy: Device or resource busy; Couldn't open iommu group"
                " /dev/vfio/0"
            ),
        ),
        ("accelerator-busy", "Couldn't open device: /dev/accel0 (Device or resource busy)"),
        (
            "accelerator-busy",
            (
                "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in"
                " use by process with pid 22589. Not attempting to load libtpu.so in this process."
            ),
        ),
        (
            "accelerator-busy",
            (
                "RuntimeError: Unable to initialize backend 'tpu':\nABORTED: Internal error when"
                ' accessing libtpu multi-process lockfile. Run "$ sudo rm /tmp/libtpu_lockfile".'
            ),
        ),
        (
            "accelerator-busy",
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n  current device: 0",
        ),
        (
            "accelerator-busy",
            "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        ),
        (
            "tpu-broken",
            (
                "RuntimeError: Bad StatusOr access: UNKNOWN: TPU initialization failed:"
                " TPU_RET_CHECK failure GetChip(i)->location()"
            ),
        ),
        (
            "tpu-broken",
            (
                "jax.errors.JaxRuntimeError: Failed to initialize TPU system, please contact Cloud"
                " TPU Support."
            ),
        ),
        (
            "tpu-broken",
            (
                "F0403 main.cc:91] Failed to initialize TPU system: some backend error\nAborted"
                " (core dumped)"
            ),
        ),
        ("tpu-broken", "Couldn't open iommu group /dev/vfio/3"),
        (
            "gpu-broken",
            (
                "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCompile with"
                " `TORCH_USE_CUDA_DSA`"
            ),
        ),
        (
            "gpu-broken",
            (
                "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE:"
                " uncorrectable ECC error"
            ),
        ),
        (
            "gpu-broken",
            (
                "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the"
                " execution"
            ),
        ),
        ("gpu-broken", "NVRM: Xid (PCI:0000:44:00): 79, pid=123, GPU has fallen off the bus."),
        (
            "gpu-broken",
            (
                "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot"
                " the system to recover this GPU"
            ),
        ),
        ("gpu-broken", "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"),
        (
            "gpu-driver",
            (
                "Failed to initialize NVML: Driver/library version mismatch\nNVML library version:"
                " 550.144"
            ),
        ),
        (
            "gpu-driver",
            "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
        ),
        (
            "image-pull",
            (
                "docker: Error response from daemon: pull access denied for ada/train, repository"
                " does not exist or may require 'docker login': denied: requested access to the"
                " resource is denied.\nSee 'docker run --help'."
            ),
        ),
        (
            "image-pull",
            (
                "Error response from daemon: toomanyrequests: You have reached your unauthenticated"
                " pull rate limit."
            ),
        ),
        (
            "image-pull",
            (
                'docker: Error response from daemon: Get "https://registry-1.docker.io/v2/":'
                " net/http: TLS handshake timeout"
            ),
        ),
        ("image-pull", "Error response from daemon: unauthorized: authentication required"),
        (
            "image-pull",
            (
                'failed to pull and unpack image "ghcr.io/ada/train:1": failed to copy:'
                " httpReadSeeker: failed open: i/o timeout"
            ),
        ),
        ("stale-file-handle", "OSError: [Errno 116] Stale file handle: '/data/shard-00012.npz'"),
        ("stale-file-handle", "cat: /mnt/nfs/vocab.txt: Stale NFS file handle"),
        ("stale-file-handle", "Error: ESTALE: stale file handle, open '/data/vocab.txt'"),
    ],
)
def test_a_fault_of_the_host_is_recognised_by_the_last_lines(name: str, text: str) -> None:
    """Its attempt is then accounted as a preemption: it costs the program none of its retries."""
    last_lines = f"step 100 loss 2.31\nTraceback (most recent call last):\n{text}\nexit status 1\n"

    fault = recognise(last_lines)

    assert fault is not None
    assert fault.name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: shapes (8, 128) and (64, 128) not aligned",
        "OSError: [Errno 28] No space left on device: '/tmp/x'",
        "OSError: [Errno 98] Address already in use",
        "OSError: [Errno 16] Device or resource busy: '/mnt/scratch'",
        "umount: /mnt/data: Device or resource busy",
        "PermissionError: [Errno 13] Permission denied: '/dev/vfio/0'",
        "Port 8888 is already in use by process with PID 4242",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Found no NVIDIA driver on your system.",
        "| GPU  Name  Persistence-M | Bus-Id  Disp.A | Volatile Uncorr. ECC |",
        "ECC errors: corrected 12, uncorrectable 0",
        "WARNING: Can't initialize NVML",
        (
            "INFO:jax._src.xla_bridge:Unable to initialize backend 'tpu': INTERNAL: Failed to open"
            " libtpu.so: cannot open it"
        ),
        (
            "Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: No ba16c7433"
            " device found."
        ),
        "DEADLINE_EXCEEDED: TPU initialization failed: Failed to connect to 10.0.0.7:8471",
        (
            "TPU initialization failed: no module named 'libtpu'\nFalling back to"
            " GPU/CPU...\nKeyError: 'lr'"
        ),
        "Failed to initialize TPU system, falling back to CPU\nKeyError: 'lr'",
        (
            "libtpu.so already in used by another process. Not attempting to load libtpu.so in this"
            " process."
        ),
        "removing /tmp/libtpu_lockfile",
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying"
            " to allocate 8589934592 bytes."
        ),
        (
            "docker: Error response from daemon: manifest for ada/train:typo not found: manifest"
            " unknown: manifest unknown."
        ),
        (
            'failed to pull and unpack image "docker.io/ada/typo:1": failed to resolve reference:'
            " docker.io/ada/typo:1: not found"
        ),
        "docker: Error response from daemon: Conflict. The container name is already in use.",
        "pod/web-0   0/1   ImagePullBackOff   0   5m",
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests",
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example.com'):"
            " /v2/users: TLS handshake timeout"
        ),
        "closed 12 stale file handles",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-00012.npz'",
        "Killed",
        "Segmentation fault (core dumped)",
    ],
)
def test_what_a_program_may_cause_or_print_itself_is_not_a_fault_of_the_host(text: str) -> None:
    """Such a program would be run again a hundred times, on good hosts, and fail on each."""
    assert recognise(f"step 100 loss 2.31\n{text}\nexit status 1\n") is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_can_be_told_apart_and_told_to_people(fault: Fault) -> None:
    """Lists and the configuration show the name; the reason of an attempt shows the text."""
    assert [each.name for each in FAULTS].count(fault.name) == 1
    assert fault.why


def test_the_first_fault_that_is_recognised_gives_the_reason() -> None:
    """A cluster puts its own faults before or after these, and so decides between two that both
    match.
    """
    general, special = (
        Fault(name="general", pattern="link"),
        Fault(name="special", pattern="link down"),
    )

    assert recognise("eth0: link down", [special, general]) == special
    assert recognise("eth0: link down", [general, special]) == general
    assert recognise("eth0: link down", []) is None


def test_a_cluster_may_name_faults_of_its_own() -> None:
    """An equals sign may be part of the expression; its ends of line are those of each line of the
    output.
    """
    fault = parse_fault("fabric = ^NCCL WARN .* status=12$")

    assert fault.name == "fabric"
    assert recognise("one\nNCCL WARN Got completion status=12\ntwo", [fault]) == fault
    assert recognise("INFO NCCL WARN Got completion status=12", [fault]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fabric",
        "=x",
        " =x",
        "two words=x",
        "fabric=",
        "fabric=.*",
        "fabric=^$",
        "fabric=x|",
        "fabric=(",
        "fabric=x{99999999999}",
    ],
)
def test_what_is_no_fault_is_refused_by_field_name(text: str) -> None:
    """One that is found in any output would make every failure a fault of its host."""
    with pytest.raises(InvalidValue, match=r"^faults: "):
        parse_fault(text, field="faults")


@pytest.mark.parametrize(
    ("field", "name", "pattern"), [("name", "", "x"), ("pattern", "x", "("), ("pattern", "x", "")]
)
def test_an_impossible_fault_cannot_be_built(field: str, name: str, pattern: str) -> None:
    """However it is made, `recognise` may rely on it."""
    with pytest.raises(ValidationError) as error:
        Fault(name=name, pattern=pattern)

    (problem,) = error.value.errors()
    assert problem["loc"] == (field,)
    assert isinstance(problem["ctx"]["error"], InvalidValue)
