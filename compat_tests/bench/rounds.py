"""Both sides by turns, several times: what a machine whose speed drifts needs for fair ratios."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

Figures = Mapping[str, float]
FiguresOfClients = Mapping[str, Figures]


def turns(kinds: Sequence[str], rounds: int) -> Iterator[str]:
    """Each kind once a round; every second round goes the other way, so that neither is always
    measured later.
    """
    for number in range(rounds):
        yield from kinds if number % 2 == 0 else reversed(kinds)


def medians(taken: Sequence[Figures]) -> dict[str, float]:
    """Of each figure that all rounds gave."""
    return {key: median(each[key] for each in taken) for key in taken[0] if _all(taken, key)}


def medians_of_clients(taken: Sequence[FiguresOfClients]) -> dict[str, dict[str, float]]:
    """The same for each client that all rounds measured."""
    clients = [client for client in taken[0] if _all(taken, client)]
    return {client: medians([each[client] for each in taken]) for client in clients}


def _all(taken: Sequence[Mapping[str, object]], key: str) -> bool:
    return all(key in each for each in taken)


class Rounds:
    """What each row gave in each round."""

    def __init__(self) -> None:
        self._rows: defaultdict[tuple[str, str], list[Figures]] = defaultdict(list)
        self._clients: defaultdict[tuple[str, str], list[FiguresOfClients]] = defaultdict(list)

    def row(self, name: str, kind: str, figures: Figures) -> Figures:
        """Keep one round's figures; returns the medians of all so far."""
        self._rows[name, kind].append(figures)
        return medians(self._rows[name, kind])

    def clients(self, name: str, kind: str, figures: FiguresOfClients) -> FiguresOfClients:
        """The same for a row that measures clients."""
        self._clients[name, kind].append(figures)
        return medians_of_clients(self._clients[name, kind])
