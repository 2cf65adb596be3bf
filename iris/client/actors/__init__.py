"""Actors: objects in tasks whose methods other programs of the job call. Found by endpoints,
connected by TCP, known by a token. Open `server.py` first, then `calls.py`, which `client.py` and
`asynchronous.py` wrap; `wire.py` is what passes between them. Must not unpickle anything from a
connection whose other side does not know the token.
"""
