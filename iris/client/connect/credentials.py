"""Selects the Temporal credentials of a connection: only credentials for the address of the
service.

Temporal's variables and profiles hold the credentials of one service: an API key, TLS settings and
headers. A command may talk to another service, which must not receive them. The credentials of a
profile belong to the profile's address. The credentials in variables belong to `TEMPORAL_ADDRESS`,
or to the profile's address if that variable is not set.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from temporalio.envconfig import ClientConfigProfile

from iris.model.errors import Unreachable

ADDRESS, CONFIG_FILE, PROFILE = "TEMPORAL_ADDRESS", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"
#: The prefixes of the names of environment variables that hold credentials. An empty variable
#: counts as unset.
SECRETS = ("TEMPORAL_API_KEY", "TEMPORAL_TLS", "TEMPORAL_GRPC_META_")


class Credentials(NamedTuple):
    """The credentials that are sent to the Temporal service at one address."""

    #: The arguments of `Client.connect` that contain the credentials.
    settings: Mapping[str, Any]
    #: A text for users that says which credentials the service does not get, why, and what to do if
    #: the service should get them. Empty if the service gets all credentials.
    withheld: str = ""


def credentials_for(address: str, environment: Mapping[str, str] | None = None) -> Credentials:
    """Returns the credentials for the service at this address.

    Args:
        environment: the environment variables; None for the variables of this process.

    Raises:
        Unreachable: a file that the credentials name cannot be read.
    """
    environment = dict(os.environ if environment is None else environment)
    profile, problem = _profile_in_file(environment)
    owner = environment.get(ADDRESS) or profile.address
    of_profile, of_variables = _same(profile.address, address), _same(owner, address)
    withheld = [problem] if problem else []
    if not of_variables:
        variables = sorted(
            name for name, value in environment.items() if value and name.startswith(SECRETS)
        )
        withheld += [
            f"{name} is not sent, because it is for {owner or 'an unknown service'}"
            for name in variables
        ]
    if not of_profile and _has_any(profile):
        name = environment.get(PROFILE) or "default"
        withheld.append(
            f"the credentials of profile {name!r} are not sent, because they are for"
            f" {profile.address or 'an unknown service'}"
        )
    if withheld:
        withheld.append(
            f"to use credentials here, set {ADDRESS} (or the address of the profile) to {address}"
        )
    # The API key of a profile, for instance, must not follow a TEMPORAL_ADDRESS that names another
    # service.
    chosen = profile if of_profile else ClientConfigProfile()
    try:
        if of_variables:
            chosen = ClientConfigProfile.load(
                disable_file=not of_profile, override_env_vars=environment
            )
        settings = dict(chosen.to_client_connect_config())
    except (RuntimeError, OSError) as error:
        raise Unreachable(f"the credentials for {address} cannot be read: {error}") from None
    settings = {
        key: value for key, value in settings.items() if key not in ("target_host", "namespace")
    }
    return Credentials(settings, "; ".join(withheld))


def _profile_in_file(environment: dict[str, str]) -> tuple[ClientConfigProfile, str]:
    """Returns the profile in the user's file, without variables, and an error message. The message
    is empty if the file can be read.
    """
    selection = (CONFIG_FILE, PROFILE)
    kept = {
        name: value
        for name, value in environment.items()
        if name in selection or not name.startswith("TEMPORAL_")
    }
    try:
        return ClientConfigProfile.load(override_env_vars=kept), ""
    except (RuntimeError, OSError) as error:
        return (
            ClientConfigProfile(),
            f"Temporal's configuration file cannot be used: {str(error).splitlines()[0]}",
        )


def _has_any(profile: ClientConfigProfile) -> bool:
    return profile.api_key is not None or profile.tls is not None or bool(profile.grpc_meta)


def _same(one: str | None, other: str) -> bool:
    return (one or "").strip().lower() == other.strip().lower()
