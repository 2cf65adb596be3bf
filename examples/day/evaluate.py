"""Prints the best learning rate for each data set, from the results of training jobs: python3
evaluate.py JOB…

In a job, `iris` is on the PATH and knows its cluster.
"""

import json
import pathlib
import subprocess
import sys

results = []
for job in sys.argv[1:]:
    subprocess.run(
        ["iris", "fetch", job, "-o", job, "--json"], check=True, stdout=subprocess.DEVNULL
    )
    results += [json.loads(path.read_text()) for path in pathlib.Path(job).rglob("result.json")]
for data in sorted({result["data"] for result in results}):
    best = min(
        (result for result in results if result["data"] == data), key=lambda result: result["loss"]
    )
    print(f"{data}: best lr {best['lr']}, loss {best['loss']}")
