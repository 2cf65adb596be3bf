"""Packs a job's workspace and uploads it to the store.

Open `pack.py` first; `files.py` selects the files and `upload.py` sends the archive. These modules
neither change the workspace nor start a job.
"""
