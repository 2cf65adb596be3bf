"""The client for programs that are not asynchronous: scripts, threads, notebooks, and programs in a
job. Open `client.py` first; `event_loop.py` runs the asynchronous client in a thread; `context.py`
tells a program in a job who it is. Must decide nothing: every call is one of the asynchronous
client.
"""
