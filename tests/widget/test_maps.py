"""Packed arrays of all heads: read back by numpy from their bytes."""

from __future__ import annotations

import base64
import gzip

import numpy as np
import pytest

from aotlens.widget import HeadMaps, pack, packed
from tests.widget.decoded import decoded, unpacked


@pytest.mark.parametrize("signed", [False, True])
def test_values_come_back_to_half_a_step_of_their_own_scale(signed: bool):
    values = np.random.default_rng(0).random((2, 3, 5, 5), dtype=np.float32) - (0.5 if signed else 0)
    values[..., 0] *= 1000  # what drowns the rest of one scale does not drown it here
    visible = np.random.default_rng(1).random((3, 5, 5)) < 0.8
    maps = HeadMaps(values=values, str_tokens=list("ab cd"), visible=visible)
    header, (steps, masks) = unpacked(pack(maps.header, maps.arrays))
    assert (masks.reshape(visible.shape) == visible).all() and header["masks"] == 3 and header["spaces"] == [2]
    assert header["signed"] is signed
    back, half = decoded(header, steps)
    seen = np.broadcast_to(visible, values.shape)
    assert (np.abs(back - values) <= half)[seen].all() and (back[~seen] == 0).all()


def test_a_string_is_the_same_bytes_and_never_two_of_them():
    maps = HeadMaps(
        values=np.ones((1, 1, 1, 1), np.float32), str_tokens=["</script>"], visible=np.ones((1, 1, 1), bool)
    )
    text = packed(maps.header, maps.arrays)
    assert gzip.decompress(base64.b64decode(text)) == pack(maps.header, maps.arrays)
    assert text == packed(maps.header, maps.arrays) and "<" not in text
