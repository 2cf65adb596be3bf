"""What Iris costs, as ratios against a floor: a bare workflow with one trivial activity, on the same server in the same run.

python -m benchmarks [--quick] [NAME...]
"""
