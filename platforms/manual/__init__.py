"""Machines that exist already, reached over SSH. Read `platform.py` first, then `host.sh`, which
runs on each machine.

Code here must not touch anything on a machine outside of Iris's directory there, except for
processes that Iris started.
"""
