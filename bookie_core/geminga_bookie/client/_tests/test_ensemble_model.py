"""A seeded life of a ledger whose bookies fail, hang and come back while it is written, whose
metadata store loses answers, and that another client recovers in between or afterwards, with as
many bookies lost for good as the ack quorum allows."""

from __future__ import annotations

import random

import pytest
import trio

from geminga_bookie.client._tests.cluster import DISK, Cluster, Heard, Peer, append, drawn
from geminga_bookie.client.api import LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError
from geminga_protocol._tests.rounds import rounds
from geminga_runtime._tests.scheduling import scheduled_by
from geminga_runtime.metadata.api import MetadataError


class Life:
    """One ledger."""

    def __init__(self, chance: random.Random, nursery: trio.Nursery) -> None:
        self.chance = chance
        self.sizes = drawn(chance)
        self.cluster = Cluster(self.sizes[0] + chance.randint(0, 3), nursery)
        self.heard = Heard()

    async def write(self, writer: LedgerWriter) -> None:
        """Append while things happen to bookies and store."""
        chance, cluster = self.chance, self.cluster
        for _ in range(chance.randint(2, 15)):
            append(writer, chance.randint(1, 4), self.heard)
            peer = chance.choice(cluster.peers)
            kind = chance.randrange(10)
            if kind == 0:
                peer.failure = DISK
            elif kind == 1:
                peer.failure = None
            elif kind == 2:
                peer.held = [] if peer.held is None else peer.held
            elif kind == 3 and peer.held is not None:
                self.fail_held(peer)
            elif kind == 4 and peer.held is not None:
                peer.release()
            elif kind == 5:
                cluster.store.outcomes.append(chance.random() < 0.5)
            elif kind == 6:
                self.join()
            await trio.sleep(chance.choice((0, 0, 0, 0.01, 1, 20)))

    def join(self) -> None:
        """A new bookie."""
        late = Peer(f"c{len(self.cluster.peers)}:3181")
        self.cluster.peers.append(late)
        self.cluster.directory.join(late)

    def fail_held(self, peer: Peer) -> None:
        """The connection is lost, with all answers that were under way; adds were executed."""
        held, peer.held = peer.held or [], None
        for done, first, count, _ in held:
            done(first, count, DISK)

    async def time_out(self) -> None:
        """Nobody waits for an answer for ever."""
        while True:
            await trio.sleep(10)
            for peer in self.cluster.peers:
                if peer.held:
                    self.fail_held(peer)

    async def recover(self, ledger_id: int) -> LedgerReader:
        """Until it succeeds."""
        while True:
            try:
                return await self.cluster.client.open(ledger_id, b"", recover=True)
            except (BookkeeperError, MetadataError):
                await trio.sleep(1)
                for peer in self.cluster.peers:
                    peer.failure = None

    async def lose(self, ledger_id: int) -> None:
        """As many bookies are away from now on as an ack quorum can lose, and no answers come that
        were under way."""
        metadata = await self.cluster.client.metadata(ledger_id)
        for peer in self.cluster.peers:
            peer.failure, peer.held = None, None
        lost = self.chance.randint(0, self.sizes[2] - 1)
        ensemble = metadata.ensembles[max(metadata.ensembles)]
        for bookie_id in self.chance.sample(list(ensemble), lost):
            self.cluster.peer(bookie_id).is_gone = True
            self.join()

    async def check(self, reader: LedgerReader) -> None:
        """What was confirmed is there, and all is on ack quorums where the metadata says."""
        last = reader.last_add_confirmed
        assert last >= self.heard.confirmed - 1, "what was confirmed is lost"
        metadata = await self.cluster.client.metadata(reader.ledger_id)
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, last)
        for peer in self.cluster.peers:
            peer.is_gone = False
        self.cluster.check_copies(metadata, last, metadata.ack_quorum)
        for entry_id in range(last + 1):
            ensemble = ensemble_of(metadata.ensembles, entry_id)
            assert len(set(ensemble)) == len(ensemble)
            for place in write_set(entry_id, *self.sizes[:2]):
                ledger = self.cluster.peer(ensemble[place])._ledgers.get(reader.ledger_id)
                packet = ledger.entries.get(entry_id) if ledger is not None else None
                assert packet is None or packet.endswith(b"%d" % entry_id)
        if last >= 0:
            found = [bytes(each) for each in await reader.read(0, last)]
            assert found == [b"%d" % n for n in range(last + 1)]


@pytest.mark.parametrize("seed", range(rounds(400)))
async def test_a_life(seed: int, autojump_clock: object) -> None:
    chance = random.Random(seed)
    with scheduled_by(chance):
        async with trio.open_nursery() as nursery:
            life = Life(chance, nursery)
            nursery.start_soon(life.time_out)
            writer = (await life.cluster.writer(*life.sizes))[0]
            how = chance.randrange(3)
            async with trio.open_nursery() as writing:
                writing.start_soon(life.write, writer)
                if how == 0:
                    await trio.sleep(chance.choice((0.01, 1, 5, 20)))
                    await life.recover(writer.ledger_id)
            if how == 1:
                life.cluster.store.outcomes.clear()
                await writer.close()
            life.cluster.store.outcomes.clear()
            await life.lose(writer.ledger_id)
            reader = await life.recover(writer.ledger_id)
            await trio.sleep(100)
            await life.check(reader)
            nursery.cancel_scope.cancel()
