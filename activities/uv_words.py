"""What uv says when it fails: in one line for a user, and whether the network or the disk is to blame.

As seen from uv 0.13; its older ways of writing a cause down are understood, too.
"""

import re

#: An error of this many characters is a line; the rest is in the output.
_MOST = 300
_ERROR = re.compile(r"^(?:error: | *× )(?P<text>.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^ *(?:cause: |Caused by: |╰─▶ |├─▶ )(?P<text>.*)$", re.MULTILINE)
_STDERR = re.compile(r"^ *(?:--- stderr|\[stderr\])$", re.MULTILINE)
#: Words of a transport that did not carry, or of a server that could not answer now. A package that is not there, or not to be
#: had without a password, is no matter of the network: nobody else would get it either.
_NETWORK = re.compile(
    r"error sending request for url"
    r"|client error \((?:Connect|SendRequest)\)"
    r"|tcp connect error|dns error|tunnel error|operation timed out|Network unreachable"
    r"|connection closed before message completed"
    r"|error reading a body from connection|end of file before message length reached|unexpected EOF during"
    r"|request or response body error"
    r"|HTTP status server error \(5(?!01|05)\d\d"
    r"|HTTP status client error \((?:408|425|429) "
    r"|[Cc]onnection (?:refused|reset|timed out)|Temporary failure in name resolution"
    # git, whose words uv passes on
    r"|Could(?: not|n't) resolve host|Couldn't connect to server|Failed to connect to .* port \d+"
    r"|The requested URL returned error: (?:5\d\d|429)|early EOF|the remote end hung up unexpectedly"
)
_DISK = re.compile(r"No space left on device|Disk quota exceeded|\(os error (?:28|122)\)")


def is_network(output: str) -> bool:
    """Whether it was the network, by the error that ends the output."""
    return _NETWORK.search(_error(output)) is not None


def is_full_disk(output: str) -> bool:
    """Whether a full disk was the reason, by the error that ends the output."""
    return _DISK.search(_error(output)) is not None


def in_a_line(output: str) -> str:
    """What went wrong, in the words that say most; empty when nothing was said.

    The last cause is the first of all; a program that uv has called speaks for itself. Without an error of uv's: the last line.
    """
    error = _error(output)
    line = ""
    if (said := _STDERR.search(error)) is not None:
        line = _last(re.split(r"\n\s*\n(?=hint: )", error[said.end() :])[0])
    elif causes := _CAUSE.findall(error):
        line = causes[-1]
    elif (own := _ERROR.search(error)) is not None:
        line = own["text"]
    line = " ".join((line or _last(output)).split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 3]}..."


def _error(output: str) -> str:
    """The error that ends the output; all of the output when there is none."""
    found = list(_ERROR.finditer(output))
    return output[found[-1].start() :] if found else output


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
