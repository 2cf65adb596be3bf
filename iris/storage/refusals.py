"""Decides whether a failure of a store is final, so that another try cannot succeed.

obstore gives some of its errors no type of their own. So the text of the error decides.
"""

import errno
import re

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

#: Matches the HTTP status in obstore's text for a refused request.
_STATUS = re.compile(r"status code: (\d{3})")
#: Matches the error number in obstore's text for a failed call of the operating system.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
#: The HTTP statuses between 400 and 499 after which another try may succeed: timeout, conflict, too
#: early, too many requests.
_TRANSIENT = {408, 409, 425, 429}
_RIGHTS = "let this machine and the hosts of the cluster read, write and delete below this URL"
_CREDENTIALS = "renew the credentials for the store on this machine and on the hosts of the cluster"
_EXISTS = "create the bucket, or correct controller.bundle_prefix of the cluster's configuration"
_SPACE = "free disk space, for example with iris cluster gc, or store on a larger disk"
_URL = "correct controller.bundle_prefix of the cluster's configuration"
_OS_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount it writable, or store elsewhere",
    errno.ENOTDIR: _URL,
    errno.ENAMETOOLONG: _URL,
}


def remedy(error: BaseException) -> str | None:
    """Returns what a user can do about a final failure, or None if another try may succeed.

    Args:
        error: one of `STORE_ERRORS` from writing or deleting an object. A missing object is not a
            failure here.
    """
    if isinstance(error, PermissionDeniedError):
        return _RIGHTS
    if isinstance(error, UnauthenticatedError):
        return _CREDENTIALS
    if isinstance(error, FileNotFoundError):
        return _EXISTS
    if isinstance(error, InvalidPathError | NotSupportedError):
        return _URL
    text = str(error)
    if "redirect without LOCATION" in text:
        return "set the region of the bucket, for example in AWS_REGION"
    if status := _STATUS.search(text):
        number = int(status[1])
        return _URL if 400 <= number < 500 and number not in _TRANSIENT else None
    number = error.errno if isinstance(error, OSError) and error.errno else _os_error(text)
    return _OS_REMEDIES.get(number)


def _os_error(text: str) -> int:
    found = _OS_ERROR.search(text)
    return int(found[1]) if found else 0


def is_transient(error: Exception) -> bool:
    """Returns whether another try may succeed after this failure of a store."""
    return remedy(error) is None
