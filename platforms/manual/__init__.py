"""Machines that exist already, reached over SSH. Read `platform.py` first, then `host.sh`, which
runs on each machine.

Code here must not touch anything on a machine outside of Iris's directory there, except for
processes that Iris started.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.platforms.manual import connections as connections
    from iris.platforms.manual import keeper as keeper
    from iris.platforms.manual import platform as platform
    from iris.platforms.manual import runtime as runtime
    from iris.platforms.manual import settings as settings
    from iris.platforms.manual import survey as survey
else:
    __getattr__ = modules_of(__name__)
