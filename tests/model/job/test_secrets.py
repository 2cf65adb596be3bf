"""References to secrets: what may be written, what a configuration allows, and which names look
like a secret.
"""

import pytest

from iris.model.errors import InvalidValue
from iris.model.job.secrets import (
    ALL_OF_THE_USERS,
    check_pattern,
    looks_secret,
    parse_secret,
    parse_secret_source,
    resource_of,
    why_not,
    why_not_sealed,
)
from iris.model.job.spec import JobSpec


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN", ("HF_TOKEN", "own:HF_TOKEN")),
        ("HF_TOKEN=env:MY_TOKEN", ("HF_TOKEN", "env:MY_TOKEN")),
        ("KEY=file:../key", ("KEY", "file:../key")),
        ("KEY=secret:MY_KEY", ("KEY", "secret:MY_KEY")),
        ("HF_TOKEN=host-env:MY_TOKEN", ("HF_TOKEN", "host-env:MY_TOKEN")),
        ("KEY=host-file:/etc/iris/secrets/key", ("KEY", "host-file:/etc/iris/secrets/key")),
        ("KEY=gcp:wandb", ("KEY", "gcp:wandb")),
        (
            "KEY=gcp:projects/p-1/secrets/wandb/versions/7",
            ("KEY", "gcp:projects/p-1/secrets/wandb/versions/7"),
        ),
        (
            "KEY=gcp:projects/p-1/secrets/wandb",
            ("KEY", "gcp:projects/p-1/secrets/wandb/versions/latest"),
        ),
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
        "host-file://x",
        "env:A B",
        "host-env:A B",
        "host-file:key",
        "host-file:/a/../b",
        "secret:a b",
        "sealed:job/ada/train/0123456789abcdef",
        "sealed:user/ada/../bob/KEY",
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
        ({"A": "hf_abc"}, {}, "has an invalid source"),
        ({"A": "env:A"}, {"A": "1"}, "both"),
    ],
)
def test_a_job_cannot_have_an_impossible_secret(
    secrets: dict[str, str], env: dict[str, str], problem: str
) -> None:
    """Every job is checked at its submission, whatever client built it."""
    with pytest.raises(ValueError, match=problem):
        JobSpec(user="ada", name="train", command=("true",), secrets=secrets, env=env)


@pytest.mark.parametrize(
    ("source", "allowed", "may"),
    [
        ("host-env:HF_TOKEN", (), False),
        ("host-env:HF_TOKEN", ("host-env:HF_TOKEN",), True),
        ("host-env:HF_TOKEN", ("host-env:HF",), False),
        ("host-env:HF_TOKEN", ("host-env:HF_*",), True),
        ("host-env:HF_TOKEN", ("host-file:/*", "gcp:*"), False),
        ("host-env:HF_TOKEN", ALL_OF_THE_USERS, True),
        ("host-env:TEMPORAL_API_KEY", ALL_OF_THE_USERS, False),
        (
            "host-env:google_application_credentials",
            ("host-env:google_application_credentials",),
            False,
        ),
        ("host-env:AWS_SECRET_ACCESS_KEY", ALL_OF_THE_USERS, False),
        ("host-file:/etc/iris/secrets/key", ("host-file:/etc/iris/secrets/*",), True),
        ("host-file:/etc/shadow", ("host-file:/etc/iris/secrets/*",), False),
        ("gcp:wandb", ("gcp:projects/home/secrets/wandb",), True),
        ("gcp:wandb", ("gcp:projects/home/secrets/wan",), False),
        ("gcp:wandb", ("gcp:projects/home/*",), True),
        ("gcp:projects/other/secrets/wandb/versions/1", ("gcp:projects/home/*",), False),
        (
            "gcp:projects/home/secrets/wandb/versions/2",
            ("gcp:projects/home/secrets/wandb/versions/1",),
            False,
        ),
    ],
)
def test_jobs_may_use_what_the_configuration_lists_and_nothing_of_the_agents_own(
    source: str, allowed: tuple[str, ...], may: bool
) -> None:
    """An agent has credentials of the cluster, its store and its cloud. They are refused even if a
    pattern covers them.
    """
    assert (why_not(resource_of(parse_secret_source("A", source), "home"), allowed) == "") is may


@pytest.mark.parametrize(
    "pattern",
    ["host-env:A", "host-env:*", "host-file:/etc/x", "host-file:/*", "gcp:*", "gcp:projects/p/*"],
)
def test_a_list_may_have_sources_and_their_beginnings(pattern: str) -> None:
    """As the documentation says."""
    check_pattern("bootstrap.secrets", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "*",
        "A",
        "env:A",
        "file:/x",
        "sealed:*",
        "host-env:",
        "host-env:A*B",
        "host-env:*A",
        "host-file:x",
        "host-file:/a/../*",
        "gcp:wandb",
        "gcp:pro*",
    ],
)
def test_a_list_may_not_have_what_matches_nothing(pattern: str) -> None:
    """A pattern that matches nothing is a mistake, and its job would be refused much later."""
    with pytest.raises(InvalidValue, match="is not a valid entry"):
        check_pattern("bootstrap.secrets", pattern)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "GITHUB_TOKEN",
        "PASSWORD",
        "PGPASSWORD",
        "DB_PASSWORD_PROD",
        "CLIENT_SECRET",
        "API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "SSH_PRIVATE_KEY",
        "MY_CREDENTIAL",
        "CREDENTIALS",
        "openai_api_key",
        "MYAPIKEY",
    ],
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    """`iris submit` warns of them, because values of --env lie in histories."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "PAD_TOKEN",
        "EOS_TOKEN_ID",
        "KEY",
        "MONKEY_PATCH",
        "PRIMARY_KEY",
        "SECRET_NAME",
        "TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "LR",
        "",
        "PASSES",
    ],
)
def test_names_that_training_programs_use_are_no_secrets(name: str) -> None:
    """A warning that is often wrong is not read."""
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("path", "job", "may"),
    [
        ("job/ada/train/0123456789abcdef", "ada/train", True),
        ("job/ada/train/0123456789abcdef", "ada/train/child", True),
        ("job/ada/train/0123456789abcdef", "ada/train/child/grandchild", True),
        ("job/ada/train/0123456789abcdef", "ada/train-2", False),
        ("job/ada/train/0123456789abcdef", "ada/other", False),
        ("job/ada/train/0123456789abcdef", "bob/train", False),
        ("job/ada/train/child/0123456789abcdef", "ada/train", False),
        ("schedule/ada/nightly/0123456789abcdef", "ada/nightly", True),
        ("schedule/ada/nightly/0123456789abcdef", "bob/nightly", False),
        ("user/ada/HF_TOKEN", "ada/any", True),
        ("user/ada/HF_TOKEN", "ada/any/child", True),
        ("user/ada/HF_TOKEN", "bob/any", False),
    ],
)
def test_sealed_values_are_for_their_job_and_its_children_or_for_their_user(
    path: str, job: str, may: bool
) -> None:
    """The name of another job is no way to its secrets."""
    assert (why_not_sealed(path, job) == "") is may
