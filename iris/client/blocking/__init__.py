"""The client for programs that are not asynchronous: scripts, threads, notebooks, and programs in a
job. `client.py` and `job.py` are written by hand, and `scripts/make-blocking.py` writes the folder
`generated`. `event_loop.py` runs the asynchronous client in a thread. `context.py` describes the
task of a program that runs in a job. Must decide nothing: every call is a call of the asynchronous
client.
"""
