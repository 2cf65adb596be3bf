"""A Ray program as its documentation writes it. Start it with `ray_cluster.py`."""

import ray

ray.init()


@ray.remote
def square(number: int) -> int:
    return number**2


total = sum(ray.get([square.remote(number) for number in range(100)]))
print(f"the sum on {len(ray.nodes())} nodes is {total}", flush=True)
