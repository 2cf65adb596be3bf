"""What Google's machines run when they boot: a function of the cluster's settings and of what is wanted, as text.

The script itself stands in the files `*.sh` beside this one, and is the same for every machine; what differs is assigned before
it, quoted for the shell. The configuration travels in base64, so that a host has it byte for byte, whatever it contains.
"""

import base64
import shlex
from collections.abc import Mapping
from pathlib import Path

from iris import names
from iris.constraints import TPU_WORKER_ID, written
from iris.machines import SliceRequest
from iris.platforms.base import BadConfig
from iris.platforms.gcp.settings import GcpSettings

_HERE = Path(__file__).parent


def host_script(settings: GcpSettings, request: SliceRequest) -> str:
    """What every machine of the slice runs. It finds out itself which of them it is.

    Raises:
        BadConfig: there is no image to run.
    """
    group, device = request.group, request.group.resources.device
    # Which worker it is only the machine knows.
    attributes = group.host_attributes(request.slice_id, request.zone, worker=0)
    options = [f"--attribute={key}={written(value)}" for key, value in attributes.items() if key != TPU_WORKER_ID]
    if group.accept_cpu_jobs:
        options.append("--accept-cpu-jobs")
    if group.task_image:
        options.append(f"--image={group.task_image}")
    return _script(
        "host.sh",
        settings,
        _image(settings.image, "bootstrap.image"),
        {
            "CLUSTER": request.cluster,
            "SLICE": request.slice_id,
            "TOKEN": request.token,
            "ADDRESS": settings.address,
            "NAMESPACE": settings.namespace,
            "CACHE": settings.cache_dir,
            "DEVICE": "" if device is None else device.kind,
            "CHIPS": str(0 if device is None else device.count),
            "HOST_IDS": [names.host_of_slice(request.slice_id, worker, group.hosts) for worker in range(group.hosts)],
            "OPTIONS": options,
        },
    )


def controller_script(settings: GcpSettings, *, image: str, port: int) -> str:
    """What the control plane's machine runs.

    Args:
        image: of the control plane's container.
        port: where clients and hosts find the cluster on the machine.

    Raises:
        BadConfig: there is no image to run.
    """
    return _script("controller.sh", settings, _image(image, "controller.image"), {"PORT": str(port)})


def _image(image: str, field: str) -> str:
    if not image:
        raise BadConfig(f"{field}: empty, but nothing of Iris is installed on Google's machines; name a container image")
    return image


def _script(body: str, settings: GcpSettings, image: str, values: Mapping[str, str | list[str]]) -> str:
    config = base64.b64encode(settings.config.encode()).decode()
    assigned = {"IMAGE": image, **values, "CONFIG": config}
    return "\n".join(
        (
            "#!/bin/bash",
            "# Made by Iris, like the machine.",
            "# shellcheck disable=SC2016 # a dollar sign in a value means just that",
            *(f"{name}={_quoted(value)}" for name, value in assigned.items()),
            (_HERE / "shared.sh").read_text(),
            (_HERE / body).read_text(),
        )
    )


def _quoted(value: str | list[str]) -> str:
    return shlex.quote(value) if isinstance(value, str) else f"({shlex.join(value)})"
