"""A Dask program as its documentation writes it. Start it with `dask_cluster.py`."""

from distributed import Client

with Client() as client:
    squares = client.map(lambda number: number**2, range(100))
    total = client.submit(sum, squares).result()
    print(f"the sum on {len(client.nthreads())} workers is {total}", flush=True)
