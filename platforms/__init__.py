"""Creates, describes, lists and deletes the machines of slices: one module or package per platform.

Open `base.py` first: it defines the contract `Platform` and its errors.
Code here must not import temporalio, workflows or activities; only `gcp/` may import google.
"""
