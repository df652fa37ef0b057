"""Numbers of single tensors against plain ones, for every shape and for values of any size."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_record import histogram as plain_histogram
from torch import Tensor

from orchestrator.monitor import measures

SHAPES = [(), (0,), (1,), (7,), (0, 3), (3, 0), (4, 5), (2, 3, 4)]
quick = settings(max_examples=60, deadline=None)

TABLES = [(0, 3), (1, 1), (4, 5), (6, 2)]


@st.composite
def tensors(draw, shapes=SHAPES, lowest=-18, highest=18, bad=(), dtype=torch.float32):
    """Magnitudes between powers of ten, zeros, and what is in `bad`, in double precision."""
    shape = draw(st.sampled_from(shapes))
    exponents = st.floats(lowest, highest)
    values = st.builds(lambda e, sign: sign * 10.0**e, exponents, st.sampled_from([-1, 1]))
    element = st.one_of(values, st.just(0.0), *([st.sampled_from(bad)] if bad else []))
    flat = draw(st.lists(element, min_size=math.prod(shape), max_size=math.prod(shape)))
    return torch.tensor(flat, dtype=dtype).reshape(shape)


def length(values: Tensor) -> float:
    return math.sqrt(sum(value**2 for value in values.flatten().tolist()))


@quick
@given(st.lists(tensors(), min_size=1, max_size=4))
def test_norms_of_any_shape_and_size(given_tensors):
    expected = [length(t) for t in given_tensors]
    assert measures.norms(given_tensors).tolist() == pytest.approx(expected, rel=1e-5)


@quick
@given(
    st.lists(
        st.one_of(
            tensors(lowest=-4, highest=4),
            tensors(lowest=-4, highest=4, dtype=torch.float16),
            tensors(lowest=-4, highest=4, dtype=torch.bfloat16),
            tensors(lowest=-4, highest=4, dtype=torch.float64),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_norms_of_mixed_precisions(given_tensors):
    expected = [length(t) for t in given_tensors]
    assert measures.norms(given_tensors).tolist() == pytest.approx(expected, rel=1e-5)


@quick
@given(tensors(TABLES, -3, 3), st.data())
def test_norms_of_touched_rows(table, data):
    touched = torch.tensor(
        data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table))),
        dtype=torch.bool,
    )
    kept = [row.tolist() for row, counts in zip(table, touched.tolist(), strict=True) if counts]
    table[~touched] = math.nan  # is not looked at
    expected = math.sqrt(sum(v**2 for row in kept for v in row))
    assert measures.norms([table], {0: touched}).item() == pytest.approx(expected, rel=1e-5)


@quick
@given(tensors(TABLES, -3, 3), st.data())
def test_rows_of_a_sparse_gradient_are_summed(table, data):
    rows, width = table.shape
    named = data.draw(st.lists(st.integers(0, 8), min_size=rows, max_size=rows))
    sparse = torch.sparse_coo_tensor(
        torch.tensor([named], dtype=torch.long), table, (9, width), check_invariants=True
    )
    numbers, values = measures.summed_rows(sparse)
    assert len(numbers) == len(values) == rows
    found = torch.zeros(9, width)
    for number, row in zip(numbers.tolist(), values, strict=True):
        found[number] += row
    assert torch.allclose(found, sparse.to_dense(), rtol=1e-5, atol=1e-4)
    distinct = len(set(named))
    assert sorted(numbers[:distinct].tolist()) == sorted(set(named))  # each of them once
    assert not values[distinct:].any()


@quick
@given(tensors(bad=[math.nan, math.inf, -math.inf]))
def test_zeros_and_what_is_not_finite(tensor):
    values = tensor.flatten().tolist()
    share = measures.zero_share(tensor).item()
    if values:
        assert share == pytest.approx(sum(v == 0 for v in values) / len(values))
    else:
        assert math.isnan(share)
    assert measures.nonfinite(tensor).item() == sum(not math.isfinite(v) for v in values)


@quick
@given(tensors(TABLES), st.data())
def test_zeros_of_touched_rows(table, data):
    touched = measures.row_norms(table) != 0
    kept = [
        v
        for row, counts in zip(table.tolist(), touched.tolist(), strict=True)
        if counts
        for v in row
    ]
    share = measures.zero_share(table, touched).item()
    if kept:
        assert share == pytest.approx(sum(v == 0 for v in kept) / len(kept))
    else:
        assert math.isnan(share)


@quick
@given(st.sampled_from(SHAPES), st.data(), st.integers(-30, 30), st.integers(-30, 30))
def test_a_cosine_has_no_unit(shape, data, up, down):
    """Whatever the two are multiplied with, near to what single precision can hold."""
    first, second = (data.draw(tensors([shape], -3, 3, dtype=torch.float64)) for _ in range(2))
    first, second = (t.float() * 10.0**e for t, e in ((first, up), (second, down)))
    cosine = measures.cosine(first, second).item()
    a, b = (np.array(t.flatten().tolist()) for t in (first, second))
    if a.any() and b.any():
        a, b = a / np.abs(a).max(), b / np.abs(b).max()
        expected = a @ b / np.sqrt((a @ a) * (b @ b))
        assert cosine == pytest.approx(expected, abs=1e-5)
    else:
        assert math.isnan(cosine)


@quick
@given(
    st.one_of(
        tensors(lowest=-37, highest=37, bad=[math.nan, math.inf]),
        tensors(lowest=-300, highest=300, bad=[math.nan, -math.inf], dtype=torch.float64),
        tensors(lowest=-7, highest=4, bad=[math.nan, math.inf], dtype=torch.float16),
        tensors(lowest=-37, highest=37, bad=[math.nan, math.inf], dtype=torch.bfloat16),
    )
)
def test_histograms_of_any_shape_size_and_precision(tensor):
    assert measures.histogram(tensor).tolist() == plain_histogram(tensor)


@pytest.mark.parametrize("exponent", range(-45, 25))
def test_a_bin_holds_its_lower_edge_and_not_its_upper_one(exponent):
    edge = 2.0**exponent
    below, above = (torch.nextafter(torch.tensor(edge), torch.tensor(e)) for e in (0.0, math.inf))
    for value in (below, torch.tensor(edge), above, -above):
        assert measures.histogram(value).tolist() == plain_histogram(value)


@quick
@given(tensors([(4, 5), (6, 2), (1, 1)]), st.integers(1, 40))
def test_histograms_are_counted_in_pieces(tensor, chunk):
    touched = measures.row_norms(tensor) != 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "_CHUNK", chunk)
        assert measures.histogram(tensor).tolist() == plain_histogram(tensor)
        of_rows = measures.histogram(tensor, touched).tolist()
    assert of_rows == plain_histogram(tensor[touched])
