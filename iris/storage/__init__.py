"""Access to the object store and the file formats in it: the only I/O below the roles.

Open `object_store.py` first. It must not import anything of Iris but `iris.model`, and no
third-party package but obstore and pydantic.
"""
