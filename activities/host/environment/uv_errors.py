"""Reduces uv's output after a failure to one line for the user, and decides whether the network or
the disk caused it.

The patterns are those of uv 0.13; the ways in which older versions print a cause are recognised
too.
"""

import re

#: The maximum length of the line that explains a failure, in characters. The output contains the
#: full text.
_MOST = 300
_ERROR = re.compile(r"^(?:error: | *× )(?P<text>.*)$", re.MULTILINE)
#: Matches one cause of an error in uv's output. A cause may have several indented lines.
_CAUSE = re.compile(
    r"^ *(?:cause: |Caused by: |╰─▶ |├─▶ )(?P<text>.*(?:\n {3,}(?!cause: |Caused by: |╰─▶ |├─▶"
    r" )\S.*)*)$",
    re.MULTILINE,
)
#: Matches uv's hint that an index refused missing or wrong credentials. The error itself says only
#: that the package was not found.
_DENIED = re.compile(r"^hint: (?P<text>An index .*\b40[137] .*)$", re.MULTILINE)
#: Matches the output of a build, around which pip prints a frame.
_FRAMED = re.compile(
    r"^ *╰─> \[\d+ lines? of output\]\n(?P<text>.*?)^ *\[end of output\]", re.MULTILINE | re.DOTALL
)
#: Matches the last line of a Python traceback. Some exceptions continue with paragraphs of advice.
_EXCEPTION = re.compile(r"^ *(?P<text>(?:\w+\.)*\w*(?:Error|Exception|Exit): \S.*)$", re.MULTILINE)
#: Matches lines after an error that do not explain the error.
_ADVICE = re.compile(r"\[notice\]|hint: |note: |WARNING: |warning: ", re.IGNORECASE)
_STDERR = re.compile(r"^ *(?:--- stderr|\[stderr\])$", re.MULTILINE)
#: Matches messages about a failed connection, or a server that could not answer at that moment. A
#: package that does not exist or needs a password is not a failure of the network, because every
#: other host would fail too.
_NETWORK = re.compile(
    r"error sending request for url"
    r"|client error \((?:Connect|SendRequest)\)"
    r"|tcp connect error|dns error|tunnel error|operation timed out|Network unreachable"
    r"|connection closed before message completed"
    r"|error reading a body from connection|end of file before message length reached|unexpected"
    r" EOF during"
    r"|request or response body error"
    r"|HTTP status server error \(5(?!01|05)\d\d"
    r"|HTTP status client error \((?:408|425|429) "
    r"|[Cc]onnection (?:refused|reset|timed out)|Temporary failure in name resolution"
    # messages of git, which uv passes on
    r"|Could(?: not|n't) resolve host|Couldn't connect to server|Failed to connect to .* port \d+"
    r"|The requested URL returned error: (?:5\d\d|429)|early EOF|the remote end hung up"
    r" unexpectedly"
)
_MISFIT = re.compile(r"The lockfile at `uv\.lock` needs to be updated")
_DISK = re.compile(r"No space left on device|Disk quota exceeded|\(os error (?:28|122)\)")


def is_network(output: str) -> bool:
    """Returns True if the error at the end of the output is a network failure."""
    return _NETWORK.search(_error(output)) is not None


def is_full_disk(output: str) -> bool:
    """Returns True if the error at the end of the output is a full disk."""
    return _DISK.search(_error(output)) is not None


def in_a_line(output: str) -> str:
    """Returns the most specific part of the error as one line; empty if there is no output.

    The line is the first of these that the output has:

    1. the last exception or line of a program that uv or pip has called,
    2. the refusal of an index, which explains why a package was not found,
    3. the last cause that uv prints, which is the root cause,
    4. the error of uv,
    5. the last line of the output that is not advice.
    """
    error = _error(output)
    if _MISFIT.search(error):  # uv's own hint would change the lock on this host
        return "uv.lock does not fit pyproject.toml; run `uv lock` in the project and submit again"
    line = ""
    if (match := _STDERR.search(error)) is not None:
        line = _of_program(re.split(r"\n\s*\n(?=hint: )", error[match.end() :])[0])
    elif framed := _FRAMED.findall(output):
        line = _of_program(framed[-1])
    elif (denied := _DENIED.search(error)) is not None:
        line = denied["text"]
    elif causes := _CAUSE.findall(error):
        # Only an explanation in sentences has several lines; after other causes, an excerpt of a
        # file follows.
        line = causes[-1] if causes[-1].startswith("Because ") else causes[-1].splitlines()[0]
    elif (own := _ERROR.search(error)) is not None:
        line = own["text"]
    line = " ".join((line or _last(output)).split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 3]}..."


def _error(output: str) -> str:
    """Returns the error that ends the output, or the whole output if there is none."""
    found = list(_ERROR.finditer(output))
    return output[found[-1].start() :] if found else output


def _of_program(text: str) -> str:
    """Returns the line of a program's output that explains its failure."""
    found = _EXCEPTION.findall(text)
    return found[-1] if found else _last(text)


def _last(text: str) -> str:
    """Returns the last line that is not advice; if all lines are advice, the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if _ADVICE.match(line) is None),
        lines[-1] if lines else "",
    )
