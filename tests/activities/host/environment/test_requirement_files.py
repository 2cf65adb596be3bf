"""Requirements files, as far as environments depend on them. Jobs name the files, and the agent
reads them.
"""

import os
from pathlib import Path

import pytest

from iris.activities.host.environment.projects import hash_of_requirements


def test_a_requirement_with_many_hashes_is_one_of_an_index(tmp_path: Path) -> None:
    """It is a longer line than any path may be: `pip-compile --generate-hashes` writes such
    files.
    """
    hashes = " \\\n    ".join(f"--hash=sha256:{number:064x}" for number in range(200))
    (tmp_path / "requirements.txt").write_text(f"six==1.17.0 \\\n    {hashes}\n")

    found, local = hash_of_requirements(tmp_path, "requirements.txt")

    assert list(found) == ["requirements.txt"]
    assert not local


@pytest.mark.parametrize("path", ["/proc/kmsg", "pipe", "nowhere", "/dev/zero", "."])
def test_a_file_that_would_block_or_never_end_is_not_read(tmp_path: Path, path: str) -> None:
    """The agent of all jobs of the host would stand still."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "requirements.txt").write_text(f"-r {path}\n")
    (tmp_path / "nothing").touch()

    found, _ = hash_of_requirements(tmp_path, "requirements.txt")
    nothing, _ = hash_of_requirements(tmp_path, "nothing")

    assert len(found) == 2
    assert nothing["nothing"] in found.values()
