"""The client for programs that are not asynchronous: scripts, threads and notebooks.
Open `client.py` first; `event_loop.py` runs the asynchronous client in a thread.
Must decide nothing: every call is one of the asynchronous client."""
