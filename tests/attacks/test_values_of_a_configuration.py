"""A value of a cluster's configuration becomes a line, an option or a path of another program that
the one who uses it runs.
"""

import contextlib
import copy
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iris.config import InvalidConfig, load_config
from iris.config.schema import ClusterConfig
from iris.config.values import Section
from iris.platforms.manual.settings import manual_settings
from iris.platforms.manual.ssh_options import ssh_command, ssh_config
from tests.strategies import examples

#: Configurations that together have each section.
GOOGLE: dict[str, Any] = {
    "platform": {
        "gcp": {
            "project_id": "my-project",
            "default_zones": ["us-central1-a"],
            "endpoints": {"tpu": "localhost:1"},
        }
    },
    "controller": {
        "image": "example/iris",
        "bundle_prefix": "gs://bucket/iris",
        "temporal": {
            "address": "temporal:7233",
            "tls": True,
            "api_key": "gcp:key",
            "server_name": "temporal",
        },
        "gcp": {"zone": "us-central1-a"},
    },
    "bootstrap": {"image": "example/iris", "mounts": ["/data"], "env_vars": {"A": "b"}},
    "scale_groups": {
        "g": {"type": "gce_vm", "machine_type": "n2-standard-4", "attributes": {"rack": "a"}}
    },
}
MACHINES: dict[str, Any] = {
    "platform": {"manual": {}},
    "controller": {"bundle_prefix": "file:///shared", "manual": {"host": "10.0.0.1"}},
    "defaults": {"ssh": {"user": "ada"}},
    "scale_groups": {
        "g": {"type": "manual_vm", "hosts": ["10.0.0.2"], "resources": {"cpu": 1, "memory": "1g"}}
    },
}
LINE = "x\nProxyCommand touch /tmp/ran"


def load(tree: dict[str, Any]) -> ClusterConfig:
    return load_config(yaml.safe_dump(tree))


def changed(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The configuration with another value."""
    for key in reversed(path):
        value = [value] if key == FIRST else {key: value}
    return merged(tree, value)


def merged(tree: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the values of the change."""
    both = {
        key: merged(tree[key], change[key])
        for key in tree.keys() & change.keys()
        if isinstance(tree[key], dict) and isinstance(change[key], dict)
    }
    return {**copy.deepcopy(tree), **change, **both}


#: The path of the first element of a list.
FIRST = "0"
#: A key of each dictionary of a configuration.
KEYS = {
    "scale_groups": "g",
    "attributes": "rack",
    "env_vars": "A",
    "teams": "research",
    "budgets": "monthly",
    "quotas": "vision",
}
#: Dictionaries of a configuration whose values are numbers.
OF_NUMBERS = {"limits"}


def text_fields(
    section: type[Section], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The path of each text below a section, and whether it is a list of texts."""
    for name, field in section.model_fields.items():
        here, kind = (*path, name), field.annotation
        parts = get_args(kind)
        inner = next(
            (
                each
                for each in (kind, *parts)
                if isinstance(each, type) and issubclass(each, Section)
            ),
            None,
        )
        if name in OF_NUMBERS:
            continue
        if get_origin(kind) is dict:
            key = KEYS[name]
            if inner is not None:
                yield from text_fields(inner, (*here, key))
            else:
                yield (*here, key), get_origin(parts[1]) is tuple
        elif inner is not None:
            of_a_list = (FIRST,) if get_origin(kind) is tuple else ()
            yield from text_fields(inner, (*here, *of_a_list))
        elif kind is str or (get_origin(kind) is tuple and str in [parts[0], *get_args(parts[0])]):
            yield here, kind is not str


FREE = ("bootstrap", "env_vars", "A")
TEXTS = {path: many for path, many in text_fields(ClusterConfig) if path[-3:] != FREE}


def test_the_search_finds_the_texts_of_a_configuration() -> None:
    """A search that finds nothing would let everything pass."""
    assert len(TEXTS) > 40
    assert {
        ("defaults", "ssh", "user"),
        ("scale_groups", "g", "hosts"),
        ("controller", "temporal", "address"),
    } <= set(TEXTS)


@pytest.mark.parametrize("path", TEXTS, ids=".".join)
def test_no_text_of_a_configuration_is_another_line_or_an_option(path: tuple[str, ...]) -> None:
    """Also those of settings that are added later: a line of ssh's configuration names a program,
    and so do options.
    """
    tree = (
        MACHINES
        if path[:2] in (("controller", "manual"), ("platform", "manual")) or "ssh" in ".".join(path)
        else GOOGLE
    )
    tree = MACHINES if path[-1] in ("hosts", "retiring_hosts") else tree
    load(tree)
    for value in (LINE, "x\rHost *", "x\x1b[2J", "x\0", "x\u2028y", "-oProxyCommand=touch x"):
        with pytest.raises(InvalidConfig) as refused:
            load(changed(tree, path, [value] if TEXTS[path] else value))
        # The texts of a list in a dictionary are checked together.
        field = (".".join(path), f"{path[0]}: ")
        assert any(each.startswith(field) for each in refused.value.problems), (
            value,
            refused.value.problems,
        )


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("defaults.ssh.user", "ada lovelace", "is not the name of a login user; use letters"),
        ("defaults.ssh.user", "$(id)", "is not the name of a login user"),
        ("defaults.ssh.user", "%h", "is not the name of a login user"),
        ("scale_groups.g.ssh_user", "ada;id", "is not the name of a login user"),
        ("controller.manual.ssh_user", "'", "is not the name of a login user"),
        (
            "defaults.ssh.jump_host",
            "x@-oProxyCommand=id",
            r"is not a machine; write \[USER@\]HOST\[:PORT\]",
        ),
        (
            "scale_groups.g.ssh_jump_host",
            "-oProxyCommand=id@x",
            "begins with a dash|is not a machine",
        ),
        ("controller.manual.ssh_jump_host", "gate:99999", "is not a machine"),
        ("defaults.ssh.jump_host", "@gate", "is not a machine"),
        (
            "defaults.ssh.key_file",
            'k" -o x',
            "which ssh does not take literally; give the file another name",
        ),
        ("defaults.ssh.known_hosts", "${HOME}/known", "which ssh does not take literally"),
        ("scale_groups.g.ssh_key_file", "a\\b", "which ssh does not take literally"),
        ("defaults.ssh.known_hosts", "~:", "begins with the home directory of another user"),
        (
            "bootstrap.image",
            "--privileged",
            "begins with a dash|is not a valid name of a container image",
        ),
        ("bootstrap.image", "a --privileged", "is not a valid name of a container image"),
        ("controller.image", "a b", "is not a valid name of a container image"),
        ("scale_groups.g.task_image", "a b", "is not a valid name of a container image"),
        ("bootstrap.cache_dir", "cache", "is not an absolute path"),
        ("bootstrap.cache_dir", "/cache:/etc", "has a colon, which separates the paths of a mount"),
        ("bootstrap.mounts", ["/data:/etc"], "has a colon, which separates the paths of a mount"),
        ("bootstrap.env_vars.A", "a\0b", "has a NUL character"),
        ("controller.temporal.address", "t:1'''", "is not an address; write HOST:PORT"),
        ("controller.temporal.namespace", "n'''", "is not a namespace; use letters"),
        ("controller.temporal.server_name", "n'''", "is not the name of a server"),
        ("platform.gcp.network", "a b", "is not the name of a resource; use letters"),
        ("platform.gcp.network_tags", ["a,b"], "is not the name of a resource"),
    ],
)
def test_a_text_is_refused_that_its_place_does_not_allow(
    path: str, value: Any, problem: str
) -> None:
    """The error names the key, the value and the remedy."""
    keys = tuple(path.split("."))
    tree = MACHINES if "ssh" in path else GOOGLE
    with pytest.raises(InvalidConfig, match=rf"(?s){path}(\.0)?: .*({problem})"):
        load(changed(tree, keys, value))


@pytest.mark.parametrize(
    "user", ["ada", "_svc-1", "ada.lovelace", "LAB\\ada", "ada@lab.example", "größe"]
)
def test_users_of_directories_may_log_in(user: str) -> None:
    """Active Directory and IPA have a domain in the name."""
    assert (
        load(changed(MACHINES, ("defaults", "ssh", "user"), user)).scale_groups["g"].ssh_user
        == user
    )


def test_variables_of_tasks_may_have_any_characters() -> None:
    """They end in environments only, as they are."""
    value = "-a\n\t'\"\\ é\u2028"
    assert load(changed(GOOGLE, FREE, value)).bootstrap.env_vars == {"A": value}


nasty = st.text(st.sampled_from("ab/~.@-: '\"\\$%#\n={}"), max_size=10)


@settings(max_examples=examples(80), deadline=None)
@given(nasty, nasty, nasty, nasty)
@example("", "", "~:", "")  # ssh -G ends with 255: there is no user of that name
def test_ssh_reads_what_the_configuration_says_and_nothing_else(
    user: str, key: str, known: str, jump: str
) -> None:
    """Whatever a file says that is not refused, the real ssh takes each value as one value."""
    tree = MACHINES
    names = {"user": user, "key_file": key, "known_hosts": known, "jump_host": jump}
    for name, value in names.items():
        with contextlib.suppress(InvalidConfig):
            load(next_tree := changed(tree, ("defaults", "ssh", name), value))
            tree = next_tree
    config = load(tree)
    access = manual_settings(config, "uid")
    with tempfile.TemporaryDirectory() as directory:
        (file := Path(directory) / "config").write_text(ssh_config(access))
        read = asked("-F", str(file), "10.0.0.2")
        typed = asked(*ssh_command(access.all_hosts[0], access)[1:])
    for found in (read, typed):
        assert found["user"] == config.defaults.ssh.user
        if config.defaults.ssh.key_file:
            assert Path(found["identityfile"].replace("%%", "%")) == Path(
                config.defaults.ssh.key_file
            )
        assert found.get("proxycommand", "none").startswith(
            "ssh -W" if config.defaults.ssh.jump_host else "none"
        )


def asked(*words: str) -> dict[str, str]:
    """What ssh makes of its command line, by keyword."""
    ssh = shutil.which("ssh")
    assert ssh is not None
    ran = subprocess.run([ssh, "-G", *words], capture_output=True, text=True, check=True)
    return {
        key: value for key, _, value in (line.partition(" ") for line in ran.stdout.splitlines())
    }
