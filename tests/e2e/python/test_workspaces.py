"""A user's files, from the directory where they submit to the one where their program starts."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_home

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git work tree with a program that reads its neighbours, and things that nobody else
    needs.
    """
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "words.sh").write_text("word=hello\n")
    (tmp_path / "run.sh").write_text(
        '#!/bin/sh\n. ./lib/words.sh\necho "$word $1"\nfind . -mindepth 1 | sort\n'
    )
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "latest").symlink_to("lib/words.sh")
    (tmp_path / "secret").write_text("never to leave this machine")
    (tmp_path / "huge.bin").touch()
    (tmp_path / ".gitignore").write_text("secret\n*.bin\n")
    return tmp_path


FOUND = ["./.gitignore", "./latest", "./lib", "./lib/words.sh", "./run.sh"]


def test_a_project_runs_from_its_own_directory(cluster: Cluster, project: Path) -> None:
    """The program starts among the project's files, executable ones are, links lead where they led;
    ignored ones stay here.
    """
    ran = cluster.iris("submit", "-n", "project", "--", "./run.sh", "world", cwd=project)
    assert ran.out.splitlines() == ["hello world", *FOUND]
    assert ran.err.startswith(
        f"sends the project at {project.resolve()}: 4 files; --no-workspace sends none\n"
    )
    assert "uploaded" in ran.err


def test_what_has_not_changed_is_not_sent_again_and_what_has_is(
    cluster: Cluster, project: Path
) -> None:
    """Edit and submit, all day long; and each job runs what was there when it was submitted."""
    (project / "lib" / "words.sh").write_text("word=first\n")
    said = [
        cluster.iris("submit", "-d", "-n", f"edit-{number}", "--", "./run.sh", cwd=project).err
        for number in range(2)
    ]
    (project / "lib" / "words.sh").write_text("word=second\n")
    said.append(cluster.iris("submit", "-d", "-n", "edit-2", "--", "./run.sh", cwd=project).err)
    assert ["nothing sent" in each for each in said] == [False, True, False]
    cluster.iris("wait", *(f"edit-{number}" for number in range(3)))
    assert [cluster.logs(f"edit-{number}")[0].strip() for number in range(3)] == [
        "first",
        "first",
        "second",
    ]


def test_attempts_have_files_of_their_own(cluster: Cluster, project: Path) -> None:
    """What one task writes among its files no other sees, nor the user who submitted."""
    ran = cluster.iris(
        *("submit", "-n", "own-files", "--replicas", "3", "--", "sh", "-c"),
        'set -C; echo mine > mark; echo "$(cat mark) $IRIS_TASK_INDEX"; echo >> lib/words.sh',
        cwd=project,
    )
    assert sorted(ran.out.splitlines()) == ["[0] mine 0", "[1] mine 1", "[2] mine 2"]
    assert not (project / "mark").exists()
    assert (project / "lib" / "words.sh").read_text() == "word=hello\n"


def test_a_named_file_goes_along_and_so_does_another_directory(
    cluster: Cluster, project: Path
) -> None:
    """`--workspace` from anywhere, and `--file` for the one ignored file that the program needs."""
    ran = cluster.iris(
        *(
            "submit",
            "-n",
            "named",
            "--workspace",
            str(project),
            "--file",
            f"{project}/secret",
            "--file",
            "extra:lib/",
        ),
        *("--", "sh", "-c", "cat secret lib/extra; pwd"),
        cwd=_with(cluster.work / "elsewhere", extra=", here\n"),
    )
    told, where = ran.out.splitlines()
    assert told == "never to leave this machine, here"
    assert not where.startswith(str(project))


def test_without_a_workspace_nothing_goes_along(cluster: Cluster, project: Path) -> None:
    """A local cluster's hosts have the present directory anyway, and a program may be meant to work
    there.
    """
    ran = cluster.iris("submit", "-n", "bare", "--no-workspace", "--", "pwd", cwd=project)
    assert ran.out == f"{project}\n"
    assert "workspace" not in ran.err


def test_a_workspace_that_is_too_large_starts_nothing(cluster: Cluster, project: Path) -> None:
    """Refused with the culprit's name and exit code 5; the name of the job is still free. A
    rehearsal does not even look.
    """
    (project / "huge.dat").touch()
    with (project / "huge.dat").open("wb") as huge:
        huge.truncate(101 * 1024 * 1024)
    refused = cluster.iris("submit", "-n", "too-large", "--", "true", cwd=project, code=5)
    assert "huge.dat" in refused.err
    assert ".irisignore" in refused.err
    assert "submitted" not in refused.err
    cluster.iris("status", "too-large", code=3)
    cluster.iris("submit", "--dry-run", "--", "true", cwd=project)
    (project / ".irisignore").write_text("*.dat\n")
    cluster.iris("submit", "-n", "too-large", "--", "true", cwd=project)


def test_a_local_submit_takes_the_project_along(project: Path) -> None:
    """`--local`: the same without a cluster."""
    with a_home() as home:
        nowhere = Cluster(home)
        assert nowhere.iris(
            "submit", "--local", "--", "./run.sh", "there", cwd=project
        ).out.splitlines() == [
            "hello there",
            *FOUND,
        ]


def _with(directory: Path, **files: str) -> Path:
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory
