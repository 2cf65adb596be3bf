"""Chooses the Python version of a function's job. On a cluster of this machine, chooses the
interpreter of this program.
"""

import sys
from pathlib import Path

from iris.client.connect.clusters import ClusterRecord
from iris.client.workspace.projects import ProjectFiles, check_python, is_installed
from iris.model.errors import InvalidValue
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import JobSpec

#: The minor version of Python that runs this program. A job needs the same version to unpickle its
#: function.
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def for_pickles(spec: JobSpec, root: Path | None, asked: EnvironmentSpec | None = None) -> JobSpec:
    """Returns the job with an environment that can unpickle a call of this program.

    Args:
        root: the directory of the job's files. None if it gets no files.
        asked: the environment that the user gave. None if the job inherits its environment or has
            none.

    Raises:
        InvalidValue: the environment or the project is for another version of Python.
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
    """Returns whether the job uses its host's Python: nothing is installed for it, and it names no
    image.

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
    """Returns the path of this program's interpreter if bare jobs of the cluster can run in it.
    Returns None if the hosts are other machines.

    Such a job has the packages that its user installed for this program. Iris installs nothing into
    this interpreter.
    """
    on_this_machine = cluster.supervisor is not None and not cluster.over_ssh
    return sys.executable or None if on_this_machine else None
