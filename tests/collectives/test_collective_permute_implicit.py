"""`collective_permute_implicit`: a ring of one rank; channels (semantics rule 139)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import nki.collectives as ncc
from nki import errors
from tests.collectives.single_rank import ALONE, X, hbm, load, noted, refused, run, sbuf, store


def shift(channels: int, ids: Any = None) -> Any:
    def kernel(x):
        outs = [hbm(x.shape) for _ in range(channels)]
        given = {} if ids is None else {"channel_ids": ids}
        ncc.collective_permute_implicit([[x]] * channels, [[out] for out in outs], ALONE, **given)
        return tuple(outs)

    return kernel


def test_signature_is_the_documented_one() -> None:
    parameters = inspect.signature(ncc.collective_permute_implicit).parameters
    assert list(parameters) == [
        *("srcs_by_channel", "dsts_by_channel", "replica_group", "channel_ids", "priority", "name")
    ]
    assert parameters["channel_ids"].default == [0]


@pytest.mark.parametrize(("channels", "ids"), [(1, None), (1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3])])
def test_one_rank_gets_its_own(channels: int, ids: Any) -> None:
    for found in run(shift(channels, ids), X):
        np.testing.assert_array_equal(found, X)


def test_tiles() -> None:
    def kernel(x):
        out = sbuf(x.shape)
        ncc.collective_permute_implicit(
            srcs_by_channel=[[load(x)]], dsts_by_channel=[[out]], replica_group=ALONE, name="shift"
        )
        return store(out)

    np.testing.assert_array_equal(run(kernel, X), X)


@pytest.mark.parametrize(("channels", "ids"), [(2, None), (2, [1, 0]), (1, [1]), (2, [0, 2]), (1, [0, 1])])
def test_channels_are_counted_from_0(channels: int, ids: Any) -> None:
    refused(shift(channels, ids), errors.ArgumentError, "channels are counted from 0")


def test_channels_are_few() -> None:
    refused(shift(5, [0, 1, 2, 3, 4]), errors.LimitError, "up to 4 channels")
    wired = "collective_permute_implicit: a ring that does not contain all devices of a node has 2 channels"
    assert ("note", wired) not in noted(shift(2, [0, 1]))
    assert ("note", wired) in noted(shift(3, [0, 1, 2]))


def test_a_channel_has_a_list_of_one_tensor() -> None:
    def flat(x):
        ncc.collective_permute_implicit([x], [hbm(x.shape)], ALONE)
        return x

    def several(x):
        ncc.collective_permute_implicit([[x, x]], [[hbm(x.shape)]], ALONE)
        return x

    def none(x):
        ncc.collective_permute_implicit([], [], ALONE)
        return x

    refused(flat, errors.ArgumentError, "a list of exactly one tensor for each channel")
    refused(several, errors.ArgumentError, "a list of exactly one tensor for each channel")
    refused(none, errors.ArgumentError, "a list of exactly one tensor for each channel")


def test_sizes() -> None:
    def kernel(x):
        ncc.collective_permute_implicit([[x]], [[hbm((4, 4))]], ALONE)
        return x

    refused(kernel, errors.OperandShapeError, "one size")


def test_number_of_channels_is_no_parameter() -> None:
    def kernel(x):
        ncc.collective_permute_implicit([[x]], [[hbm(x.shape)]], ALONE, num_channels=1)
        return x

    refused(kernel, errors.UnknownKeywordError, "num_channels")
