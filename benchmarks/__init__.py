"""Measures what Iris costs, as ratios to a floor: a bare workflow with one trivial activity, on the
same server in the same run.

python -m benchmarks [--quick] [NAME...]
"""
