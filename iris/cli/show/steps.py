"""Shows the steps of a long operation, such as the start of a cluster, on standard error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import click

from iris.cli.show.terminal import is_live

if TYPE_CHECKING:
    from iris.cli.show.live import LiveBlock
    from iris.cli.show.live_lines import Look

#: Between two drawings, which show whole seconds.
_INTERVAL_S = 1.0


@contextmanager
def interrupted_start(cluster: str, stop: str) -> Iterator[None]:
    """Says what is left of a cluster whose start is interrupted.

    Args:
        stop: the command that deletes it.
    """
    try:
        yield
    except KeyboardInterrupt:
        left = (
            f"cluster {cluster} may have been started in part; to delete what there is, run: {stop}"
        )
        click.echo(left, err=True)
        raise


class Steps:
    """Prints each step with which it is called. While it is entered, a terminal shows how long the
    present step has taken.

    Args:
        first: the step with which the operation begins, shown only on a terminal.
    """

    def __init__(self, first: str) -> None:
        self._step, self._began, self._prints = first, 0.0, False
        self._block: LiveBlock | None = None

    def __call__(self, text: str) -> None:
        if self._block is None:
            click.echo(text, err=True)
            return
        with self._block.above():
            self._print_step()
            self._step, self._began, self._prints = text, time.monotonic(), True

    def __enter__(self) -> Self:
        if is_live():
            import threading  # only a terminal needs these

            from iris.cli.show.live import LiveBlock

            self._began = time.monotonic()
            self._block = LiveBlock(self._lines)
            self._ended = threading.Event()
            threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._block is not None:
            self._ended.set()
            self._block.close()
            self._block = None
            self._print_step()

    def _print_step(self) -> None:
        """Prints the present step, which another one replaces or which is over."""
        if self._prints:
            click.echo(self._step, err=True)
        self._prints = False

    def _tick(self) -> None:
        block = self._block
        while block is not None and not self._ended.wait(_INTERVAL_S):
            block.draw()

    def _lines(self, look: "Look") -> list[str]:
        from iris.cli.show.live_lines import step_line  # as the block

        return [step_line(self._step, timedelta(seconds=time.monotonic() - self._began), look)]
