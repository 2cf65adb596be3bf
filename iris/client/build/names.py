"""Names for jobs whose users chose none."""

import re
import secrets
from collections.abc import Sequence


def new_name(word: str) -> str:
    """Returns a name that no other job has: the word, and a random number."""
    return f"{word}-{secrets.token_hex(4)}"


def word_of(command: Sequence[str]) -> str:
    """Returns the program's or the function's name as a part of a job's name."""
    word = re.split("[/:]", command[0] if command else "")[-1]
    word = re.sub("[^a-zA-Z0-9]+", "-", word.removesuffix(".py").rpartition(".")[2]).strip("-")[:40]
    return word or "job"
