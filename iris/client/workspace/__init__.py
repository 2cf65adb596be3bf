"""Packs a job's workspace and uploads it to the store.

Open `pack.py` first; `files.py` selects the files and `upload.py` sends the archive. These modules
neither change the workspace nor start a job.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.workspace import pack as pack
    from iris.client.workspace import upload as upload
else:
    __getattr__ = modules_of(__name__)
