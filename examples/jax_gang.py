"""A JAX program on all hosts of a slice, as JAX documents it for TPU slices: `initialize()` has no
arguments.

iris cluster start --local -d --tpu v4-16
iris submit --tpu v4-16 --pip jax -- python3 examples/jax_gang.py

A simulated slice runs it on the CPU; on real chips, write `--pip 'jax[tpu]'`.
"""

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
ranks = multihost_utils.process_allgather(jax.numpy.array(jax.process_index()))
print(
    f"process {jax.process_index()} of {jax.process_count()}: the ranks of all are"
    f" {sorted(map(int, ranks))}",
    flush=True,
)
