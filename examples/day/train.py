"""Fits one number to a data set by gradient descent, and leaves the loss in the output directory of
its task.

The data set is a file of numbers in $DATA, a directory that every host can read.
"""

import argparse
import json
import os
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--data", required=True)
arguments = parser.parse_args()

numbers = [
    float(line) for line in pathlib.Path(os.environ["DATA"], arguments.data).read_text().split()
]
weight = 0.0
for step in range(1, 21):
    weight -= arguments.lr * 2 * sum(weight - number for number in numbers) / len(numbers)
    if step % 10 == 0:
        print(f"step {step} weight {weight:.4f}", flush=True)
loss = sum((weight - number) ** 2 for number in numbers) / len(numbers)
result = {"lr": arguments.lr, "data": arguments.data, "loss": round(loss, 4)}
pathlib.Path(os.environ["IRIS_OUTPUT_DIR"], "result.json").write_text(json.dumps(result) + "\n")
