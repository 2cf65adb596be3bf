"""A training loop that goes on from its last step when its host is taken away, when a job of higher
priority evicts it, and when its agent dies.

iris submit -- python3 examples/checkpointed.py 1000
"""

import json
import os
import pathlib
import sys
import time

steps = int(sys.argv[1])
state = pathlib.Path(os.environ["IRIS_CHECKPOINT_DIR"], "state.json")
step, weight = json.loads(state.read_text()) if state.exists() else (0, 0.0)
print(f"attempt {os.environ['IRIS_ATTEMPT']} starts after step {step}", flush=True)
while step < steps:
    step, weight = step + 1, weight + 0.01 * (3.0 - weight)
    time.sleep(0.1)
    new = state.with_suffix(".new")
    new.write_text(json.dumps([step, weight]))
    new.rename(state)  # whatever happens, the file is the old or the new one, never a part
    print(f"step {step}: weight {weight:.3f}", flush=True)
