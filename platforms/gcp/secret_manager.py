"""Reads secrets from Google Secret Manager through its REST interface, with the credentials of this
machine.

Source: cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access
"""

import base64
from functools import cached_property
from typing import Any

import google.auth
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession
from requests import RequestException, Response, Session

from iris.platforms.base import BadConfig, Unavailable
from iris.retrying import retry

#: Google's address of Secret Manager.
ENDPOINT = "https://secretmanager.googleapis.com"
#: The only scope that Secret Manager accepts.
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
#: The deadline of one call, and the delay before the next try, in seconds.
DEADLINE, DELAY = 10.0, 1.0
TRIES = 3
#: The HTTP statuses after which the same call may succeed later.
_LATER = {408, 429, 500, 502, 503, 504}


class GoogleSecrets:
    """Reads secrets from Google Secret Manager. Implements
    `iris.activities.host.environment.secret_values.SecretManager`.

    Args:
        own_project: the project of secrets that name no project; empty: the project of the
            machine's credentials.
        endpoint: the address of Secret Manager; empty: Google's own.
        credentials: the credentials of the calls; None: the machine's own. They are not sent to an
            address with plain `http://`.
        delay: the delay before another try, in seconds.
    """

    def __init__(
        self,
        own_project: str = "",
        endpoint: str = "",
        credentials: Credentials | None = None,
        delay: float = DELAY,
    ) -> None:
        self._own_project = own_project
        self._endpoint = endpoint or ENDPOINT
        self._credentials = credentials
        self._delay = delay

    def project(self) -> str:
        """Implements `SecretManager.project`."""
        project = self._own_project or self._default[1]
        if not project:
            raise BadConfig(
                "this host has no project of its own; write"
                " gcp:projects/PROJECT/secrets/SECRET/versions/VERSION"
            )
        return project

    def access(self, resource: str) -> bytes:
        """Implements `SecretManager.access`."""
        return retry(Unavailable, every=self._delay, tries=TRIES)(self._access)(resource)

    @cached_property
    def _default(self) -> tuple[Any, str]:
        """The credentials of this machine, and their project."""
        try:
            credentials, project = google.auth.default(scopes=[_SCOPE])
        except DefaultCredentialsError:
            raise BadConfig("this host has no credentials of Google Cloud") from None
        return credentials, project or ""

    def _session(self) -> Session:
        if self._credentials is None and self._endpoint.lower().startswith("http://"):
            return Session()
        # google.auth has no types.
        credentials = self._credentials or self._default[0]
        session: Session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        return session

    def _access(self, resource: str) -> bytes:
        try:
            with self._session() as session:
                answer = session.get(f"{self._endpoint}/v1/{resource}:access", timeout=DEADLINE)
        except (TransportError, RequestException) as error:
            raise Unavailable(f"Secret Manager does not answer ({type(error).__name__})") from None
        except GoogleAuthError as error:
            if getattr(error, "retryable", False):
                raise Unavailable(
                    f"Google gives this host no access token ({type(error).__name__})"
                ) from None
            raise BadConfig(
                "Google gives this host no access token: its credentials are refused"
            ) from None
        return _value(answer)


def _value(answer: Response) -> bytes:
    """Returns the value in an answer. No error shows the answer to a call that succeeded.

    Raises:
        BadConfig: the call was refused.
        Unavailable: the call may succeed later.
    """
    try:
        content = answer.json()
        if answer.ok:
            return base64.b64decode(content["payload"]["data"], validate=True)
        message = str(content["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = "its answer is not valid"
    if answer.ok or answer.status_code in _LATER:
        raise Unavailable(f"Secret Manager answers with {answer.status_code}: {message}")
    raise BadConfig(f"Secret Manager answers with {answer.status_code}: {message}")
