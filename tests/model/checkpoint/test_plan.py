"""What a save of a checkpoint directory has: whole files, and no later change without the earlier
ones.
"""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris.model.checkpoint.plan import Changes, Found, Plan, plan, too_large
from iris.model.checkpoint.saves import (
    ITEM_BYTES,
    MOST_MANIFEST,
    Save,
    SavedItem,
    attempt_folder,
    unused,
)

#: Seconds, in nanoseconds.
S = 10**9
SETTLE = 2 * S


class Directory:
    """A checkpoint directory on a clock of its own, which is looked at and saved."""

    def __init__(self) -> None:
        self.now = 100 * S
        self.files: dict[str, Found] = {}
        self.last = Save()
        self.changes = Changes(self.now)
        self.inodes = 0

    def write(self, path: str, size: int, *, new: bool = True) -> None:
        """Writes a version of a file, which its size tells."""
        self.now += S // 10
        self.inodes += new
        inode = self.inodes if new else self.files[path].inode
        self.files[path] = Found(path, 0o600, self.now, inode, size, self.now, is_file=True)

    def remove(self, path: str) -> None:
        self.now += S // 10
        del self.files[path]

    def look(self, after: float = 0.1, *, ended: bool = False) -> Plan:
        """Looks at the directory after some seconds."""
        self.now += int(after * S)
        settled_at = math.inf if ended else self.now - SETTLE
        self.changes.look(self.last, self.files.values(), self.now, settled_at)
        return plan(self.last, self.files.values(), self.changes, settled_at)

    def save(self, after: float = 0.1, *, ended: bool = False) -> dict[str, int]:
        """Looks, saves what is planned, and returns the sizes of what is saved then."""
        planned = self.look(after, ended=ended)
        if planned.is_due:
            new = (
                SavedItem(
                    path=each.path,
                    mode=each.mode,
                    size=each.size,
                    mtime_ns=each.mtime_ns,
                    stored_as="x",
                )
                for each in planned.new
            )
            self.last = Save(items=(*planned.kept, *new))
            self.changes.saved(planned)
        return {item.path: item.size for item in self.last.items}


def test_a_file_is_saved_when_it_has_not_changed_for_two_seconds() -> None:
    """It may be half-written before."""
    directory = Directory()
    directory.write("weights", 1)

    assert directory.save(1) == {}
    assert directory.save(1.5) == {"weights": 1}
    assert not directory.look(10).is_due


def test_all_is_whole_when_the_program_has_ended_by_itself() -> None:
    """Nothing is written any more, so the last step is not lost."""
    directory = Directory()
    directory.write("weights", 1)

    assert directory.save(ended=True) == {"weights": 1}


def test_a_later_change_waits_for_an_earlier_one() -> None:
    """The number of a step is not saved with the weights of the step before."""
    directory = Directory()
    directory.write("weights", 1)
    directory.write("step", 1)
    assert directory.save(3) == {"weights": 1, "step": 1}
    directory.write("weights", 20, new=False)
    directory.write("step", 2)
    directory.changes.replaced.add("step")

    assert directory.save(1) == {"weights": 1, "step": 1}
    assert directory.save(2) == {"weights": 20, "step": 2}


def test_an_earlier_change_does_not_bring_a_later_one() -> None:
    """Weights that are written again at once hide the version to which the number of the step
    belongs.
    """
    directory = Directory()
    for version in (1, 2):
        directory.write("weights", version)
        directory.write("step", version)
        if version == 1:
            directory.save(3)
    directory.look(0.5)
    directory.now += 2 * S
    directory.write("weights", 3, new=False)

    assert directory.save(1) == {"weights": 1, "step": 1}


def test_an_old_file_is_kept_until_its_successor_is_whole() -> None:
    """A program that keeps only its last checkpoint always has one."""
    directory = Directory()
    directory.write("step_1", 1)
    directory.save(3)
    directory.write("step_2", 2)
    directory.remove("step_1")

    assert directory.save(1) == {"step_1": 1}
    assert directory.save(2) == {"step_2": 2}


def test_a_file_that_is_replaced_by_renaming_is_whole_at_any_time() -> None:
    """A program may save each second and never leave its file alone for two."""
    directory = Directory()
    directory.changes.replaced.add("state")
    directory.write("state", 1)

    assert directory.save() == {"state": 1}


def test_a_directory_is_saved_as_a_whole() -> None:
    """Its files belong together, also if some of them were written long ago."""
    directory = Directory()
    directory.write("step_1/a", 1)
    directory.now += 5 * S
    directory.write("step_1/b", 2)

    assert directory.save(1) == {}
    assert directory.save(2) == {"step_1/a": 1, "step_1/b": 2}


def test_nothing_waits_for_a_log() -> None:
    """A file that has only grown for a minute is no checkpoint; it is saved when it rests."""
    directory = Directory()
    directory.write("events", 1)
    for size in range(2, 80):
        directory.write("events", size, new=False)
        directory.write("step", size)
        directory.changes.replaced.add("step")
        saved = directory.save(1)

    assert saved == {"step": 79}
    assert directory.save(3) == {"events": 79, "step": 79}


def test_a_file_that_is_written_in_place_all_the_time_is_not_taken_for_a_log() -> None:
    """It holds up everything: no save is better than one with the wrong weights."""
    directory = Directory()
    directory.write("weights", 1)
    for version in range(80):
        directory.write("weights", 100 - version, new=False)
        directory.write("step", version)

    assert directory.save(1) == {}


def test_an_agent_that_takes_over_saves_nothing_with_what_is_not_whole() -> None:
    """It does not know which change was the first."""
    directory = Directory()
    directory.write("step", 2)
    directory.now += 60 * S
    directory.write("weights", 1)
    directory.changes = Changes(0)

    assert directory.save(1) == {}
    assert directory.save(2) == {"step": 2, "weights": 1}


@pytest.mark.parametrize(
    ("size", "path", "reason"),
    [
        (10, "a", ""),
        (11, "a", "it has 11 B, and a task may save 10 B (bootstrap.max_checkpoint)"),
        (1, "/".join("a" * 101), "it has paths of more than 100 names"),
    ],
)
def test_a_directory_beyond_the_limits_is_refused_with_the_reason(
    size: int, path: str, reason: str
) -> None:
    """The user learns which limit it is, and of what."""
    found = Found(path, 0o600, 0, 1, size, 0, is_file=True)

    assert too_large(Plan((), (found,), (), is_due=True), 10, "checkpoints/ada") == reason


def test_a_directory_whose_list_could_not_be_read_back_is_refused() -> None:
    """It used to be saved, and no later attempt could restore it."""
    prefix = "checkpoints/ada"
    longest = MOST_MANIFEST - ITEM_BYTES - len(prefix)
    kept, refused = (
        too_large(Plan((), (found,), (), is_due=True), 10, prefix)
        for found in (
            Found("a" * length, 0o600, 0, 1, 1, 0, is_file=True)
            for length in (longest, longest + 1)
        )
    )

    assert kept == ""
    assert refused == (
        "the list of its 1 files and directories may need more than 64 MiB, the limit; use fewer"
        " files or shorter paths"
    )


def test_an_item_of_a_manifest_has_at_most_the_bytes_that_are_counted() -> None:
    """The count decides before anything is uploaded."""
    prefix, path = "checkpoints/ada/train", '"ä"'
    name = f"{attempt_folder(prefix, 2**31)}/files/{'f' * 12}-{2**31}"
    item = SavedItem(
        path=path,
        mode=0o7777,
        size=2**63,
        mtime_ns=2**63,
        stored_as=name,
        sha256="f" * 64,
        target="f",
    )
    one, two = (len(Save(items=(item,) * n).manifest().encode()) for n in (1, 2))

    assert two - one <= ITEM_BYTES + len(prefix) + len(f"{path}f".encode()) + path.count('"')


def test_an_attempt_deletes_no_object_of_a_later_one_nor_of_the_saves_that_it_keeps() -> None:
    """A late attempt may run beside its successor."""
    keep = Save(attempt=2, number=7, items=(SavedItem(path="a", stored_as="p/2/files/x-1"),))
    stored = [
        "p/1/0000000009.json",
        "p/1/files/z-1",
        "p/2/0000000007.json",
        "p/2/files/x-1",
        "p/2/files/x-0",
        "p/3/files/y-1",
    ]

    assert unused(stored, "p", 2, [keep]) == [
        "p/1/0000000009.json",
        "p/1/files/z-1",
        "p/2/files/x-0",
    ]


#: A file that is written in place or removed, one that is replaced by renaming, or a save after 1.5
#: s.
ACTS = st.lists(st.sampled_from(["a", "b", "remove a", "r", "save"]), min_size=8, max_size=24)


@given(ACTS)
@example(["r", "a", "save", "b", "r", "save"])
def test_a_save_is_the_directory_as_it_was_at_some_time(acts: list[str]) -> None:
    """Whatever a program writes, replaces and removes, in whatever order, and whenever it is looked
    at.
    """
    directory = Directory()
    directory.changes.replaced.add("r")
    states: list[dict[str, int]] = [{}]
    for number, act in enumerate(acts, start=1):
        if act == "save":
            assert directory.save(1.5) in states
        elif act == "remove a":
            if "a" in directory.files:
                directory.remove("a")
        else:
            directory.write(act, number, new=act == "r" or act not in directory.files)
        states.append({each: found.size for each, found in directory.files.items()})
    assert directory.save(3) == states[-1]
