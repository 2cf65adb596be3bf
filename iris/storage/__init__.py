"""Access to the object store, and the formats of files in it. It is the only I/O below the roles.

Open `object_store.py` first. Of Iris, this package may import only `iris.model` and
`iris.concurrency`; of third parties, only obstore and pydantic.
"""
