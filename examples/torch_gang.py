"""A PyTorch program on several hosts, as PyTorch documents it: `env://` reads address, rank and
size from the environment.

iris cluster start --local -d --hosts 2
iris submit --replicas 2 --gang-by zone --pip torch -- python3 examples/torch_gang.py

With two processes per task:

iris submit --replicas 2 --gang-by zone --pip torch -- torchrun --nproc_per_node 2 examples/torch_gang.py
"""

import os

import torch
import torch.distributed as dist

if torch.cuda.is_available():
    device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"])), "nccl"
else:
    device, backend = torch.device("cpu"), "gloo"

dist.init_process_group(backend, init_method="env://")
total = torch.tensor([dist.get_rank()], device=device)
dist.all_reduce(total)
print(
    f"process {dist.get_rank()} of {dist.get_world_size()}: the sum of the ranks is {total.item()}",
    flush=True,
)
dist.destroy_process_group()
