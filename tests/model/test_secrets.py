"""References to secrets: what may be written, what a configuration allows, and which names look like a secret."""

import pytest

from iris.model.errors import InvalidValue
from iris.model.jobs import JobSpec
from iris.model.secrets import (
    ALL_OF_THE_USERS,
    check_pattern,
    looks_secret,
    parse_secret,
    parse_source,
    resource_of,
    why_not,
)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN", ("HF_TOKEN", "env:HF_TOKEN")),
        ("HF_TOKEN=env:MY_TOKEN", ("HF_TOKEN", "env:MY_TOKEN")),
        ("KEY=file:/etc/iris/secrets/key", ("KEY", "file:/etc/iris/secrets/key")),
        ("KEY=gcp:wandb", ("KEY", "gcp:wandb")),
        ("KEY=gcp:projects/p-1/secrets/wandb/versions/7", ("KEY", "gcp:projects/p-1/secrets/wandb/versions/7")),
        ("KEY=gcp:projects/p-1/secrets/wandb", ("KEY", "gcp:projects/p-1/secrets/wandb/versions/latest")),
    ],
)
def test_a_secret_is_a_name_and_a_reference(text: str, secret: tuple[str, str]) -> None:
    """The short forms are completed, so that a job says what it uses."""
    assert parse_secret(text) == secret


@pytest.mark.parametrize(
    "source",
    [
        "hf_abcdefghijk",
        "",
        "env:-",
        "file://x",
        "env:A B",
        "file:key",
        "file:/a/../b",
        "gcp:a/b",
        "gcp:projects/p/secrets/../x",
        "pw:x",
    ],
)
def test_an_error_about_a_source_does_not_show_it(source: str) -> None:
    """Somebody will write the value itself there, and errors are shown in many places."""
    with pytest.raises(InvalidValue) as caught:
        parse_secret(f"NAME={source}")

    assert not source or source not in str(caught.value)
    assert "NAME" in str(caught.value)


@pytest.mark.parametrize(
    ("secrets", "env", "problem"),
    [
        ({"IRIS_X": "env:A"}, {}, "is set by Iris"),
        ({"A-B": "env:A"}, {}, "not a valid name"),
        ({"A": "hf_abc"}, {}, "not a reference"),
        ({"A": "env:A"}, {"A": "1"}, "both"),
    ],
)
def test_a_job_cannot_have_an_impossible_secret(secrets: dict[str, str], env: dict[str, str], problem: str) -> None:
    """A job is checked when it is submitted, whoever built it."""
    with pytest.raises(ValueError, match=problem):
        JobSpec(user="ada", name="train", command=("true",), secrets=secrets, env=env)


@pytest.mark.parametrize(
    ("source", "allowed", "may"),
    [
        ("env:HF_TOKEN", (), False),
        ("env:HF_TOKEN", ("env:HF_TOKEN",), True),
        ("env:HF_TOKEN", ("env:HF",), False),
        ("env:HF_TOKEN", ("env:HF_*",), True),
        ("env:HF_TOKEN", ("file:/*", "gcp:*"), False),
        ("env:HF_TOKEN", ALL_OF_THE_USERS, True),
        ("env:TEMPORAL_API_KEY", ALL_OF_THE_USERS, False),
        ("env:google_application_credentials", ("env:google_application_credentials",), False),
        ("env:AWS_SECRET_ACCESS_KEY", ALL_OF_THE_USERS, False),
        ("file:/etc/iris/secrets/key", ("file:/etc/iris/secrets/*",), True),
        ("file:/etc/shadow", ("file:/etc/iris/secrets/*",), False),
        ("gcp:wandb", ("gcp:projects/home/secrets/wandb",), True),
        ("gcp:wandb", ("gcp:projects/home/secrets/wan",), False),
        ("gcp:wandb", ("gcp:projects/home/*",), True),
        ("gcp:projects/other/secrets/wandb/versions/1", ("gcp:projects/home/*",), False),
        ("gcp:projects/home/secrets/wandb/versions/2", ("gcp:projects/home/secrets/wandb/versions/1",), False),
    ],
)
def test_jobs_may_use_what_the_configuration_lists_and_nothing_of_the_agents_own(
    source: str, allowed: tuple[str, ...], may: bool
) -> None:
    """An agent has credentials of the cluster, its store and its cloud. They are refused even if a pattern covers them."""
    assert (why_not(resource_of(parse_source("A", source), "home"), allowed) == "") is may


@pytest.mark.parametrize("pattern", ["env:A", "env:*", "file:/etc/x", "file:/*", "gcp:*", "gcp:projects/p/*"])
def test_a_list_may_have_sources_and_their_beginnings(pattern: str) -> None:
    """As the documentation says."""
    check_pattern("bootstrap.secrets", pattern)


@pytest.mark.parametrize(
    "pattern", ["", "*", "A", "env:", "env:A*B", "env:*A", "file:x", "file:/a/../*", "gcp:wandb", "gcp:pro*"]
)
def test_a_list_may_not_have_what_matches_nothing(pattern: str) -> None:
    """A pattern that matches nothing is a mistake, and its job would be refused much later."""
    with pytest.raises(InvalidValue, match="matches no secret"):
        check_pattern("bootstrap.secrets", pattern)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "WANDB_API_KEY", "GITHUB_TOKEN", "PASSWORD", "PGPASSWORD", "DB_PASSWORD_PROD", "CLIENT_SECRET", "API_KEY",
     "AWS_SECRET_ACCESS_KEY", "SSH_PRIVATE_KEY", "MY_CREDENTIAL", "CREDENTIALS", "openai_api_key", "MYAPIKEY"],
)  # fmt: skip
def test_names_of_secrets_are_recognised(name: str) -> None:
    """`iris submit` warns of them, because values of --env lie in histories."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "PAD_TOKEN", "EOS_TOKEN_ID", "KEY", "MONKEY_PATCH", "PRIMARY_KEY", "SECRET_NAME",
     "TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "LR", "", "PASSES"],
)  # fmt: skip
def test_names_that_training_programs_use_are_no_secrets(name: str) -> None:
    """A warning that is often wrong is not read."""
    assert not looks_secret(name)
