"""Checks texts of a configuration against the rules of the places where they end up.

These places are lines of files and arguments of command lines: of ssh, docker, gcloud, systemd,
shells, and of Temporal's profile. There, a line feed begins another line, and a text that begins
with a dash is an option.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from iris.model.errors import InvalidValue
from iris.model.host.constraints import Attribute
from iris.model.ip_address import parse_ip
from iris.model.job.environments import check_image

#: The Unicode categories of control characters, of line and paragraph separators, and of halves of
#: surrogate pairs.
_CONTROL = ("Cc", "Cs", "Zl", "Zp")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:_-]{0,252})")
#: Matches a login user, also `DOMAIN\ada` and `ada@domain`. Other characters are unsafe: ssh
#: expands `%`, `~` and `$`, and a shell interprets quotes.
_LOGIN_USER = re.compile(r"\w([\w.@+\\-]*[\w.@+-])?")
_JUMP_HOST = re.compile(r"((?P<user>[^@]*)@)?(?P<host>[^@:]*)(:(?P<port>[0-9]{1,5}))?")
_MAX_PORT = 65535
#: Matches characters that cannot be escaped in a path of an ssh option: they end a quotation or
#: expand variables.
_NOT_IN_SSH_PATHS = re.compile(r"[\"\\$]")
#: Matches a name in a cloud, or a path of names: `default`, `projects/shared/global/networks/lab`,
#: `agent@project.iam.gserviceaccount.com`.
_CLOUD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST_AND_PORT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def check_line(text: str) -> str:
    """Returns the text unchanged. It can safely be a line of any file and an argument of any
    program.

    Raises:
        InvalidValue: the text has a character that ends a line or controls a terminal, or begins
            like an option.
    """
    if any(unicodedata.category(each) in _CONTROL for each in text):
        raise InvalidValue(
            "text",
            text,
            "has a line feed or another control character",
            "write printable characters on one line",
        )
    if text.startswith("-"):
        raise InvalidValue(
            "text",
            text,
            "begins with a dash, as an option of a program does",
            "begin with another character",
        )
    return text


def check_lines(value: Any) -> Any:
    """Returns the value unchanged, after checking each text in it with `check_line`.

    Raises:
        InvalidValue: a text is not safe, as in `check_line`.
    """
    if isinstance(value, str):
        check_line(value)
    elif isinstance(value, Mapping):
        check_lines((*value, *value.values()))
    elif isinstance(value, tuple):
        for each in value:
            check_lines(each)
    return value


def _read_address(value: str) -> str:
    if "@" in value:
        raise InvalidValue(
            "host", value, "contains a user name", "write only the address and set ssh_user"
        )
    if _HOST.fullmatch(value) is None:
        raise InvalidValue("host", value, "is not an address", "use an IP address or a host name")
    return value


def _read_login_user(value: str) -> str:
    if value and _LOGIN_USER.fullmatch(value) is None:
        remedy = "use letters, digits and . _ - + @ \\; begin with a letter, a digit or _"
        raise InvalidValue("user", value, "is not the name of a login user", remedy)
    return value


def _read_jump_host(value: str) -> str:
    parts = _JUMP_HOST.fullmatch(value)
    user, port = (parts["user"], parts["port"]) if parts else (None, None)
    is_user = user is None or (user != "" and _LOGIN_USER.fullmatch(user) is not None)
    is_port = port is None or 0 < int(port) <= _MAX_PORT
    if value and (
        parts is None or not is_user or not is_port or _HOST.fullmatch(parts["host"]) is None
    ):
        raise InvalidValue("jump_host", value, "is not a machine", "write [USER@]HOST[:PORT]")
    return value


def _read_ssh_file(value: str) -> str:
    if _NOT_IN_SSH_PATHS.search(value):
        problem = (
            "has a double quote, a backslash or a dollar sign, which ssh does not take literally"
        )
        raise InvalidValue("file", value, problem, "give the file another name, or link to it")
    if value.startswith("~") and value[1:2] not in ("", "/"):
        # ssh and Python both fail if this machine has no such user.
        problem = "begins with the home directory of another user"
        raise InvalidValue("file", value, problem, "write the whole path, or ~/ for your own")
    return value


def _read_host_path(value: str) -> str:
    if not value.startswith("/"):
        raise InvalidValue("directory", value, "is not an absolute path", "begin it with /")
    return read_mount(value)


def read_mount(value: str) -> str:
    """Returns the path of a host's directory that a container mounts.

    Raises:
        InvalidValue: Docker would take the text for several paths.
    """
    if ":" in value:
        raise InvalidValue(
            "directory",
            value,
            "has a colon, which separates the paths of a mount",
            "use another directory",
        )
    return value


def _read_image(value: str) -> str:
    return check_image(value) if value else value


def _pattern(pattern: re.Pattern[str], what: str, remedy: str) -> AfterValidator:
    def check(value: str) -> str:
        if value and pattern.fullmatch(value) is None:
            raise InvalidValue("text", value, f"is not {what}", remedy)
        return value

    return AfterValidator(check)


#: The value of a host's attribute. Each text in it must be one line of printable characters that
#: does not begin with a dash.
AttributeOfHost = Annotated[Attribute, AfterValidator(check_lines)]
#: An IP address or a host name.
Address = Annotated[str, AfterValidator(_read_address)]
#: An IP address.
IpAddress = Annotated[str, AfterValidator(parse_ip)]
#: The name of the user for an SSH login. If it is empty, `defaults.ssh.user` applies.
LoginUser = Annotated[str, AfterValidator(_read_login_user)]
#: An SSH jump host as `[USER@]HOST[:PORT]`; empty for none.
JumpHost = Annotated[str, AfterValidator(_read_jump_host)]
#: The path of a file for ssh, or `gcp:SECRET`; empty for none.
SshFile = Annotated[str, AfterValidator(_read_ssh_file)]
#: An absolute path on a host. The path is mounted in the agent's container.
HostPath = Annotated[str, AfterValidator(_read_host_path)]
#: A path on a host. The path is mounted in the containers of tasks.
Mount = Annotated[str, AfterValidator(read_mount)]
#: The name of a container image; empty for none.
Image = Annotated[str, AfterValidator(_read_image)]
#: The name or the path of a cloud resource; empty for the default.
CloudName = Annotated[
    str,
    _pattern(
        _CLOUD_NAME,
        "the name of a resource",
        "use letters, digits and . _ : / @ -; begin with a letter or a digit",
    ),
]
#: The name of a Temporal namespace.
Namespace = Annotated[
    str,
    _pattern(
        _NAMESPACE, "a namespace", "use letters, digits and . _ -; begin with a letter or a digit"
    ),
]
#: The address of a service, as `HOST:PORT`.
HostAndPort = Annotated[str, _pattern(_HOST_AND_PORT, "an address", "write HOST:PORT")]
#: The server name that a TLS certificate must contain. If it is empty, the certificate must contain
#: the host of the address.
ServerName = Annotated[
    str, _pattern(_HOST, "the name of a server", "use the host name of its certificate")
]
