"""Chooses the interpreter of a function's job: its version, and on a cluster of this machine the
interpreter of this program.
"""

import sys
from pathlib import Path

from iris.client.connect.clusters import ClusterRecord
from iris.client.workspace.projects import ProjectFiles, check_python, is_installed
from iris.model.errors import InvalidValue
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import JobSpec

#: The minor version that pickles, which the job needs, too.
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def for_pickles(spec: JobSpec, root: Path | None, asked: EnvironmentSpec | None = None) -> JobSpec:
    """Returns the job with an environment that can unpickle what this program pickles.

    Args:
        root: the directory of the job's files; None: it has none.
        asked: the environment that the user has named; None: the job inherits one, or has none.

    Raises:
        InvalidValue: its environment or project is not for this version of Python.
    """
    environment = spec.environment
    if asked is not None and asked.python not in ("", VERSION):
        remedy = f"submit it from Python {asked.python}, or leave the version out"
        raise InvalidValue(
            "python", asked.python, f"cannot run a function that Python {VERSION} pickles", remedy
        )
    if root is not None and environment.sync:
        check_python(ProjectFiles(root, environment.project), sys.version_info[:2])
    return spec.model_copy(
        update={"environment": environment.model_copy(update={"python": VERSION})}
    )


def is_bare(spec: JobSpec, root: Path | None) -> bool:
    """Returns whether nothing is installed for the job, and it names no image: it has what its
    host's Python has.

    Args:
        root: as for `for_pickles`.
    """
    environment = spec.environment
    if spec.image is not None or environment.pip or environment.setup or environment.extras:
        return False
    return (
        root is None
        or not environment.sync
        or not is_installed(ProjectFiles(root, environment.project))
    )


def own_interpreter(cluster: ClusterRecord) -> str | None:
    """Returns the path of this program's interpreter if a bare job of the cluster runs in it; None:
    its hosts are other machines.

    On this machine, such a job gets what its user has installed for this program. Nothing is
    installed into this interpreter.
    """
    on_this_machine = cluster.supervisor is not None and not cluster.over_ssh
    return sys.executable or None if on_this_machine else None
