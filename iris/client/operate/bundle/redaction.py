"""Hides secrets in the texts of a bundle: the values that are known to be secret, and whatever has
the form of a secret. Pure.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from iris.model.job.attempts import Account
from iris.model.job.secrets import LEAST_MASKED, looks_secret
from iris.model.job.spec import Band, JobSpec
from iris.model.slice.status import SliceState
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import RefusalCode

#: The start of each text that replaces a secret. A number follows, and equal secrets have equal
#: numbers.
HIDDEN = "[hidden-"
_MASK = re.compile(r"\[hidden-\d+\]")
#: The minimum length of the words of jobs' commands that are hidden, in characters. Shorter words,
#: such as `python3`, occur in many other texts.
LEAST_WORD = 8
#: The prefixes of values in a configuration that refer to a secret. Such a value is not a secret
#: itself.
_REFERENCES = ("gcp:", "file:/", "host-env:", "host-file:/")
#: Words of Iris, such as the names of states, that are never hidden. An environment variable may
#: have such a word as its value, and hiding the word would hide it in the whole bundle.
_OWN_WORDS = {
    *(word.lower() for kind in (JobState, TaskState, SliceState) for word in kind),
    *(word.lower() for kind in (Band, Account, RefusalCode) for word in kind),
    *("debug", "info", "warning", "error", "critical", "scheduler", "autoscaler"),
}

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL
)
#: Matches a line of base64, which may be part of a private key whose first line is not in the text.
_BASE64_LINE = re.compile(r"^[ \t]*[A-Za-z0-9+/]{40,}={0,2}[ \t]*$", re.MULTILINE)
#: Matches a URL. The user part ends at the last `@`, because a password may contain `/`. The scheme
#: has a maximum length, because a search without one takes quadratic time in a long word.
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,20})://(?P<user>[^\s\"'<>]*@(?!sha256:))?"
    r"(?P<host>[^/\s\"'<>?#]*)(?P<path>/[^\s\"'<>?#]*)?(?P<query>[?#][^\s\"'<>]*)?",
    re.IGNORECASE,
)
#: Matches `USER:PASSWORD@` before a host, without a scheme. It does not match the id of an attempt,
#: such as `train:0@1`.
_LOGIN = re.compile(
    r"(?<![\w.+-])[\w.+-]+:(?P<value>[^\s:/@\"']{3,})@(?=[\w-]+\.)",
)
#: Matches the hosts in URLs whose paths are not secret. The URL of any other host may be a webhook,
#: whose path is a secret.
_PLAIN_HOST = re.compile(r"(127\.0\.0\.1|localhost|[a-z-]+\.googleapis\.com)(:\d+)?", re.IGNORECASE)
#: Matches an HTTP header with credentials, up to the end of its line or of the quoted text.
_HEADER = re.compile(
    r"\b(?P<name>authorization|cookie)(?P<between>[\"']?[ \t]*[=:][ \t]*[\"']?)"
    r"(?P<value>[^\"'\n]+)",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"\b(?P<kind>Bearer|Basic)\s+(?P<value>[A-Za-z0-9._~+/=-]{8,})")
#: Matches a name and the separator before its value, as in an environment, JSON or YAML, or an
#: option of a command.
_NAME = re.compile(
    r"--(?P<option>[A-Za-z][\w-]{0,60})[\"']?(?:=|,?[ \t]+)"
    r"|(?P<name>[A-Za-z_][\w.-]{0,60})[\"']?[ \t]*[=:][ \t]*"
)
#: Matches the value after a name: a quoted text, whose closing quote may be missing, or one word.
_VALUE = re.compile(
    r"(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\n])+)|(?P<word>[^\s\"']\S*)"
)
#: Matches tokens of well-known services by the prefixes that the services document.
_KNOWN_TOKEN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|npm_|pypi-|xox[abeprs]-|ya29\.|AKIA|ASIA|AIza"
    r"|dop_v1_|eyJ)[\w.+/=-]{12,}"
)
#: Matches a long text of hexadecimal digits that is not the digest of an image or a bundle.
_HEX = re.compile(r"(?<!sha256:)\b[0-9a-fA-F]{32,}\b")
#: Matches a long text that may be random. A text with `/` matches only if it has 40 characters,
#: like a secret key of S3.
_RANDOM = re.compile(r"[A-Za-z0-9_+=-]{20,}|(?<![\w/+])[A-Za-z0-9/+]{40}(?![\w/+=])")


class Redactor:
    """Replaces secrets in texts.

    Args:
        secrets: values that are hidden wherever they occur.
        words: words of jobs' commands, which are hidden if they have at least `LEAST_WORD`
            characters.
        public: names that are never hidden, because other parts of the bundle contain them.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        words: Iterable[str] = (),
        public: Iterable[str] = (),
    ) -> None:
        shown = {*public, ""}
        found = {text for text in secrets if len(text) >= LEAST_MASKED}
        found |= {text for text in words if len(text) >= LEAST_WORD}
        # The parts of a value that has several lines: a log shows each in a line of its own.
        lines = (line.strip() for text in found for line in text.splitlines())
        found = found.union(line for line in lines if len(line) >= LEAST_WORD)
        found = {text for text in found if text not in shown and text.lower() not in _OWN_WORDS}
        found |= {written for text in found for written in _as_others_write(text)}
        self._known = re.compile(_any_of(found)) if found else None
        self._numbers: dict[str, int] = {}

    def json(self, value: Any) -> Any:
        """Returns the value with all secrets in its texts replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._entry(str(key), each) for key, each in value.items()}
        if isinstance(value, Sequence):
            return [self.json(each) for each in value]
        return value

    def text(self, text: str) -> str:
        """Returns the text with all secrets replaced."""
        if self._known is not None:
            text = self._known.sub(self._hide, text)
        text = _PRIVATE_KEY.sub(self._hide, text)
        text = _BASE64_LINE.sub(self._hide, text)
        text = _URL.sub(self._hide_in_url, text)
        text = _LOGIN.sub(lambda found: found[0].replace(found[1], self._hidden(found[1])), text)
        text = _HEADER.sub(lambda found: f"{found[1]}{found[2]}{self._hidden(found[3])}", text)
        text = _CREDENTIALS.sub(lambda found: f"{found[1]} {self._hidden(found[2])}", text)
        text = self._hide_named(text)
        for form in (_KNOWN_TOKEN, _HEX):
            text = form.sub(self._hide, text)
        return _RANDOM.sub(self._hide_random, text)

    def _entry(self, key: str, value: Any) -> Any:
        secret = isinstance(value, str) and value and looks_secret(key)
        if secret and not value.startswith(_REFERENCES):
            return self._hidden(value)
        return self.json(value)

    def _hidden(self, secret: str) -> str:
        if _MASK.fullmatch(secret):
            return secret
        return f"{HIDDEN}{self._numbers.setdefault(secret, len(self._numbers) + 1)}]"

    def _hide(self, found: re.Match[str]) -> str:
        return self._hidden(found[0])

    def _hide_in_url(self, found: re.Match[str]) -> str:
        user, host, path, query = found["user"], found["host"], found["path"], found["query"]
        shown = f"{found['scheme']}://{self._hidden(user[:-1]) + '@' if user else ''}{host}"
        web = found["scheme"].lower() in ("http", "https") and not _PLAIN_HOST.fullmatch(host)
        if path and path != "/":
            shown += f"/{self._hidden(path[1:])}" if web else path
        return shown + (f"?{self._hidden(query[1:])}" if query else "")

    def _hide_named(self, text: str) -> str:
        """Hides the values after names that look secret."""
        parts, end = [], 0
        for found in _NAME.finditer(text):
            if found.start() < end or not looks_secret(found["option"] or found["name"]):
                continue
            value = _VALUE.match(text, found.end())
            if value is None:
                continue
            secret = value["quoted"] or value["word"].rstrip(",;)]}\"'")
            shown = secret if not secret or secret.startswith(_REFERENCES) else self._hidden(secret)
            start = value.end("quote") if value["quote"] else value.start()
            parts += [text[end:start], shown]
            end = start + len(secret)
        return "".join([*parts, text[end:]])

    def _hide_random(self, found: re.Match[str]) -> str:
        text = found[0]
        kinds = (str.islower, str.isupper, str.isdigit)
        mixed = all(any(map(kind, text)) for kind in kinds)
        return self._hidden(text) if mixed else text


def _any_of(texts: Iterable[str], shared: int = LEAST_MASKED) -> str:
    """Returns a pattern of all texts, which matches the longest at its place. Texts with the same
    beginning share it, so a search does not try each of ten thousand words at each place.

    Args:
        texts: each has at least `shared` characters.
        shared: the length of the beginnings.
    """
    if not shared:
        return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[0], []).append(text[1:])
    return "|".join(
        f"{re.escape(first)}(?:{_any_of(rest, shared - 1)})" for first, rest in rests.items()
    )


def _as_others_write(text: str) -> Iterator[str]:
    """Returns the forms of a text between quotes of Python and JSON, in an address, and in a header
    or a file of Kubernetes.
    """
    yield from (quoted[1:-1] for quoted in (repr(text), json.dumps(text)))
    yield quote(text)
    yield b64encode(text.encode()).decode()


def secrets_in(spec: JobSpec) -> list[str]:
    """Returns the values of a job that a bundle must not have: those of its environment, and its
    webhooks with the parts of their addresses.
    """
    urls = [urlsplit(url) for url in spec.notify]
    return [*spec.env.values(), *spec.notify, *(f"{url.path}?{url.query}" for url in urls)]


def words_in(spec: JobSpec) -> list[str]:
    """Returns the words of a job's command, and the values in words such as `--key=VALUE`."""
    words = [*spec.command, *(word.partition("=")[2] for word in spec.command)]
    return [*words, " ".join(spec.command)]


def secrets_of_environment(environment: Mapping[str, str]) -> list[str]:
    """Returns the values of variables whose names look secret."""
    return [value for name, value in environment.items() if looks_secret(name)]
