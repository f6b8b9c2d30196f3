"""Interpret links: the pair matrix in the form of `nvidia-smi topo -m`, and the islands that NVLink forms.

Pure functions on the snapshot's types. Two GPUs are joined if their matrix cell is NV# in both directions, no peer-to-peer status between
them is a definite no, neither is lost, and, if the path leads through NVSwitches, the fabric has not failed on either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from dstui.machine.snapshot import Gpu, Island, Kind, Matrix, NvLink, Unknown

Pair = tuple[int, int]
Joined = Callable[[int, int], bool]

REFUSALS = frozenset({"CNS", "GNS", "TNS", "DR", "NS"})
"""Peer-to-peer statuses that mean no. U only means unknown."""
NEEDED_P2P = ("read", "write", "nvlink")
MAX_LINKS = 18
"""No GPU has more NVLinks: a matrix row with a greater sum can only come from a switch."""
NO_ANSWER = "?"
SOME_LINKS = "NV?"
"""A matrix cell: NVLink joins the two, with an unknown number of links."""


def link_matrix(gpus: Sequence[Gpu], ancestors: Mapping[Pair, str]) -> Matrix:
    """Return NV# if NVLink joins two GPUs, else the name of their nearest common ancestor (`ancestors`, by i < j), else ?."""

    def cell(i: int, j: int) -> str:
        if i == j:
            return "X"
        width = _direct(gpus[i], gpus[j]) + min(_switched(gpus[i]), _switched(gpus[j]))
        return f"NV{width}" if width else ancestors.get((min(i, j), max(i, j)), NO_ANSWER)

    size = range(len(gpus))
    return tuple(tuple(cell(i, j) for j in size) for i in size)


def _direct(gpu: Gpu, other: Gpu) -> int:
    """Return the number of active direct links from one GPU to another."""
    if isinstance(gpu.nvlink, Unknown) or isinstance(other.bus_id, Unknown):
        return 0
    return gpu.nvlink.peers.get(other.bus_id, 0)


def _switched(gpu: Gpu) -> int:
    return gpu.nvlink.switched if isinstance(gpu.nvlink, NvLink) else 0


def width(cell: str) -> int:
    """Return the number of links in a matrix cell: 12 for NV12, 0 for SYS; for NV? the minimum, 1."""
    if cell == SOME_LINKS:
        return 1
    return int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0


def fabric_failed(gpu: Gpu) -> bool:
    """Return whether NVSwitch traffic of this GPU cannot work because its fabric is not up or has failed."""
    fabric = gpu.fabric
    if isinstance(fabric, Unknown):
        return False
    ended_badly = fabric.state == "completed" and isinstance(fabric.status, int) and fabric.status != 0
    return ended_badly or fabric.state in ("not started", "in progress")


def islands(links: Matrix, p2p: Mapping[str, Matrix], gpus: Sequence[Gpu] = ()) -> tuple[Island, ...]:
    """Return the sets of GPUs joined by working NVLink, directly or through each other, ordered by their lowest index."""
    switched = _behind_switch(links, gpus)
    failed = {gpu.index for gpu in gpus if gpu.problem or (gpu.index in switched and fabric_failed(gpu))}

    def joined(i: int, j: int) -> bool:
        if not (width(links[i][j]) and width(links[j][i])) or ({i, j} & failed):
            return False
        return not any(p2p[kind][i][j] in REFUSALS or p2p[kind][j][i] in REFUSALS for kind in NEEDED_P2P if kind in p2p)

    return tuple(_island(members, links, joined, switched, gpus) for members in _components(len(links), joined))


def _behind_switch(links: Matrix, gpus: Sequence[Gpu]) -> set[int]:
    """Return the GPUs whose links end in NVSwitches, from NVML or implied by the matrix alone."""
    if any(isinstance(gpu.nvlink, NvLink) and (gpu.nvlink.switched or gpu.nvlink.peers) for gpu in gpus):
        return {gpu.index for gpu in gpus if _switched(gpu)}
    sums = [sum(width(cell) for cell in row) for row in links]
    return {i for i, total in enumerate(sums) if total > MAX_LINKS or any(width(cell) == MAX_LINKS for cell in links[i])}


def _components(count: int, joined: Joined) -> list[tuple[int, ...]]:
    left, found = list(range(count)), []
    while left:
        reached, ahead = [], [left.pop(0)]
        while ahead:
            here = ahead.pop()
            reached.append(here)
            near = [other for other in left if joined(here, other)]
            left = [other for other in left if other not in near]
            ahead += near
        found.append(tuple(sorted(reached)))
    return found


def _island(members: tuple[int, ...], links: Matrix, joined: Joined, switched: set[int], gpus: Sequence[Gpu]) -> Island:
    widths = [min(width(links[i][j]), width(links[j][i])) for i, j in combinations(members, 2) if joined(i, j)]
    if not widths:
        return Island(gpus=members, cliques=(members,))
    cliques = _largest_cliques(members, links, joined)
    speeds = [g.nvlink.speed for g in gpus if g.index in members and isinstance(g.nvlink, NvLink) and isinstance(g.nvlink.speed, int)]
    bandwidth = min(widths) * min(speeds) if speeds else Unknown("the links' speed is unknown")
    kind = _kind(members, joined, bool(switched & set(members)), cliques)
    if any(links[i][j] == SOME_LINKS for i, j in combinations(members, 2)):
        return Island(gpus=members, kind=kind, cliques=cliques, bandwidth=Unknown("the number of links between them is unknown"))
    return Island(gpus=members, kind=kind, cliques=cliques, width=(min(widths), max(widths)), bandwidth=bandwidth)


def _kind(members: tuple[int, ...], joined: Joined, switched: bool, cliques: tuple[tuple[int, ...], ...]) -> Kind:
    size = len(members)
    if switched:
        return "NVSwitch"
    if size == 2:
        return "pair"
    if len(cliques[0]) == size:
        return "mesh"
    degrees = {sum(joined(i, j) for j in members if j != i) for i in members}
    if degrees == {2}:
        return "ring"
    halves = [clique for clique in cliques if len(clique) == 4]
    if size == 8 and degrees == {4} and any(not set(a) & set(b) for a, b in combinations(halves, 2)):
        return "hybrid cube mesh"
    return "partial mesh"


def _largest_cliques(members: tuple[int, ...], links: Matrix, joined: Joined) -> tuple[tuple[int, ...], ...]:
    """Return all cliques of the greatest size: most links first, then by indices."""
    found = _maximal_cliques(members, joined)
    size = max(len(clique) for clique in found)

    def rank(clique: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return -sum(width(links[i][j]) for i, j in combinations(clique, 2)), clique

    return tuple(sorted((clique for clique in found if len(clique) == size), key=rank))


def _maximal_cliques(members: tuple[int, ...], joined: Joined) -> list[tuple[int, ...]]:
    """Find maximal cliques by Bron and Kerbosch's algorithm with a pivot, instant even for the 72 GPUs of a rack."""
    near = {i: {j for j in members if j != i and joined(i, j)} for i in members}
    found: list[tuple[int, ...]] = []

    def extend(clique: set[int], candidates: set[int], excluded: set[int]) -> None:
        if not candidates and not excluded:
            found.append(tuple(sorted(clique)))
            return
        pivot = max(candidates | excluded, key=lambda i: len(near[i] & candidates))
        for i in sorted(candidates - near[pivot]):
            extend(clique | {i}, candidates & near[i], excluded & near[i])
            candidates = candidates - {i}
            excluded = excluded | {i}

    extend(set(), set(members), set())
    return found
