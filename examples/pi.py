"""Estimates pi in every task of a job: each task throws its own darts and prints its progress.

iris submit --replicas 2 -- python3 examples/pi.py
"""

import os
import random
import time

ROUNDS, DARTS = 5, 200_000

task, tasks = int(os.environ["IRIS_TASK_INDEX"]), int(os.environ["IRIS_NUM_TASKS"])
print(
    f"task {task} of {tasks}, attempt {os.environ['IRIS_ATTEMPT']}, on host"
    f" {os.environ['IRIS_HOST_ID']}"
)

darts = random.Random(task)
hits = 0
for number in range(1, ROUNDS + 1):
    hits += sum(darts.random() ** 2 + darts.random() ** 2 < 1 for _ in range(DARTS))
    time.sleep(0.4)  # so that `iris logs -f` has something to follow
    print(f"after {number * DARTS:,} darts: pi is about {4 * hits / (number * DARTS):.4f}")
