"""Operates a control plane on a machine that Iris reaches over SSH: installs it, starts it, ends it
and removes it.

Every operation can be repeated, and finds on the machine what an earlier one has left undone.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

from iris.platforms.manual.connections import Connections, UnusableMachine
from iris.platforms.manual.leases import encoded, script
from iris.platforms.manual.runtime import MACHINE, PYTHON, Runtime
from iris.platforms.manual.settings import HostAccess, ManualSettings

#: The shell functions that run on the control plane's machine. They call functions of `host.sh`.
SCRIPT = (Path(__file__).parent / "controller.sh").read_text()
#: The directory of all control planes on a machine, in the home directory of the login user.
DIRECTORY = ".iris-controller"
#: The disk space that a control plane needs on its machine, in kilobytes. The space for the files
#: of jobs is not included.
SPACE = 1024 * 1024
COMMAND_LIMIT = timedelta(seconds=90)
#: The time limit for sending the packages over a slow connection.
UPLOAD_LIMIT = timedelta(minutes=10)
INSTALL_LIMIT = timedelta(minutes=5)
#: The time limit for the start of a control plane, which first logs in to each host.
LAUNCH_LIMIT = timedelta(minutes=3)
#: The time limit for the stop of a control plane, which gives each task its grace period and waits
#: for hosts that do not answer.
REMOVE_LIMIT = timedelta(minutes=6)

#: The text in messages for each kind of program that can keep a control plane running.
MANAGERS = {
    "system": "systemd",
    "user": "systemd, as a service of the login user",
    "none": "no systemd: after a reboot of the machine, start the cluster again",
}


class SeenController(NamedTuple):
    """The state of a control plane's machine, as the machine reports it."""

    #: The uid of the cluster that owns the control plane's directory; empty if no cluster owns it.
    uid: str = ""
    #: The digest of the packages with which the control plane starts next; empty if none are
    #: installed.
    runtime: str = ""
    #: The text of the control plane's configuration; empty if the control plane was never started.
    config: str = ""
    #: The digest of the cluster's file of payload keys; empty if the cluster has no such file.
    keys: str = ""
    #: The kind of program that keeps the control plane running, a key of `MANAGERS`; empty if the
    #: control plane was never started.
    manager: str = ""
    #: The pid of the control plane's supervisor; 0 if it does not run.
    pid: int = 0
    #: The record of the cluster on the machine, as JSON; empty if the cluster never ran.
    record: str = ""
    #: The content of the file with the key that authenticates the cluster's messages; empty if the
    #: cluster never ran.
    message_key: str = ""
    #: A line for each host that the control plane cannot use.
    warnings: str = ""

    @classmethod
    def of(cls, answer: Mapping[str, str]) -> Self:
        """Parses the answer of the machine."""
        text = {
            key: base64.b64decode(answer.get(key, "")).decode()
            for key in ("config", "record", "message_key", "warnings")
        }
        return cls(
            uid=answer.get("uid", ""),
            runtime=answer.get("runtime", ""),
            keys=answer.get("keys", ""),
            manager=answer.get("manager", ""),
            pid=int(answer.get("pid", "0")),
            **text,
        )


class ControllerHost:
    """Operates the machine of one cluster's control plane over SSH."""

    def __init__(self, settings: ManualSettings, access: HostAccess) -> None:
        self.access = access
        self._settings = settings.model_copy(update={"directory": DIRECTORY})
        self._connections = Connections(self._settings)

    async def look(self) -> SeenController:
        """Returns the control plane's state.

        Raises:
            MachineFault: the machine is not reached.
            UnusableMachine: another cluster with this name has its control plane there.
        """
        seen = SeenController.of(await self._ask("look", "looking at the control plane"))
        if seen.uid and seen.uid != self._settings.uid:
            raise UnusableMachine(
                f"{self.access}: another cluster {self._settings.cluster} has its control plane"
                " there; give this one another name"
            )
        return seen

    async def claim(self, port: int) -> SeenController:
        """Makes the directory of the cluster, and checks that the machine can run its control
        plane.

        Args:
            port: of the Temporal service on that machine.

        Raises:
            UnusableMachine: it cannot; the text has the reason.
        """
        found = {
            str(host.key_file) for host in self._settings.all_hosts if host.key_file is not None
        }
        values = {"UID_": self._settings.uid, "PORT": str(port), "KEYS": "\n".join(sorted(found))}
        values |= {"MACHINE": MACHINE, "PYTHON": PYTHON, "SPACE": str(SPACE)}
        return SeenController.of(
            await self._ask("claim", "checking the machine", COMMAND_LIMIT, **values)
        )

    async def install(self, runtime: Runtime) -> None:
        """Sends the packages to the machine. The next launch uses them."""
        place = f'"$HOME/{DIRECTORY}/{self._settings.cluster}/runtime.tgz"'
        upload = f"exec sh -c 'umask 077; exec cat > {place}'"
        what = "sending the control plane's packages"
        await self._connections.run(
            self.access, upload, runtime.file, limit=UPLOAD_LIMIT, what=what
        )
        await self._ask(
            "unpack",
            "installing the control plane",
            limit=INSTALL_LIMIT,
            DIGEST=runtime.digest,
            PYTHON=PYTHON,
        )

    async def launch(self, config: str, payload_keys: str = "") -> SeenController:
        """Starts the control plane with this configuration, unless it runs.

        Args:
            payload_keys: the content of the file with the keys with which the cluster encrypts
                payloads; empty: it does not.

        Raises:
            UnusableMachine: it can use none of the hosts, or the machine does not start it.
        """
        what, given = (
            "starting the control plane",
            {"CONFIG": encoded(config), "PAYLOAD_KEYS": encoded(payload_keys)},
        )
        return SeenController.of(await self._ask("launch", what, limit=LAUNCH_LIMIT, **given))

    async def halt(self) -> None:
        """Ends the control plane. Agents and programs on hosts continue."""
        await self._ask("halt", "ending the control plane", limit=LAUNCH_LIMIT)

    async def apply(self, config: str) -> None:
        """Applies another configuration to the running control plane, and to its next start."""
        await self._ask("apply", "applying the configuration", CONFIG=encoded(config))

    async def remove(self, given_up: Sequence[str] = ()) -> None:
        """Ends the leases of the hosts, and removes the control plane's files from its machine.

        Args:
            given_up: addresses of hosts that will not come back.

        Raises:
            UnusableMachine: a host may still have a lease; the text names it. The control plane
                does not run any more.
        """
        await self._ask(
            "remove", "stopping the control plane", limit=REMOVE_LIMIT, GIVEN_UP=" ".join(given_up)
        )

    async def rotate(self) -> str:
        """Replaces the key with which users' secrets are sealed, and returns what was done as
        JSON.
        """
        answer = await self._ask("rotate", "replacing the key for secrets", limit=LAUNCH_LIMIT)
        return base64.b64decode(answer.get("output", "")).decode(errors="replace")

    async def output(self, lines: int) -> str:
        """Returns the end of the control plane's logs."""
        answer = await self._ask("output", "reading the control plane's logs", LINES_=str(lines))
        return base64.b64decode(answer.get("output", "")).decode(errors="replace")

    async def _ask(
        self, call: str, what: str, limit: timedelta = COMMAND_LIMIT, **values: str
    ) -> dict[str, str]:
        asked = script(
            self._settings, f"{SCRIPT}\n{call}", CLUSTER=self._settings.cluster, **values
        )
        return await self._connections.script(self.access, asked, limit=limit, what=what)
