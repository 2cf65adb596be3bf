"""Machines are added to and taken out of the text that a user wrote, with all of its comments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.config import load_config
from iris.config.edit_hosts import add_hosts, remove_hosts, retire_hosts
from iris.model.errors import Rejected
from tests.config.test_config_properties import FEW

HEAD = """\
# the lab
platform: {manual: {}}
controller: {local: {}, bundle_prefix: "file:///srv/iris"}  # shared
scale_groups:
"""
BLOCK = """\
  desks:  # all of them
    type: manual_vm
    # the good ones first
    hosts:
      - a  # at the window
      # noisy
      - "b"
      - 10.0.0.3
    # always on
    min_slices: 3  # of 3
  gpus:
    hosts: [g]
    type: manual_vm
"""


def group_of(text: str, name: str = "desks") -> tuple[tuple[str, ...], tuple[str, ...], int, int]:
    group = load_config(text).scale_groups[name]
    return group.hosts, group.retiring_hosts, group.min_slices, group.max_slices


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Returns the lines that only the first text has, and the lines that only the second
    text has.
    """
    old, new = before.splitlines(), after.splitlines()
    return [each for each in old if each not in new], [each for each in new if each not in old]


def test_a_removal_in_two_steps_changes_only_what_it_has_to() -> None:
    """Everything else is the user's: comments, quotes, order and layout."""
    text = HEAD + BLOCK

    retired = retire_hosts(text, "desks", ["b"])
    removed = remove_hosts(retired, "desks", ["b"])

    assert changed_lines(text, retired) == (
        ["    min_slices: 3  # of 3"],
        ["    retiring_hosts: [b]", "    min_slices: 2  # of 3"],
    )
    assert group_of(retired) == (("a", "b", "10.0.0.3"), ("b",), 2, 3)
    assert changed_lines(retired, removed) == (['      - "b"', "    retiring_hosts: [b]"], [])
    assert group_of(removed) == (("a", "10.0.0.3"), (), 2, 2)


def test_an_added_machine_is_always_a_host_if_all_the_others_are() -> None:
    """That is what `min_slices` says there: the user need not count."""
    text = HEAD + BLOCK

    added = add_hosts(text, "desks", ["d", "123"])

    assert changed_lines(text, added) == (
        ["    min_slices: 3  # of 3"],
        ["      - d", '      - "123"', "    min_slices: 5  # of 3"],
    )
    assert group_of(add_hosts(text, "gpus", ["h"]), "gpus") == (("g", "h"), (), 0, 2)


def test_a_machine_that_is_leaving_stays_if_it_is_added() -> None:
    """The way back from a removal that was not meant."""
    text = HEAD + BLOCK

    assert add_hosts(retire_hosts(text, "desks", ["a", "b"]), "desks", ["a", "b"]) == text


def test_a_limit_is_the_users_unless_it_was_the_number_of_machines() -> None:
    """A limit below the number of machines leaves some to others; one above it would be refused."""
    text = HEAD + "  g: {type: manual_vm, hosts: [a, b, c], max_slices: LIMIT, buffer_slices: 2}"

    assert group_of(add_hosts(text.replace("LIMIT", "2"), "g", ["d"]), "g") == (
        ("a", "b", "c", "d"),
        (),
        0,
        2,
    )
    assert group_of(add_hosts(text.replace("LIMIT", "3"), "g", ["d"]), "g") == (
        ("a", "b", "c", "d"),
        (),
        0,
        4,
    )
    fewer = remove_hosts(text.replace("LIMIT", "3"), "g", ["a", "b"])
    assert "{type: manual_vm, hosts: [c], max_slices: 1, buffer_slices: 1}" in fewer


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        (BLOCK, BLOCK.partition("  gpus:")[0]),
        (
            (
                "  gpus: {type: manual_vm, hosts: [g]}  # G\n  # last\n  h: {type: manual_vm,"
                " hosts: [h]}\n"
            ),
        )
        * 2,
    ],
    ids=["block", "one line"],
)
def test_a_group_without_machines_is_removed(groups: str, left: str) -> None:
    """A group needs at least one machine. The comments of the other groups stay."""
    text = HEAD + groups

    removed = remove_hosts(retire_hosts(text, "gpus", ["g"]), "gpus", ["g"])

    assert removed == HEAD + left.replace("  gpus: {type: manual_vm, hosts: [g]}  # G\n", "")


LAYOUTS = {
    "flow": "hosts: [a, b, c]  # three",
    "flow over several lines": (
        "hosts: [\n      a,  # one, the first\n      b,\n      # and\n      c  # three\n    ]"
    ),
    "flow with a comma at its end": "hosts: [a,\n            b, c, ]",
    "block": "hosts:\n      - a\n\n      - b  # two\n      - c",
    "block without indentation": "hosts:\n    - a\n    - b  # two\n    - c\n    # the end",
    "quoted": "'hosts': ['a', \"b\", c]",
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    "rest",
    ["", "\n", "\n    type: manual_vm  # at the end\n"],
    ids=["no end of line", "end", "more"],
)
def test_every_layout_of_a_list_is_changed_in_its_place(
    layout: str, newline: str, rest: str
) -> None:
    """The comments of machines that stay are there afterwards, and the file loads with the wanted
    lists.
    """
    type_ = "" if "type" in rest else "    type: manual_vm\n"
    text = f"{HEAD}  g:\n{type_}    {layout}{rest}".replace("\n", newline)
    for gone in ("a", "b", "c"):
        stay = tuple(each for each in "abc" if each != gone)
        retired = retire_hosts(text, "g", [gone])
        assert group_of(retired, "g") == (("a", "b", "c"), (gone,), 0, 3)
        removed = remove_hosts(retired, "g", [gone])
        assert group_of(removed, "g") == (stay, (), 0, 2)
        again = add_hosts(removed, "g", [gone, "d"])
        assert group_of(again, "g") == ((*stay, gone, "d"), (), 0, 4)
        assert again.count("\n") == again.count(newline)
        own = [
            line
            for line in text.splitlines()
            if "#" in line and gone not in line.partition("#")[0].strip(" -,")
        ]
        assert [line for line in own if line.partition("#")[2] not in again] == []


@pytest.mark.parametrize(
    "groups",
    [
        "  g: {type: manual_vm, hosts: &all [a, b]}\n  h: {type: local_vm}".replace(
            "local_vm", "manual_vm, hosts: [c], attributes: &x {}"
        ),
        "  g: &g\n    type: manual_vm\n    hosts: [a, b]\n    attributes: {x: y}",
    ],
)
def test_an_anchor_that_nothing_else_uses_does_not_matter(groups: str) -> None:
    """Only what would change something else is refused."""
    assert group_of(remove_hosts(HEAD + groups, "g", ["a"]), "g")[0] == ("b",)


def test_a_value_that_other_groups_share_is_not_changed() -> None:
    """The message has what to write instead."""
    text = (
        HEAD
        + """\
          g: &g
            type: manual_vm
            hosts: [a, b]
            min_slices: &two 2
          h: {type: manual_vm, hosts: [c, d], min_slices: *two}
        """
    )

    with pytest.raises(Rejected) as refused:
        retire_hosts(text, "g", ["a"])

    assert (
        str(refused.value)
        == "the file cannot be changed automatically; write in scale_groups.g: retiring_hosts:"
        " [a], min_slices: 1"
    )


@FEW
@given(st.data())
def test_any_sequence_of_changes_leaves_the_other_machines_and_comments(
    data: st.DataObject,
) -> None:
    """However often a list is changed, it has the wanted machines, and no comment of another line
    is lost.
    """
    names = ["a", "b", "c", "d", "10.0.0.1", "no", "0x1"]
    layout = data.draw(st.sampled_from(list(LAYOUTS.values())))
    text = f"{HEAD}  # before\n  g:\n    {layout}\n    # between\n    type: manual_vm\n  # after\n"
    hosts, retiring = ["a", "b", "c"], set[str]()
    for _ in range(data.draw(st.integers(1, 6))):
        change = data.draw(st.sampled_from([add_hosts, retire_hosts, remove_hosts]))
        some = data.draw(
            st.lists(
                st.sampled_from(names if change is add_hosts else hosts), unique=True, min_size=1
            )
        )
        if change is add_hosts:
            hosts += [each for each in some if each not in hosts]
            retiring -= set(some)
        elif change is retire_hosts:
            retiring |= set(some)
        elif set(some) < set(hosts):
            hosts = [each for each in hosts if each not in some]
            retiring -= set(some)
        else:
            continue
        text = change(text, "g", some)
        got, leaving, *_ = group_of(text, "g")
        assert (list(got), set(leaving)) == (hosts, retiring)
        assert all(
            comment in text
            for comment in ("# the lab", "# shared", "# before", "# between", "# after")
        )
