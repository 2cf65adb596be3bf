"""Python functions as jobs: packs a call, runs it in a job's interpreter, and reads its result.
Open `call.py` first; `run.py` is the script that is copied into each call, and `result.py` reads
what it leaves. Must not start a job, nor unpickle anything that the caller has not asked for.
"""
