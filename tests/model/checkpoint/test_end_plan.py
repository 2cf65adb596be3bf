"""What the last save of a checkpoint directory has when its program has not ended by itself."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from iris.model.checkpoint.end_plan import Order, plan_end
from iris.model.checkpoint.plan import Changes, Found
from iris.model.checkpoint.saves import Save, SavedItem
from tests.strategies import examples

#: Seconds, in nanoseconds.
S = 10**9
TOP, BELOW = ("a", "b"), ("run/a", "run/b")


class Directory:
    """A checkpoint directory that was saved once and then changed within a moment. The size of a
    file is its version.
    """

    def __init__(self, saved: dict[str, int]) -> None:
        self.now, self.version, self.order = 100 * S, 100, Order()
        self.files: dict[str, Found] = {"run": Found("run", 0o700, self.now, 1)}
        for path, size in saved.items():
            self.files[path] = Found(path, 0o600, self.now, size, size, self.now, is_file=True)
        self.saved = Save(items=tuple(_saved(each) for each in self.files.values()))
        self.changes = Changes(self.now + 1)
        self.now += 10 * S
        #: The files that are being written.
        self.half: set[str] = set()
        #: The versions that were renamed into place, by their paths, as far as they are still
        #: there.
        self.renamed: dict[str, int] = {}

    def begin(self, path: str) -> None:
        self._write(path)
        self.half.add(path)

    def close(self, path: str) -> None:
        if path in self.half:
            self.half.discard(path)
            self.order.closed(path)

    def remove(self, path: str) -> None:
        if self.files.pop(path, None):
            self.order.written(path)
            self.renamed.pop(path, None)
            self.half.discard(path)

    def replace(self, path: str) -> None:
        """Writes a draft and renames it."""
        self._write(f"{path}.new")
        self.order.closed(f"{path}.new")
        draft = self.files.pop(f"{path}.new")
        self.order.written(f"{path}.new")
        self.files[path] = draft._replace(path=path)
        self.order.placed(path, self.now)
        self.renamed[path] = draft.size
        self.half.discard(path)

    def end(self) -> dict[str, int]:
        """Ends the program at once, saves, and returns the sizes of what is saved."""
        for path in self.half:
            self.order.closed(path)  # by the system
        self.changes.look(self.saved, self.files.values(), self.now, self.now - 2 * S)
        planned = plan_end(
            self.saved, self.files.values(), self.changes, self.now - 2 * S, self.order
        )
        return {item.path: item.size for item in (*planned.kept, *planned.new) if item.size}

    def _write(self, path: str) -> None:
        self.now, self.version = self.now + 1, self.version + 1
        self.files[path] = Found(
            path, 0o600, self.now, self.version, self.version, self.now, is_file=True
        )
        self.order.written(path)
        self.renamed.pop(path, None)


def _saved(item: Found) -> SavedItem:
    stored_as = "x" if item.is_file else ""
    return SavedItem(
        path=item.path, mode=item.mode, size=item.size, mtime_ns=item.mtime_ns, stored_as=stored_as
    )


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "close", "replace", "remove"]), st.sampled_from([*TOP, *BELOW])
    ),
    max_size=12,
)


@settings(max_examples=examples(400), deadline=None)
@given(st.sets(st.sampled_from([*TOP, *BELOW])), ACTS)
@example({"run/a"}, [("begin", "run/a"), ("replace", "run/b")])
@example({"a"}, [("begin", "a"), ("replace", "b"), ("close", "a")])
@example({"run/a"}, [("replace", "run/b"), ("remove", "run/a"), ("begin", "run/b")])
def test_the_last_save_has_all_that_was_renamed_and_nothing_that_was_half_written(
    saved: set[str], acts: list[tuple[str, str]]
) -> None:
    """Whatever else the program wrote, closed and removed meanwhile. Of what it had begun, the
    earlier version stays.
    """
    before = {path: 1 + number for number, path in enumerate(sorted(saved))}
    directory = Directory(before)
    for act, path in acts:
        getattr(directory, act)(path)
    after = directory.end()

    assert directory.renamed.items() <= after.items()
    for path in directory.half:
        assert after.get(path) == before.get(path)


def test_what_was_closed_before_the_last_renaming_is_saved_with_it() -> None:
    """A program writes its weights, and then renames the file that says which are the last: it does
    not rename before.
    """
    directory = Directory({"latest": 1})
    directory.begin("step_2")
    directory.close("step_2")
    directory.replace("latest")
    directory.begin("step_3")
    directory.close("step_3")

    assert directory.end() == {"step_2": 101, "latest": 102}


def test_a_directory_that_was_not_finished_is_left_as_it_was() -> None:
    """A program that finds a directory for its last step expects all of its files."""
    directory = Directory({})
    directory.files["run/step_2"] = Found("run/step_2", 0o700, directory.now, 2)
    directory.order.made("run/step_2", directory.now)
    directory.replace("run/state")
    for name in ("config", "weights"):
        directory.begin(f"run/step_2/{name}")
        directory.close(f"run/step_2/{name}")

    assert directory.end() == {"run/state": 101}


def test_what_was_removed_after_the_last_renaming_stays() -> None:
    """A program that keeps only its last checkpoint has removed the one before, and the new one may
    not be whole.
    """
    directory = Directory({"step_1": 1, "run/step_1": 2, "old": 3})
    directory.remove("old")
    for path in ("state", "run/state"):
        directory.replace(path)
    for folder in ("", "run/"):
        directory.begin(f"{folder}step_2")
        directory.close(f"{folder}step_2")
        directory.remove(f"{folder}step_1")

    assert directory.end() == {"step_1": 1, "run/step_1": 2, "state": 101, "run/state": 102}
