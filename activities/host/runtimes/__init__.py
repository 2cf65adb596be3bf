"""Runs the program of an attempt on a host, as a plain process or in a container.

Open `base.py` first: it defines `Runtime` and `Launch`. It must not import `iris.workflows` or a
platform, or make a program depend on its agent: a program outlives the agent.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.activities.host.runtimes import docker_library as docker_library
else:
    __getattr__ = modules_of(__name__)
