"""What a bundle hides: known secrets, and all that has the form of one."""

import time
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest

from iris.client.operate.bundle.redaction import Redactor, secrets_in, words_in
from tests.builders import a_spec

#: A line as logs, reasons and configurations have it, and its secret.
LINES = [
    ("HF_TOKEN=opensesame", "opensesame"),
    ("env: WANDB_API_KEY=opensesame PATH=/bin", "opensesame"),
    ('{"db_password": "open sesame", "port": 1}', "open sesame"),
    ("{'apiKey': 'opensesame'}", "opensesame"),
    ("started ['train', '--auth-token', 'opensesame']", "opensesame"),
    ("train.py --password opensesame --lr 0.1", "opensesame"),
    ("train.py --password=opensesame", "opensesame"),
    ("password: opensesame", "opensesame"),
    ("Authorization: Bearer opensesame.with-dots", "opensesame.with-dots"),
    ("authorization: Basic YWRhOm9wZW4=", "YWRhOm9wZW4="),
    ("pull https://ada:open@sesame@registry.example/x", "open@sesame"),
    ("s3://key:opensesame@bucket/path", "opensesame"),
    ("POST https://hooks.example/services/open/sesame failed", "open/sesame"),
    ("gs://bucket/x?sig=opensesame", "opensesame"),
    ("s3://key:open/sesame@bucket/path", "open"),
    ("s3://key:open/sesame@bucket/path", "sesame"),
    ("proxy ada:opensesame@proxy.example:3128", "opensesame"),
    ("Authorization: token opensesame", "opensesame"),
    ("{'Cookie': 'theme=dark; session=opensesame'}", "opensesame"),
    ("DB_PASSWORD=open,sesame;x", "sesame"),
    ("""TOKEN="open'sesame\\"more" PATH=/bin""", "sesame"),
    ("""TOKEN="open'sesame\\"more" PATH=/bin""", "more"),
    ("""PASSWORD=open"sesame x""", "sesame"),
    ('{"token": ["opensesame"]}', "opensesame"),
    ("got wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "bPxRfiCY"),
    ("http://127.0.0.1:8233/x?code=opensesame", "opensesame"),
    ("ghp_opensesameopensesame", "opensesame"),
    ("hf_opensesameopensesame", "opensesame"),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("jwt eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.", "eyJzdWIi"),
    ("key 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
    ("got 7dK2mQp9Lx4Zr8Vb1Nc6Tj", "7dK2mQp9"),
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nopen\nsesame\n-----END OPENSSH PRIVATE KEY-----",
        "sesame",
    ),
    ("-----BEGIN RSA PRIVATE KEY-----\nopen\nsesame\n", "sesame"),
    (f"end of a key\n{'open' * 12}\n-----END PRIVATE KEY-----", "openopen"),
]
#: Lines without a secret, which must stay readable.
PLAIN = [
    "2026-11-28 10:00:58,123 INFO iris.worker_agents: host tpu-7-w-0 reports",
    "job ada/train:0@1/019ad2c1-77aa is placed on cpu-0f3c-1",
    "run 019ad2c1-77aa-7c33-8d2e-111122223333 continues as new",
    "the next page token is missing",
    "image gcr.io/p/agent@sha256:" + "ab" * 32,
    "api_key: gcp:temporal-key",
    "PAD_TOKEN=0 and tokens: 4096",
    "https://compute.googleapis.com/compute/v1/projects/p/zones/z",
    "http://127.0.0.1:8233/namespaces/default/workflows/lab",
    'File "/opt/iris/workflows/jobs/job.py", line 12, in run',
    "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED",
    "gs://bucket/iris/logs",
    "docker://gcr.io/p/agent@sha256:" + "ab" * 32,
    "task ada/train:123@1/019ad2c1 starts",
]


@pytest.mark.parametrize(("line", "secret"), LINES)
def test_what_has_the_form_of_a_secret_is_hidden(line: str, secret: str) -> None:
    """Logs show values that no list knows, such as those of jobs that ended long ago."""
    assert secret in line
    hidden = Redactor().text(line)
    assert secret not in hidden
    assert "[hidden-1]" in hidden


@pytest.mark.parametrize("line", PLAIN)
def test_what_a_report_needs_stays(line: str) -> None:
    """A bundle in which ids and states are hidden helps nobody."""
    assert Redactor().text(line) == line


def test_the_words_after_a_secret_stay() -> None:
    """The rest of the line says what happened with it."""
    line = "(HF_TOKEN=opensesame), PATH=/bin was refused"
    assert Redactor().text(line) == "(HF_TOKEN=[hidden-1]), PATH=/bin was refused"


def test_a_header_that_is_known_in_part_is_hidden_as_a_whole() -> None:
    """A mask at its beginning must not save the rest."""
    hidden = Redactor(["a-known-value"]).text("Cookie: a-known-value; session=opensesame")
    assert hidden == "Cookie: [hidden-2]"


@pytest.mark.parametrize("word", ["A_", "a.b-", "a+", "ab:", "a@", "token=gcp:", "a='"])
def test_a_log_of_long_words_is_read_in_time(word: str) -> None:
    """A program chooses what it prints. The time must not grow with the square of a word's length:
    these lines would take ten seconds.
    """
    text = (word * (4_000 // len(word)) + "\n") * 30
    began = time.process_time()
    Redactor().text(text)
    assert time.process_time() - began < 5


@pytest.mark.long
def test_a_log_is_read_in_time_though_many_words_are_known() -> None:
    """The 50 newest jobs may be those of a sweep, with hundreds of words each."""
    words = [f"--{index * 7919 % 99991:05}-of-a-sweep" for index in range(20_000)]
    text = "host tpu-7-w-0 reports --more of /opt/iris/x and --other-things\n" * 10_000
    redactor = Redactor(words=words)
    began = time.process_time()
    redactor.text(text)
    assert time.process_time() - began < 5


def test_the_short_lines_of_a_value_stay() -> None:
    """An indented bracket must not hide each bracket of a bundle."""
    redactor = Redactor(['{\n        "password": "open sesame"\n        }'])
    assert redactor.text("{} }") == "{} }"
    assert "sesame" not in redactor.text('  "password": "open sesame"')


def test_the_longest_known_value_is_hidden() -> None:
    """A shorter one at the same place would leave the rest."""
    redactor = Redactor(["opensesame", "opensesame-and-more", "opensesame-also"])
    assert redactor.text("opensesame-and-more opensesame") == "[hidden-1] [hidden-2]"


@pytest.mark.parametrize("write", [quote, lambda text: b64encode(text.encode()).decode()])
def test_a_known_value_is_hidden_as_addresses_and_headers_write_it(
    write: Callable[[str], str],
) -> None:
    """A library prints the request that it sends."""
    written = write("open sesame")
    assert written not in Redactor(["open sesame"]).text(f"sends {written} now")


def test_a_known_value_is_hidden_wherever_it_stands_and_equal_ones_have_one_number() -> None:
    """A reader sees that two places have the same value, and not which."""
    redactor = Redactor(["opensesame", "another one"])
    assert redactor.text("x opensesame-y another one") == "x [hidden-1]-y [hidden-2]"
    assert redactor.json({"why": ["opensesame"], "opensesame": 1}) == {
        "why": ["[hidden-1]"],
        "[hidden-1]": 1,
    }


def test_the_value_of_a_key_that_looks_secret_is_hidden_but_a_reference_is_not() -> None:
    """A configuration names where a secret is; that is part of a fault's cause."""
    given = {"env_vars": {"DB_PASSWORD": "x1"}, "api_key": "gcp:key", "client_key": "file:/etc/k"}
    assert Redactor().json(given) == {**given, "env_vars": {"DB_PASSWORD": "[hidden-1]"}}


def test_states_and_names_stay_even_if_a_variable_has_them_as_its_value() -> None:
    """`--env MODE=production` must not hide the band of every job, nor `NAME=train-7` the job."""
    redactor = Redactor(["production", "SUCCEEDED", "train-7", "opensesame"], public=["train-7"])
    text = "ada/train-7 of band production SUCCEEDED"
    assert redactor.text(text) == text


def test_of_a_job_the_environment_the_webhooks_and_the_command_are_secret() -> None:
    """A user gives a token by any of them, and an error message may repeat it."""
    spec = a_spec(
        command=("python3", "train.py", "--secret-word=opensesame", "positional-secret"),
        env={"X": "value-of-x", "PEM": "first line\nsecond line"},
        notify=("https://chat.example/open/sesame?x=1",),
    )
    redactor = Redactor(secrets_in(spec), words_in(spec))
    text = "value-of-x, second line, positional-secret: opensesame, /open/sesame?x=1, python3"
    assert redactor.text(text) == (
        "[hidden-1], [hidden-2], [hidden-3]: [hidden-4], [hidden-5], python3"
    )
