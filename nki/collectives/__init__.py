"""`nki.collectives`: exchanging tensors between ranks. One collective, one file, one class, as in `nki.isa`.

A rank is a logical core: both cores of `kernel[2]` belong to one rank. A process runs one rank, number 0; a replica
group with others is refused while staging. Read `collective.py` first, `all_reduce.py` is the shortest one.
"""

from __future__ import annotations

from nki.collectives.all_gather import all_gather
from nki.collectives.all_gather_v import all_gather_v
from nki.collectives.all_reduce import all_reduce
from nki.collectives.all_to_all import all_to_all
from nki.collectives.all_to_all_v import all_to_all_v
from nki.collectives.collective_permute import collective_permute
from nki.collectives.collective_permute_implicit import collective_permute_implicit
from nki.collectives.collective_permute_implicit_current_processing_rank_id import (
    collective_permute_implicit_current_processing_rank_id,
)
from nki.collectives.collective_permute_implicit_reduce import collective_permute_implicit_reduce
from nki.collectives.rank_id import rank_id
from nki.collectives.reduce_scatter import reduce_scatter
from nki.collectives.replica_group import ReplicaGroup

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
]
