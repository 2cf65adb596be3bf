"""What uv says when it fails, word for word, and what it means."""

import pytest

from iris.activities.host.environment.uv_errors import in_a_line, is_full_disk, is_network

FETCH = (
    "Using Python 3.11.7 environment at: v\nerror: Failed to fetch:"
    " https://index.example/simple/foo/\n"
)
SEND = f"{FETCH}  cause: error sending request for url (https://index.example/simple/foo/)\n"
GIT = """\
   Updating https://example.com/foo.git (HEAD)
error: Failed to download and build `foo @ git+https://example.com/foo.git`
  cause: Git operation failed
  cause: failed to clone into: /cache/git-v2/db/6fbc83bf34106b2e
  cause: process didn't exit successfully: `/usr/bin/git fetch --force` (exit status: 128)
         --- stderr
         fatal: {}
"""
NO_SOLUTION = """\
error: No solution found when resolving dependencies
  cause: Because foo was not found in the package registry and you require foo, we can conclude that your requirements are
         unsatisfiable.
"""
BUILD = """\
Resolved 1 package in 1ms
   Building p @ file:///work
error: Failed to build `p @ file:///work`
  cause: The build backend returned an error
  cause: Call to `nope.build_wheel` failed (exit status: 1)

         [stderr]
         Traceback (most recent call last):
           File "<string>", line 8, in <module>
         ModuleNotFoundError: No module named 'nope'

hint: This error likely indicates that `p@1` depends on `nope`, but doesn't declare it as a build dependency.
"""

ADVISED = """\
error: Failed to build `study @ file:///work`
  cause: The build backend returned an error

         [stderr]
         Traceback (most recent call last):
           File "<string>", line 14, in <module>
         LookupError: setuptools-scm was unable to detect version for /work.

         Make sure you're either building from a fully intact git repository or PyPI tarballs.

         For example, if you're using pip, instead of https://github.com/user/proj/archive/master.zip use git+https://x

hint: Build failures usually indicate a problem with the package or the build environment
"""
PIP_NOTICE = """\
ERROR: Could not find a version that satisfies the requirement foo (from versions: none)
ERROR: No matching distribution found for foo

[notice] A new release of pip is available: 23.2.1 -> 25.3
[notice] To update, run: pip install --upgrade pip
"""
PIP_BUILD = """\
  error: subprocess-exited-with-error

  × Getting requirements to build wheel did not run successfully.
  │ exit code: 1
  ╰─> [3 lines of output]
      Traceback (most recent call last):
        File "<string>", line 1, in <module>
      RuntimeError: no compiler
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: subprocess-exited-with-error

× Getting requirements to build wheel did not run successfully.
│ exit code: 1
╰─> See above for output.

note: This error originates from a subprocess, and is likely not a problem with pip.
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            (
                f"{FETCH}  cause: HTTP status server error (503 Service Unavailable) for url"
                " (https://x/)\n"
            ),
            "(503 Service Unavailable)",
        ),
        (
            (
                f"{FETCH}  cause: HTTP status client error (429 Too Many Requests) for url"
                " (https://x/)\n"
            ),
            "(429 Too Many Requests)",
        ),
        (
            (
                f"{FETCH}  cause: HTTP status client error (408 Request Timeout) for url"
                " (https://x/)\n"
            ),
            "(408 Request Timeout)",
        ),
        (f"{SEND}  cause: operation timed out\n", "operation timed out"),
        (
            (
                f"{SEND}  cause: client error (SendRequest)\n  cause: connection closed before"
                " message completed\n"
            ),
            "connection closed before message completed",
        ),
        (
            (
                f"{SEND}  cause: client error (Connect)\n  cause: tcp connect error\n  cause:"
                " Connection refused (os error 111)\n"
            ),
            "Connection refused (os error 111)",
        ),
        (
            (
                f"{SEND}  cause: client error (Connect)\n  cause: dns error\n"
                "  cause: failed to lookup address information: Name or service not known\n"
            ),
            "failed to lookup address information: Name or service not known",
        ),
        (
            (
                f"{SEND}  cause: client error (Connect)\n  cause: invalid peer certificate:"
                " UnknownIssuer\n"
            ),
            "invalid peer certificate: UnknownIssuer",
        ),
        (
            (
                f"{SEND}  cause: client error (Connect)\n  cause: tunnel error: failed to create"
                " underlying connection\n"
            ),
            "tunnel error: failed to create underlying connection",
        ),
        (
            (
                f"{FETCH}  cause: request or response body error\n  cause: error reading a body"
                " from connection\n  cause: end of file before message length reached\n"
            ),
            "end of file before message length reached",
        ),
        (
            (
                "error: Request failed after 3 retries in 7.1s\n  cause: Failed to fetch:"
                " https://index.example/simple/foo/\n  cause: HTTP status server error (502 Bad"
                " Gateway) for url (https://index.example/simple/foo/)\n"
            ),
            "(502 Bad Gateway)",
        ),
        (
            (
                "error: Failed to download `https://github.com/cpython-3.9.tar.gz`\n  cause: error"
                " sending request for url (https://x)\n"
            ),
            "error sending request for url",
        ),
        (
            GIT.format(
                "unable to access 'https://example.com/foo.git/': Could not resolve host:"
                " example.com"
            ),
            "Could not resolve host: example.com",
        ),
        (
            GIT.format(
                "unable to access 'http://h/foo.git/': Failed to connect to h port 1 after 0 ms:"
                " Couldn't connect to server"
            ),
            "Couldn't connect to server",
        ),
        # as older ones have it
        (
            (
                "error: Failed to fetch: `https://index.example/simple/foo/`\n  Caused by: Could"
                " not connect, are you offline?\n  Caused by: error sending request for url"
                " (https://index.example/simple/foo/)\n  Caused by: client error (Connect)\n "
                " Caused by: dns error: failed to lookup address information\n"
            ),
            "dns error: failed to lookup address information",
        ),
        (
            (
                "  × Failed to download `foo==1.0`\n  ├─▶ Failed to fetch:"
                " `https://index.example/foo.whl`\n  ╰─▶ HTTP status server error (503 Service"
                " Unavailable) for url (https://index.example/foo.whl)\n"
            ),
            "(503 Service Unavailable)",
        ),
    ],
)
def test_words_of_the_network(output: str, line: str) -> None:
    """Each costs a retry on this host, then another host, and none of the user's own."""
    assert is_network(output)
    assert line in in_a_line(output)
    assert not is_full_disk(output)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (NO_SOLUTION, "Because foo was not found in the package registry"),
        (
            (
                f"{NO_SOLUTION}\nhint: An index (https://x/) returned a 403 Forbidden error. Check"
                " that the credentials are valid.\n"
            ),
            (
                "An index (https://x/) returned a 403 Forbidden error. Check that the credentials"
                " are valid."
            ),
        ),
        (
            (
                f"{NO_SOLUTION}\nhint: An index URL (https://x/) could not be queried due to a lack"
                " of valid authentication credentials (401 Unauthorized)\n"
            ),
            "valid authentication credentials (401 Unauthorized)",
        ),
        (
            (
                "error: No solution found when resolving dependencies\n  cause: Because the current"
                " Python version (3.11.7) does not satisfy Python>=3.14 and foo==1.0 depends on"
                " Python>=3.14, we can conclude that foo==1.0 cannot be used.\n         And because"
                " only foo==1.0 is available and you require foo, we can conclude that your"
                " requirements are unsatisfiable.\n"
            ),
            "cannot be used. And because only foo==1.0 is available",
        ),
        (
            (
                "error: Couldn't parse requirement in `r.txt` at position 0\n  cause: no such"
                ' comparison operator "====="\n         foo ===== 3\n             ^^^^^^^\n'
            ),
            'no such comparison operator "====="',
        ),
        (ADVISED, "LookupError: setuptools-scm was unable to detect version for /work."),
        (PIP_NOTICE, "ERROR: No matching distribution found for foo"),
        (PIP_BUILD, "RuntimeError: no compiler"),
        (
            NO_SOLUTION,
            "you require foo, we can conclude that your requirements are unsatisfiable.",
        ),
        (
            (
                "  × No solution found when resolving dependencies:\n  ╰─▶ Because foo was not"
                " found in the registry and you\n      require foo, we can conclude that your"
                " requirements are unsatisfiable.\n"
            ),
            "Because foo was not found in the registry and you",
        ),
        (
            (
                "error: Failed to download `foo @ https://x/foo.whl`\n  cause: Failed to fetch:"
                " https://x/foo.whl\n  cause: HTTP status client error (404 Not Found) for url"
                " (https://x/foo.whl)\n"
            ),
            "HTTP status client error (404 Not Found)",
        ),
        (
            (
                f"{FETCH}  cause: HTTP status server error (501 Not Implemented) for url"
                " (https://x/)\n"
            ),
            "501 Not Implemented",
        ),
        (
            GIT.format("repository 'https://example.com/foo.git/' not found"),
            "repository 'https://example.com/foo.git/' not found",
        ),
        (BUILD, "ModuleNotFoundError: No module named 'nope'"),
        (
            (
                "error: No interpreter found for Python >=3.30 in managed installations or search"
                " path\n\nhint: uv embeds …\n"
            ),
            "No interpreter found for Python >=3.30 in managed installations or search path",
        ),
        (
            "error: Extra `nope` is not defined in the `optional-dependencies` table for `p`\n",
            "Extra `nope` is not defined",
        ),
        (
            (
                "Resolved 4 packages in 8ms\nerror: The lockfile at `uv.lock` needs to be updated,"
                " but `--locked` was provided.\n\nhint: To update the lockfile, run `uv lock`.\n"
            ),
            "uv.lock does not fit pyproject.toml; run `uv lock` in the project and submit again",
        ),
        (
            (
                "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided."
                " To update the lockfile, run `uv lock`.\n"
            ),
            "uv.lock does not fit pyproject.toml; run `uv lock` in the project and submit again",
        ),
        # a warning of the network that was overcome, before an error that has nothing to do with it
        (
            "warning: Transient failure, retrying: error sending request for url (https://x/)\n"
            + NO_SOLUTION,
            "Because foo was not found",
        ),
    ],
)
def test_words_that_are_the_users_to_read(output: str, line: str) -> None:
    """No other host would fare better, so the job ends at once, with the line that says what to
    change.
    """
    assert not is_network(output)
    assert line in in_a_line(output)


@pytest.mark.parametrize(
    "cause",
    [
        "failed to write to file `/cache/big/data`: No space left on device (os error 28)",
        "failed to copy file from /a to /b: Disk quota exceeded (os error 122)",
    ],
)
def test_words_of_a_full_disk(cause: str) -> None:
    """The host is to blame, and is spared for a while."""
    output = f"error: Failed to install: big-1.0-py3-none-any.whl (big==1.0)\n  cause: {cause}\n"

    assert is_full_disk(output)
    assert not is_network(output)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("\n\n", ""),
        ("one\n  two  \n\n", "two"),
        ("x" * 1000, "x" * 297 + "..."),
        ("error: \n", "error:"),
    ],
)
def test_without_an_error_of_uvs_the_last_line_has_to_do(output: str, line: str) -> None:
    """So it is for the commands of users; and a reason stays a line."""
    assert in_a_line(output) == line
