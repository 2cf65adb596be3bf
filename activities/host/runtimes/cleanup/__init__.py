"""Removes what ended attempts leave behind: processes, directories, links."""
