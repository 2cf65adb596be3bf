"""Who I am, and which job is meant."""

import getpass
import os
import re

from iris import names
from iris.errors import InvalidValue


def current_user() -> str:
    """Whose jobs these are: `IRIS_USER`, else the login name as far as it can be part of an id."""
    if explicit := os.environ.get(names.ENV_USER):
        return names.check_name(names.ENV_USER, explicit)
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        login = f"uid-{os.getuid()}"
    return re.sub(r"[^a-zA-Z0-9._-]", "-", login).strip("._-")[: names.MAX_NAME] or "user"


def signed(reason: str) -> str:
    """What an operator says of a deed, and who that is."""
    return f"{reason} (by {current_user()})" if reason else f"by {current_user()}"


def full_job_id(job: str) -> str:
    """The id of `name` (one of mine) or `user/name`.

    Raises:
        InvalidValue: it is neither.
    """
    user, slash, name = job.partition("/")
    if not slash:
        user, name = current_user(), job
    if "/" in name:
        raise InvalidValue("job", job, "is not a job", "write NAME or USER/NAME")
    return names.job_id(names.check_name("job", user), names.check_name("job", name))
