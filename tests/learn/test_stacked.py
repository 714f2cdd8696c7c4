"""Nets side by side are the nets one by one; sums in chunks are the sums."""

import pytest
import torch
from torch import nn

from surefoot.learn.chunks import LEAST, MOST, Chunks, added
from surefoot.learn.nets.stacked import StackedGRU, StackedLinear, stacked_mlp


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_stacked_mlps_are_mlps_one_by_one():
    nets = stacked_mlp([0, 1, 1], 4, (5,), 2, nn.Tanh, rng())
    x = torch.randn(3, 7, 4, generator=rng(1))
    found = nets(x)
    for k, g in enumerate([0, 1, 1]):
        first, _, last = nets
        wanted = torch.tanh(x[k] @ first.weight[g] + first.bias[g]) @ last.weight[g] + last.bias[g]
        assert torch.allclose(found[k], wanted, atol=1e-6)


def test_first_weights_have_the_variance_of_their_inputs():
    layer = StackedLinear([0, 1], 100, 200, rng())
    assert layer.weight.var().item() == pytest.approx(0.01, rel=0.03)
    assert (layer.bias == 0).all()


def test_a_stacked_gru_is_torchs_cell_and_its_loop_is_its_steps():
    gru = StackedGRU([0, 1], 3, 4, rng())
    with torch.no_grad():
        for p in gru.parameters():
            p.copy_(torch.randn(p.shape, generator=rng(2)) * 0.5)
    x = torch.randn(2, 6, 5, 3, generator=rng(3))
    h, states = torch.zeros(2, 6, 4), []
    for t in range(5):
        h = gru(x[:, :, t], h)
        states.append(h)
    assert torch.allclose(gru.along(x), torch.stack(states, 2), atol=1e-6)
    cell = nn.GRUCell(3, 4)
    with torch.no_grad():
        cell.weight_ih.copy_(gru.of_input.weight[1].T)
        cell.weight_hh.copy_(gru.of_state.weight[1].T)
        cell.bias_ih.copy_(gru.of_input.bias[1, 0])
        cell.bias_hh.copy_(gru.of_state.bias[1, 0])
    assert torch.allclose(gru(x[:, :, 0], torch.zeros(2, 6, 4))[1], cell(x[1, :, 0]), atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_come_back_in_their_order_and_their_sums_are_the_whole(threads):
    chunks = Chunks(threads)
    x = torch.arange(3000.0)
    parts = chunks.each(lambda c: [c.sum(), None], list(x.split(1000)))
    assert [p[0].item() for p in parts] == [499500.0, 1499500.0, 2499500.0]
    total, nothing = added(parts)
    assert total.item() == 2999 * 3000 / 2 and nothing is None


@pytest.mark.parametrize(
    ("rows", "threads", "count"), [(10, 2, 1), (LEAST, 2, 1), (2 * LEAST, 2, 2), (2 * LEAST, 1, 1), (3 * MOST, 2, 3)]
)
def test_a_batch_has_a_chunk_for_each_thread_where_rows_suffice_and_none_is_too_large(rows, threads, count):
    assert Chunks(threads).count(rows) == count
