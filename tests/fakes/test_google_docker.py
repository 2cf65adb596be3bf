"""The command line of `docker run` on a host that is a process."""

import pytest

from tests.fakes.google.docker_words import Refused, on_host, parse_run

MOUNTS = [
    ("/h/1/root/etc/iris", "/etc/iris"),
    ("/h/1/root/var", "/var/lib/iris"),
    ("/same", "/same"),
]


@pytest.mark.parametrize(
    ("inside", "here"),
    [
        ("/etc/iris/config.yaml", "/h/1/root/etc/iris/config.yaml"),
        ("/etc/iris", "/h/1/root/etc/iris"),
        ("--config=/etc/iris/config.yaml", "--config=/h/1/root/etc/iris/config.yaml"),
        ("file:///var/lib/iris/store", "file:///h/1/root/var/store"),
        ("/etc/irises", "/etc/irises"),
        ("/same/x", "/same/x"),
        ("/tmp/etc/iris", "/tmp/etc/iris"),
    ],
)
def test_a_container_path_becomes_a_host_path(inside: str, here: str) -> None:
    """Only if it is a mounted path, and only as a whole."""
    assert on_host(inside, MOUNTS) == here


def test_options_end_at_the_image() -> None:
    """The words after it are the command with its options; options without a value do not take the
    next word.
    """
    words = (
        "-d --rm --name a --restart=always --ulimit core=0:0 -e K=a=b -v /x:/y:ro --gpus all"
        " image:1 iris -d --name b"
    )
    container, beside, removed = parse_run(words.split())

    assert (container.name, container.image, container.command) == (
        "a",
        "image:1",
        ["iris", "-d", "--name", "b"],
    )
    assert (container.environment, container.mounts, container.restart) == (
        {"K": "a=b"},
        [("/x", "/y")],
        "always",
    )
    assert (beside, removed) == (True, True)


def test_a_run_without_an_image_is_refused() -> None:
    """With Docker's exit code for its own errors."""
    with pytest.raises(Refused) as caught:
        parse_run(["-d", "--name", "a"])

    assert caught.value.code == 125
