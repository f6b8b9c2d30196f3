"""Properties of islands and cliques that hold for any matrix."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.machine.snapshot import Matrix
from dstui.machine.topology import islands, width

CELLS = st.sampled_from(["SYS", "PIX", "NV1", "NV2", "NV4"])


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Draw a symmetric matrix of up to nine GPUs."""
    count = draw(st.integers(1, 9))
    cells = {pair: draw(CELLS) for pair in combinations(range(count), 2)}
    return tuple(tuple("X" if i == j else cells[min(i, j), max(i, j)] for j in range(count)) for i in range(count))


@settings(max_examples=150, deadline=None)
@given(matrices())
def test_islands_are_connected_by_nvlink_and_cliques_are_complete(links: Matrix) -> None:
    found = islands(links, {})
    assert sorted(gpu for island in found for gpu in island.gpus) == list(range(len(links)))
    place = {gpu: number for number, island in enumerate(found) for gpu in island.gpus}
    for i, j in combinations(range(len(links)), 2):
        assert place[i] == place[j] or not width(links[i][j]), "a link never leaves its island"
    for island in found:
        for clique in island.cliques:
            assert set(clique) <= set(island.gpus)
            assert all(width(links[i][j]) for i, j in combinations(clique, 2))
            others = set(island.gpus) - set(clique)
            assert not any(all(width(links[other][i]) for i in clique) for other in others), "no larger clique holds it"
        widths = [width(links[i][j]) for i, j in combinations(island.gpus, 2) if width(links[i][j])]
        assert island.width == ((min(widths), max(widths)) if widths else None)
        assert (island.kind == "single") == (len(island.gpus) == 1)


@settings(max_examples=100, deadline=None)
@given(matrices(), st.data())
def test_refusal_between_two_gpus_never_enlarges_islands(links: Matrix, data: st.DataObject) -> None:
    count = len(links)
    refused = {pair for pair in combinations(range(count), 2) if data.draw(st.booleans())}
    status = tuple(
        tuple("X" if i == j else "NS" if (min(i, j), max(i, j)) in refused else "OK" for j in range(count)) for i in range(count)
    )
    before, after = islands(links, {}), islands(links, {"nvlink": status})
    assert all(any(set(island.gpus) <= set(whole.gpus) for whole in before) for island in after)


def test_rack_of_72_is_one_island_quickly() -> None:
    links = tuple(tuple("X" if i == j else "NV18" for j in range(72)) for i in range(72))
    (island,) = islands(links, {})
    assert island.kind == "NVSwitch" and island.clique == tuple(range(72))
