"""A JAX program on all hosts of a slice.

iris cluster start --local -d --tpu v4-16
iris submit --tpu v4-16 --pip jax -- python3 examples/jax_gang.py
"""

import os

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]))
ranks = multihost_utils.process_allgather(jax.numpy.array(jax.process_index()))
print(f"process {jax.process_index()} of {jax.process_count()}: the ranks of all are {sorted(map(int, ranks))}", flush=True)
