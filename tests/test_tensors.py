"""Arrays in safetensors files: what was written comes back, and a header that lies is refused before it is parsed."""

import struct

import numpy as np
import pytest
from safetensors.numpy import save

from surefoot.errors import SurefootError
from surefoot.tensors import LONGEST_HEADER, parse_tensors

ARRAYS = {"w": np.arange(6.0).reshape(2, 3), "b": np.array([np.pi], np.float32), "n": np.array(7, np.int64)}


def test_arrays_come_back_with_every_bit_shape_and_type():
    found = parse_tensors(save(ARRAYS), "x")
    assert found.keys() == ARRAYS.keys()
    assert all(
        found[k].dtype == a.dtype and np.array_equal(found[k], a) and found[k].shape == a.shape
        for k, a in ARRAYS.items()
    )


@pytest.mark.parametrize("header", [1 << 62, LONGEST_HEADER + 1])
def test_a_header_that_is_longer_than_its_file_or_than_reason_is_refused_by_its_length(header):
    data = struct.pack("<Q", header) + b" " * (LONGEST_HEADER + 16)
    with pytest.raises(SurefootError, match=rf"^x: .*a header of {header} bytes in a file of {len(data)}"):
        parse_tensors(data, "x")


@pytest.mark.parametrize("cut", [0, 7, 8, 40, -1])
def test_a_file_that_was_cut_anywhere_is_refused_in_words(cut):
    with pytest.raises(SurefootError, match="^x: not a safetensors file"):
        parse_tensors(save(ARRAYS)[:cut], "x")
