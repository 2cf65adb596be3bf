"""Builds the startup scripts of Google's machines from the cluster's settings and the slice request.

The fixed part of a script is in the `*.sh` files of this directory. The values of a machine are assigned before it, quoted for
the shell. The configuration is encoded in base64, so that a host gets it byte for byte.
"""

import base64
import shlex
from collections.abc import Mapping
from pathlib import Path

from iris.model import names
from iris.model.constraints import TPU_WORKER_ID, written
from iris.model.provisioning import SliceRequest
from iris.platforms.base import BadConfig
from iris.platforms.gcp.settings import GcpSettings

_HERE = Path(__file__).parent


def host_script(settings: GcpSettings, request: SliceRequest) -> str:
    """Returns the startup script of all machines of the slice. Each machine reads its worker id from its metadata.

    Raises:
        BadConfig: the configuration names no image.
    """
    group, device = request.group, request.group.resources.device
    # Only the machine knows its worker id.
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
    """Returns the startup script of the control plane's machine.

    Args:
        image: the image of the control plane's container.
        port: the port at which clients and hosts reach the cluster on the machine.

    Raises:
        BadConfig: the configuration names no image.
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
