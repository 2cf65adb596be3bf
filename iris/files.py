"""Small files that others read while they are written anew."""

from pathlib import Path


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Write the file: whoever reads it reads the old or the new text, never half of one. There may be one writer at a time.

    Args:
        mode: who may read it, from the first byte on; None: whoever the process' mask lets.

    Raises:
        OSError: the disk is full, or the directory gone.
    """
    draft = path.with_name(f".{path.name}.new")
    if mode is not None:
        draft.touch(mode)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
