"""Actors: objects in tasks, whose methods other programs of the job call. Callers find them by
endpoints, connect by TLS, and prove that they have the key of the job's actors. Open `server.py`
first, then `calls.py`, which `client.py` and `asynchronous.py` wrap; `wire.py` has the format of
the connection. Must not unpickle anything from a connection whose other side does not have the key.
"""
