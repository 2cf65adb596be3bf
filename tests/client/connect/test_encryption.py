"""Payloads that the service cannot read, and files of keys."""

import asyncio
import base64
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from iris.client.connect.connection import CompressionCodec
from iris.client.connect.encryption import EncryptionCodec, PayloadKeys, read_keys
from iris.client.connect.plugin import IrisPlugin
from iris.client.operate.codec_server import CodecServer
from iris.model.errors import InvalidValue, Rejected

OLD, NEW = b"o" * 32, b"n" * 32
SMALL = Payload(metadata={"encoding": b"json/plain"}, data=b'"python train.py --token hunter2"')
LARGE = Payload(metadata={"encoding": b"json/plain"}, data=b"hunter2 " * 10_000)
UI = "http://127.0.0.1:8233"


def keys(**named: bytes) -> PayloadKeys:
    return PayloadKeys("keys", named)


def codec(given: PayloadKeys | None) -> EncryptionCodec:
    return EncryptionCodec(CompressionCodec(), given)


def line(name: str, key: bytes) -> str:
    return f"{name} {base64.b64encode(key).decode()}\n"


def a_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_an_encrypted_payload_shows_nothing_of_its_content_and_is_read_back() -> None:
    """Neither its data nor its kind; large ones are compressed first, because what is encrypted
    does not compress.
    """
    encoded = await codec(keys(new=NEW)).encode([SMALL, LARGE])

    assert not any(
        b"hunter2" in each.SerializeToString() or b"json" in each.SerializeToString()
        for each in encoded
    )
    assert encoded[1].ByteSize() < LARGE.ByteSize() / 10
    assert await codec(keys(new=NEW)).decode(encoded) == [SMALL, LARGE]


async def test_equal_payloads_are_encrypted_differently() -> None:
    """Else the service could see that two jobs are the same."""
    first, second = await codec(keys(new=NEW)).encode([SMALL, SMALL])

    assert first.data != second.data


async def test_a_new_key_is_put_first_and_the_old_one_still_reads() -> None:
    """So keys are replaced while jobs run."""
    (before,) = await codec(keys(old=OLD)).encode([SMALL])
    both = codec(keys(new=NEW, old=OLD))
    (after,) = await both.encode([SMALL])

    assert await both.decode([before, after, SMALL]) == [SMALL, SMALL, SMALL]
    with pytest.raises(
        Rejected, match="encrypted with key 'new', which is not in keys; name the file"
    ):
        await codec(keys(old=OLD)).decode([after])


async def test_without_the_key_the_error_names_the_key_and_the_remedy() -> None:
    """A client that was not told of the keys is the common case."""
    (encoded,) = await codec(keys(new=NEW)).encode([SMALL])

    with pytest.raises(
        Rejected,
        match=(
            "key 'new', which is not known here; name the file with its keys:"
            " IRIS_PAYLOAD_KEYS=FILE"
        ),
    ):
        await codec(None).decode([encoded])


@pytest.mark.parametrize("wrong", ["changed", "another key of that name"])
async def test_a_payload_that_was_changed_is_refused(wrong: str) -> None:
    """The service cannot put words into a job's request."""
    (encoded,) = await codec(keys(new=NEW)).encode([SMALL])
    if wrong == "changed":
        encoded.data = encoded.data[:-1] + bytes([encoded.data[-1] ^ 1])

    with pytest.raises(Rejected, match="was changed, or this client's key of that name"):
        await codec(keys(new=NEW if wrong == "changed" else OLD)).decode([encoded])


async def test_texts_of_failures_are_encrypted_too() -> None:
    """They have paths and the last output of programs."""
    converter = IrisPlugin(keys(new=NEW)).data_converter
    assert not callable(converter)
    assert converter is not None
    failure = Failure()
    await converter.encode_failure(ApplicationError("no such file: /home/ada/hunter2"), failure)

    assert b"hunter2" not in failure.SerializeToString()


def test_a_file_of_keys_is_read_in_order(tmp_path: Path) -> None:
    """The first one encrypts. Comments and empty lines are for people."""
    found = read_keys(a_file(tmp_path, f"# of November\n\n{line('new', NEW)}{line('old', OLD)}"))

    assert (found.current, dict(found.keys)) == ("new", {"new": NEW, "old": OLD})


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (line("new", NEW), 0o640, "is open to other users of this machine; run: chmod 600"),
        ("", 0o600, "has no keys; make one: "),
        ("# none\n", 0o600, "has no keys"),
        (
            line("new", NEW) + "old\n",
            0o600,
            "has no key of 32 bytes in base64 after the name on line 2",
        ),
        (line("new", b"short"), 0o600, "has no key of 32 bytes in base64 after the name on line 1"),
        ("new =?=\n", 0o600, "has no key of 32 bytes"),
        ("new é\n", 0o600, "has no key of 32 bytes"),
        (line("new", NEW) + line("new", OLD), 0o600, "has two keys of the name new"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_remedy(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    """Falling back to plain text would give away what was to be hidden."""
    with pytest.raises(InvalidValue) as refused:
        read_keys(a_file(tmp_path, text, mode))

    assert problem in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A wrong path must not mean no encryption."""
    with pytest.raises(InvalidValue, match=r"IRIS_PAYLOAD_KEYS: .* cannot be read: .*No such file"):
        read_keys(tmp_path / "none")


@pytest.fixture
def server() -> Iterator[str]:
    """The endpoint of a codec server that runs."""
    with CodecServer(0, {UI}, keys(new=NEW)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.endpoint
        server.shutdown()
        thread.join()


def ask(url: str, body: object, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def encoded_json(payload: Payload) -> dict[str, object]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "metadata": {name: text(value) for name, value in payload.metadata.items()},
        "data": text(payload.data),
    }


def test_the_codec_server_decrypts_for_the_web_ui(server: str) -> None:
    """In the words of Temporal's protocol."""
    (encoded,) = asyncio.run(codec(keys(new=NEW)).encode([SMALL]))
    asked = f"{server}/decode?preserveStorageRefs=true"  # as the Web UI does
    status, body, headers = ask(asked, {"payloads": [encoded_json(encoded)]}, Origin=UI)

    assert (status, json.loads(body)) == (200, {"payloads": [encoded_json(SMALL)]})
    assert headers["Access-Control-Allow-Origin"] == UI


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "https://elsewhere.example"}, {"Origin": UI, "Host": "elsewhere.example:80"}],
)
def test_the_codec_server_answers_no_other_page(server: str, headers: dict[str, str]) -> None:
    """A page in the user's browser can reach every port of this machine, by a name of its own
    too.
    """
    (encoded,) = asyncio.run(codec(keys(new=NEW)).encode([SMALL]))
    status, body, answered = ask(
        f"{server}/decode", {"payloads": [encoded_json(encoded)]}, **headers
    )

    assert (status, body) == (403, b"")
    assert answered.get("Access-Control-Allow-Origin") in (None, UI)


@pytest.mark.parametrize("path", ["/", "/a/b", "/decode", "/HALF/decode", "//decode", "/é/decode"])
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_the_codec_server_answers_only_who_knows_its_secret(
    server: str, path: str, method: str
) -> None:
    """Another user of the machine, or a job on its network, can send any header."""
    (encoded,) = asyncio.run(codec(keys(new=NEW)).encode([SMALL]))
    body = json.dumps({"payloads": [encoded_json(encoded)]})
    root, _, secret = server.rpartition("/")
    lines = [
        f"{method} {path.replace('HALF', secret[:20])} HTTP/1.1",
        f"Host: {root.removeprefix('http://')}",
        f"Origin: {UI}",
        f"Content-Length: {len(body)}",
    ]
    host, _, port = root.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall("\r\n".join([*lines, "", body]).encode("latin-1"))
        status = connection.makefile("rb").readline()

    assert b" 403 " in status
    assert len(secret) >= 43, "256 bits"


def test_the_secret_of_a_codec_server_is_new_at_each_start() -> None:
    """The address of an earlier one, in a browser's settings, opens nothing."""
    with CodecServer(0, {UI}, None) as one, CodecServer(0, {UI}, None) as other:
        assert one.endpoint.rpartition("/")[2] != other.endpoint.rpartition("/")[2]


@pytest.mark.parametrize("body", [{"payloads": 3}, {"load": []}, "text"])
def test_the_codec_server_says_what_it_cannot_read(server: str, body: object) -> None:
    """It goes on answering."""
    status, said, _ = ask(f"{server}/decode", body, Origin=UI)

    assert status == 400
    assert said
