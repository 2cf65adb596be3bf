"""Methods of the blocking client that `scripts/make-blocking.py` writes from the asynchronous
classes. Each calls the asynchronous method of its name. Must have no hand-written code.
"""
