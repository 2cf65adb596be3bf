"""Checks clusters with machines over SSH (`manual_vm` groups) besides those of Google Cloud.

The control plane of such a cluster runs on Google Cloud and connects to the machines over SSH. It
has no files of the user, so the SSH key and the machines' known keys are secrets in Secret Manager.
"""

from collections.abc import Iterator

from iris.config.group_settings import ScaleGroupConfig
from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue
from iris.model.job.secrets import SecretKind, parse_secret_source, resource_of
from iris.model.slice.scale_groups import SliceType, is_gcp_zone

#: The prefix of references to secrets in Secret Manager.
REFERENCE = f"{SecretKind.GCP}:"
_STORE_IT = "store the file as a secret and write gcp:SECRET, as docs/gcp.md says"


def machine_groups(config: ClusterConfig) -> dict[str, ScaleGroupConfig]:
    """Returns the groups of machines over SSH."""
    return {
        name: group
        for name, group in config.scale_groups.items()
        if group.type is SliceType.MANUAL_VM
    }


def is_mixed(config: ClusterConfig) -> bool:
    """Returns whether the cluster has machines over SSH besides those of Google Cloud."""
    return config.platform.gcp is not None and bool(machine_groups(config))


def ssh_secret(config: ClusterConfig, file: str) -> str:
    """Returns the complete name of the secret that contains an SSH file; empty if the file is not a
    secret.

    Args:
        file: `ssh.known_hosts`, or the `ssh_key_file` of a group.
    """
    if not file.startswith(REFERENCE):
        return ""
    project = config.platform.gcp.project_id if config.platform.gcp is not None else ""
    return resource_of(parse_secret_source("ssh", file), project).name


def ssh_file_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields an error for each invalid reference to an SSH file, and for each group of machines
    over SSH in a zone of Google Cloud.
    """
    for path, file in _files(config):
        if not file.startswith(REFERENCE):
            continue
        if config.platform.gcp is None:
            yield InvalidValue(
                path,
                file,
                "is a secret of Google Cloud",
                "write the path of a file, or use platform.gcp",
            )
            continue
        try:
            parse_secret_source("ssh", file)
        except InvalidValue:
            remedy = "write gcp:SECRET or gcp:projects/PROJECT/secrets/SECRET"
            yield InvalidValue(path, file, "is not the name of a secret", remedy)
    if config.platform.gcp is None:
        return
    for name, group in machine_groups(config).items():
        for zone in filter(is_gcp_zone, group.zones):
            remedy = "use another name, such as lab-a, for where the machines are"
            yield InvalidValue(
                f"scale_groups.{name}.zones", zone, "is a zone of Google Cloud", remedy
            )


def unreachable(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields why the control plane on Google Cloud and the machines over SSH cannot reach each
    other.
    """
    temporal = config.controller.temporal
    if temporal is not None and temporal.tls:
        remedy = (
            "remove it: machines over SSH reach only the controller's own service or one"
            " without TLS"
        )
        yield InvalidValue(
            "controller.temporal.tls", "true", "is not supported with manual_vm groups", remedy
        )
    for path, file in _files(config):
        if not file.startswith(REFERENCE):
            problem = (
                "is not a secret, and the controller VM, which connects to the machines, has none"
                " of your files"
            )
            yield InvalidValue(path, file, problem, _STORE_IT)


def _files(config: ClusterConfig) -> Iterator[tuple[str, str]]:
    """Yields the path and the value of each setting that names an SSH file."""
    groups = machine_groups(config)
    for name, group in groups.items():
        yield f"scale_groups.{name}.ssh_key_file", group.ssh_key_file
    if groups:
        yield "defaults.ssh.known_hosts", config.defaults.ssh.known_hosts
