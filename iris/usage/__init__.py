"""Who used which machines, for how long, and what it cost. Pure: the records that the control plane
stores, prices, and the sums over both.
"""
