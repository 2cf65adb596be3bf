"""Finds settings that are valid but risky: the default account, public addresses, images that
change.
"""

import re
from collections.abc import Iterator

from iris.config.checks.served import unread
from iris.config.defaults import secret_manager_references
from iris.config.schema import ClusterConfig, GcpPlatformConfig
from iris.model.job.environments import has_digest

#: Matches the default service account of a Google Cloud project. In older projects, this account
#: has the right to change everything in the project.
_DEFAULT_ACCOUNT = re.compile(r"(default)?|\d+-compute@developer\.gserviceaccount\.com")


def risks(config: ClusterConfig) -> tuple[str, ...]:
    """Returns a line with the remedy for each risk of a complete configuration, and for each
    setting without effect. The configuration can be used all the same.
    """
    gcp = config.platform.gcp
    return (
        *(_risks_of_gcp(config, gcp) if gcp is not None else ()),
        *_changing_images(config),
        *unread(config),
    )


def _risks_of_gcp(config: ClusterConfig, gcp: GcpPlatformConfig) -> Iterator[str]:
    controller = config.controller.gcp
    if config.scale_groups and _DEFAULT_ACCOUNT.fullmatch(gcp.service_account):
        yield (
            "platform.gcp.service_account: hosts and jobs have the project's default account with"
            f" the scopes {', '.join(gcp.scopes)}; set an account of their own with the roles that"
            " docs/gcp.md lists"
        )
    if (
        config.scale_groups
        and "scopes" not in gcp.model_fields_set
        and (keys := secret_manager_references(config))
    ):
        yield (
            f"platform.gcp.scopes: {' and '.join(keys)} refer to Secret Manager, which needs the"
            " scope cloud-platform, so jobs can read all secrets of the hosts' account and use all"
            " APIs that its roles permit; refer to files of the hosts, or accept it with scopes:"
            " [cloud-platform]"
        )
    if controller is not None and _DEFAULT_ACCOUNT.fullmatch(controller.service_account):
        yield (
            "controller.gcp.service_account: the controller has the project's default account with"
            " the scope cloud-platform; set an account of its own with the roles that docs/gcp.md"
            " lists"
        )
    elif (
        controller is not None
        and config.scale_groups
        and controller.service_account == gcp.service_account
    ):
        yield (
            "platform.gcp.service_account: hosts have the controller's account, so jobs can create"
            " and delete machines; set an account of their own"
        )
    if gcp.external_ips:
        yield (
            "platform.gcp.external_ips: machines have public addresses, which only the firewall"
            " protects; set it to false and controller.gcp.iap to true, and give the subnetwork"
            " Private Google Access or Cloud NAT"
        )


def _changing_images(config: ClusterConfig) -> Iterator[str]:
    """Yields a line for each image of Iris that is named by a tag."""
    images = (
        {} if config.controller.local is not None else {"controller.image": config.controller.image}
    )
    if config.platform.local is None and config.scale_groups:
        images["bootstrap.image"] = config.bootstrap.image
    for key, image in images.items():
        if image and not has_digest(image):
            yield (
                f"{key}: {image} names the image by a tag, which can be changed to another image; "
                "use NAME@sha256:…, as scripts/build-images --push prints it"
            )
