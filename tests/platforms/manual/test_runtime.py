"""What machines over SSH get of the packages of the control plane."""

import importlib.metadata
import tarfile
from pathlib import Path

import pytest

from iris.platforms.manual.runtime import PYTHON, pack


@pytest.mark.long
def test_the_same_packages_have_the_same_digest(tmp_path: Path) -> None:
    """Agents begin anew when it changes. After a restart of the control plane it is another only
    with other packages.
    """
    assert pack(tmp_path / "first").digest == pack(tmp_path / "second").digest


@pytest.mark.long
def test_packages_packed_in_a_source_tree_have_the_version_of_iris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reads it when it starts. In a source tree, the metadata of the last build hides
    that of the installation.
    """
    metadata = tmp_path / "tree" / "iris_temporal.egg-info"
    metadata.mkdir(parents=True)
    (metadata / "PKG-INFO").write_text(
        "Metadata-Version: 2.1\nName: iris-temporal\nVersion: 1.2.3\n"
    )
    (metadata / "SOURCES.txt").write_text(
        "iris_temporal.egg-info/PKG-INFO\niris_temporal.egg-info/SOURCES.txt\n"
    )
    monkeypatch.chdir(metadata.parent)
    monkeypatch.syspath_prepend("")

    with tarfile.open(pack(tmp_path / "packed").file) as archive:
        archive.extractall(tmp_path / "machine", filter="data")

    packages = tmp_path / "machine" / "lib" / f"python{PYTHON}" / "site-packages"
    found = importlib.metadata.distributions(name="iris-temporal", path=[str(packages)])
    assert [each.version for each in found] == ["1.2.3"]
