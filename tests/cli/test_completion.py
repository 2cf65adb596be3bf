"""Completion of command lines: which kind of name may follow, and what a shell gets."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from iris.cli.completion import ARGUMENTS, kind_of
from iris.cli.main import cli
from iris.cli.name_completion import Kind, job_words


@pytest.mark.parametrize(
    ("line", "incomplete", "kind"),
    [
        ("logs", "", Kind.JOBS),
        ("cancel a", "b", Kind.JOBS),
        ("job show", "", Kind.JOBS),
        ("job cancel", "", Kind.JOBS),
        ("--cluster c logs", "", Kind.JOBS),
        ("--cluster", "", Kind.CLUSTERS),
        ("host drain", "h", Kind.HOSTS),
        ("logs --agent", "", Kind.HOSTS),
        ("cluster pause --group", "", Kind.GROUPS),
        ("cluster stop", "", Kind.CLUSTERS),
        ("slice show", "", Kind.SLICES),
        ("rerun", "s", Kind.JOBS),
        ("priority", "t", Kind.JOBS),
        ("submit --after", "", Kind.JOBS),
        ("submit --after-ok", "a,", Kind.JOBS),
        ("submit --after-any", "", Kind.JOBS),
        ("submit --after-fail", "", Kind.JOBS),
        ("submit --tag a=b --from-checkpoint", "", Kind.JOBS),
        ("schedule show", "", Kind.SCHEDULES),
        ("schedule pause nightly", "", Kind.SCHEDULES),
        ("schedule resume", "", Kind.SCHEDULES),
        ("schedule trigger", "", Kind.SCHEDULES),
        ("schedule delete", "", Kind.SCHEDULES),
        ("host remove", "10.", Kind.MACHINES),
        ("logs", "--t", None),
        ("logs --tail", "", None),
        ("exec train --", "l", None),
        ("submit", "", None),
        ("", "lo", None),
    ],
)
def test_the_place_in_the_line_tells_which_names_may_follow(
    line: str, incomplete: str, kind: Kind | None
) -> None:
    """Without an import of the command; where an option may want a value, the command is asked."""
    assert kind_of(line.split(), incomplete) is kind


@pytest.mark.parametrize("words", ARGUMENTS)
def test_the_places_that_are_found_without_a_command_are_those_of_the_command(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a name would be completed in one place of a line, and another kind in the next."""
    monkeypatch.setattr("iris.cli.name_completion.known_names", lambda kind, _: [(kind.value, "")])
    command: click.Command | None = cli
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    argument = next(each for each in command.params if isinstance(each, click.Argument))

    found = argument.shell_complete(click.Context(command, obj={}), "")

    assert [item.value for item in found] == [ARGUMENTS[words]]


def ask(home: Path, line: str) -> tuple[list[str], bool]:
    """What bash gets for a line, and whether the client was imported for it."""
    env = {key: value for key, value in os.environ.items() if key != "IRIS_CLUSTER"}
    env |= {"IRIS_STATE_DIR": str(home), "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    code = (
        "import sys; from iris.cli.completion import answer; from iris.cli.main import cli;"
        " answer(cli, 'bash_complete');"
        " print('temporalio' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stderr == ""
    *found, imported = ran.stdout.split()
    return [each.partition(",")[2] for each in found], imported == "True"


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A home from which names were asked for a moment ago."""
    kept = tmp_path / "completions/-"
    kept.mkdir(parents=True)
    (kept / "jobs.json").write_text(json.dumps([["train", "RUNNING"], ["test", "FAILED"]]))
    (kept / "schedules.json").write_text(json.dumps([["nightly", "0 2 * * *"]]))
    return tmp_path


def test_names_that_were_asked_for_a_moment_ago_need_no_cluster(asked: Path) -> None:
    """A shell asks at each press of the key, and the client takes a third of a second."""
    assert ask(asked, "iris logs tr") == (["train"], False)
    assert ask(asked, "iris cancel train te") == (["test"], False)


def test_of_a_list_of_jobs_the_last_one_is_completed(asked: Path) -> None:
    """`--after a,b` is one word for the shell, which replaces all of it."""
    assert ask(asked, "iris submit --after te") == (["test"], False)
    assert ask(asked, "iris submit --after test,tr") == (["test,train"], False)


def test_the_command_that_is_watched_is_completed_as_alone(asked: Path) -> None:
    """`iris watch` takes the words of another command."""
    assert ask(asked, "iris watch status tr") == (["train"], False)
    assert ask(asked, "iris watch -n 5s status tr") == (["train"], False)
    assert ask(asked, "iris --cluster - watch expl")[0] == ["explain"]
    assert ask(asked, "iris watch --int")[0] == ["--interval"]


@pytest.mark.long
def test_names_of_schedules_are_completed_after_options_too(asked: Path) -> None:
    """A word after an option may be its value, so the command itself is asked."""
    assert ask(asked, "iris schedule pause nig") == (["nightly"], False)
    assert ask(asked, "iris schedule pause --reason x nig")[0] == ["nightly"]
    assert ask(asked, "iris submit --name nig")[0] == []


def test_commands_options_and_clusters_are_completed_without_the_client(tmp_path: Path) -> None:
    """These are in the table of commands, and in files."""
    (tmp_path / "clusters/tpus").mkdir(parents=True)
    (tmp_path / "clusters/tpus/cluster.json").write_text("{}")
    assert ask(tmp_path, "iris expl") == (["explain"], False)
    assert ask(tmp_path, "iris --cluster t") == (["tpus"], False)


@pytest.mark.long
def test_without_a_cluster_a_shell_gets_nothing_and_no_error(tmp_path: Path) -> None:
    """A message would be printed into the line that the user types."""
    assert ask(tmp_path, "iris logs tr")[0] == []
    assert ask(tmp_path, "iris submit --prio")[0] == ["--priority"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_reads(shell: str) -> None:
    """`eval "$(iris completion bash)"`."""
    script = subprocess.run(
        [sys.executable, "-m", "iris.cli.main", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert f"_IRIS_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)


@pytest.mark.parametrize(
    ("within", "words"),
    [
        (None, ["kid", "top", "ada/top/kid", "ada/top/other", "bob/kid"]),
        ("ada/top", ["ada/kid", "top", "kid", "other", "bob/kid"]),
    ],
)
def test_a_completed_word_names_the_job_for_which_it_stands(
    within: str | None, words: list[str]
) -> None:
    """`top/kid` was offered for a child, and would name a job of the user top. In a job, a bare
    name is its child's first.
    """
    assert (
        job_words(["ada/kid", "ada/top", "ada/top/kid", "ada/top/other", "bob/kid"], "ada", within)
        == words
    )
