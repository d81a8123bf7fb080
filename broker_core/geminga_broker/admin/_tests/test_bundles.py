"""Calls with one bundle in the path: unload, split, delete, hash positions."""

from __future__ import annotations

import pytest
import trio

from geminga_broker.admin._tests.several_brokers import cluster_of
from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.loadbalance.model import BundleData, bundle_data_path, encode
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import encode as encode_record
from geminga_broker.ownership.records import owner_path, owner_record
from geminga_protocol.topic_name import TopicName

TOPICS = "/admin/v2/persistent/public/default"
SPACE = "/admin/v2/namespaces/public/default"
PARTS = f"{TOPICS}/p"


async def test_the_owner_unloads_a_bundle() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        bundle = second.service.ownership.owned()[0]
        path = f"{SPACE}/{bundle.range}/unload"
        assert (await first.ask("PUT", path)).location == (
            f"http://b1:8080{path}?authoritative=true"
        )
        assert (await second.ask("PUT", f"{path}?authoritative=true")).status == 204
        assert not second.service.ownership.holds(bundle)
        assert (await first.ask("PUT", path)).status == 204, "nobody owns it"


async def test_a_bundle_that_is_unloaded_for_a_broker() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        bundle = first.service.ownership.owned()[0]
        path = f"{SPACE}/{bundle.range}/unload"
        gone = await first.ask("PUT", f"{path}?destinationBroker=x:1")
        assert (gone.status, gone.json) == (
            409,
            {"reason": "Not allowed unload namespace bundle to inactive destination broker"},
        )
        assert first.service.ownership.holds(bundle)
        url = f"{path}?destinationBroker=http://b1:8080"
        assert (await first.ask("PUT", url)).status == 204
        assert not first.service.ownership.holds(bundle)
        del second


async def test_the_leader_remembers_where_another_brokers_bundle_goes() -> None:
    """A client's lookup may come before the next owner has it: the leader answers it."""
    async with cluster_of(3) as cluster:
        first, second, _third = cluster
        await cluster.share()
        bundle = second.service.ownership.owned()[0]
        path = f"{SPACE}/{bundle.range}/unload"
        await first.service.load_manager.choose(bundle)  # knows the brokers
        url = f"{path}?destinationBroker=b2:8080"
        assert (await second.ask("PUT", url)).status == 204
        assert first.asked == [f"PUT {path}?destinationBroker=b2%3A8080"]
        assert await first.service.load_manager.choose(bundle) == "b2:8080"


@pytest.mark.parametrize("answer", [PeerAnswer(409, b'{"reason": "no such"}'), None])
async def test_a_bundle_is_unloaded_also_if_the_leader_is_not_told(
    answer: PeerAnswer | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of() as cluster:
        second = cluster[1]
        await cluster.share()
        bundle = second.service.ownership.owned()[0]

        async def call(*_given: object, **_named: object) -> PeerAnswer:
            await trio.lowlevel.checkpoint()
            if answer is None:
                raise PeerUnreachable("no such")
            return answer

        setattr(second.service.peers, "call", call)  # noqa: B010 - in place of HTTP calls
        url = f"{SPACE}/{bundle.range}/unload?destinationBroker=b0:8080"
        assert (await second.ask("PUT", url)).status == 204
        assert not second.service.ownership.holds(bundle)
        assert f"bundle={bundle} may not go to broker b0:8080: no such" in caplog.messages


async def test_deletion_of_an_empty_bundle() -> None:
    async with cluster_of() as cluster:
        first = cluster[0]
        await cluster.share()
        name = await cluster.topic_of(first)
        topic = TopicName.parse(f"persistent://public/default/{name}")
        bundle = await first.service.namespaces.bundle_of(topic)
        path = f"{SPACE}/{bundle.range}"
        assert (await first.ask("DELETE", path)).status == 204
        unowned = await first.ask("DELETE", path)
        assert (unowned.status, unowned.json) == (
            412,
            {"reason": f"Failed to find ownership for ServiceUnit:{bundle}"},
        )
        await first.own(bundle)
        assert (await first.ask("PUT", f"{TOPICS}/{name}")).status == 204
        refused = await first.ask("DELETE", path)
        assert (refused.status, refused.json) == (
            409,
            {"reason": "Cannot delete non empty bundle"},
        )


async def test_hash_positions() -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        await cluster.share()
        assert (await first.ask("PUT", f"{TOPICS}/t1")).status == 204
        assert (await first.ask("PUT", f"{PARTS}/partitions", 2)).status == 204
        hashes: dict[str, int] = {}
        for bundle in await cluster.bundles():
            found = (await first.ask("GET", f"{SPACE}/{bundle.range}/topicHashPositions")).json
            assert isinstance(found, dict)
            assert (found["namespace"], found["bundle"]) == ("public/default", bundle.range)
            low, end = bundle.bounds
            assert all(low <= at < end for at in found["topicHashPositions"].values())
            hashes |= found["topicHashPositions"]
            asked = "topics=persistent%3A%2F%2Fpublic%2Fdefault%2Fp&topics=x"
            some = (
                await first.ask("GET", f"{SPACE}/{bundle.range}/topicHashPositions?{asked}")
            ).json
            assert isinstance(some, dict)
            assert all("/p-partition-" in name for name in some["topicHashPositions"])
        assert sorted(name.rpartition("/")[2] for name in hashes) == [
            "p-partition-0",
            "p-partition-1",
            "t1",
        ]


@pytest.mark.slow
async def test_the_leader_remembers_where_an_apache_brokers_bundle_goes() -> None:
    """Its owner has no way to hand it over, and would send a call with a destination back."""
    async with cluster_of(3) as cluster:
        first, second, _third = cluster
        bundle = (await cluster.bundles())[0]
        apache = Addresses("pulsar://apache:6650", "http://apache:8080")
        store = first.service.store
        record = b'{"webServiceUrl":"http://apache:8080","brokerVersionString":"4.0.7"}'
        await store.put("/loadbalance/brokers/apache:8080", record)
        await store.put(owner_path(bundle), encode_record(owner_record(apache, {})))
        await first.service.load_manager.choose((await cluster.bundles())[1])  # knows the brokers
        path = f"{SPACE}/{bundle.range}/unload"
        asked = f"{path}?destinationBroker=b2:8080"
        reply = await second.ask("PUT", asked)
        assert reply.location == f"http://b0:8080{asked}&authoritative=false"
        reply = await first.ask("PUT", f"{asked}&authoritative=false")
        assert reply.location == f"http://apache:8080{path}?authoritative=true"
        await store.delete(owner_path(bundle))
        assert await first.service.load_manager.choose(bundle) == "b2:8080"


class TestSplit:
    """Splits of one bundle of four."""

    async def test_by_range(self) -> None:
        async with cluster_of() as cluster:
            first, second = cluster
            await cluster.share()
            bundle = second.service.ownership.owned()[0]
            path = f"{SPACE}/{bundle.range}/split"
            moved = await first.ask("PUT", path)
            assert moved.location == f"http://b1:8080{path}?authoritative=true"
            assert (await second.ask("PUT", path)).status == 204
            found = (await first.ask("GET", f"{SPACE}/bundles")).json
            assert isinstance(found, dict)
            assert found["numBundles"] == 5
            low, end = bundle.bounds
            middle = BundleId("public/default", f"0x{low:08x}_0x{(low + end) // 2:08x}")
            assert second.service.ownership.holds(middle), "its parts stay where they are"
            assert (await second.ask("PUT", f"{path}?unload=true")).status == 412, "it is gone"
            path = f"{SPACE}/{middle.range}/split?unload=true"
            assert (await second.ask("PUT", path)).status == 204
            assert not second.service.ownership.holds(middle)

    async def test_the_largest(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            await cluster.share()
            path = f"{SPACE}/LARGEST/split?splitAlgorithmName=topic_count_equally_divide"
            missing = await first.ask("PUT", path)
            assert (missing.status, missing.json) == (
                404,
                {"reason": "Bundle range LARGEST not found"},
            )
            assert (await first.ask("PUT", f"{PARTS}/partitions", 40)).status == 204
            names = await first.service.catalog.persistent("public/default")
            bundles = await first.service.namespaces.bundles("public/default")
            counts = [list(map(bundles.of_topic, names)).count(name) for name in bundles.names()]
            assert (await first.ask("PUT", path)).status == 204
            after = await first.service.namespaces.bundles("public/default")
            (new,) = set(after.boundaries) - set(bundles.boundaries)
            index = after.boundaries.index(new) - 1
            assert counts[index] == max(counts)
            parts = [list(map(after.of_topic, names)).count(name) for name in after.names()]
            assert abs(parts[index] - max(counts) / 2) <= 1

    async def test_the_hottest(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            await cluster.share()
            missing = await first.ask("PUT", f"{SPACE}/HOT/split")
            assert (missing.status, missing.json) == (404, {"reason": "Bundle range HOT not found"})
            for number, bundle in enumerate(await cluster.bundles()):
                data = BundleData(topics=int(number != 3))
                data.long_term_data.msg_throughput_in = float(number)
                await first.service.store.put(bundle_data_path(str(bundle)), encode(data))
            assert (await first.ask("PUT", f"{SPACE}/HOT/split")).status == 204
            after = await first.service.namespaces.bundles("public/default")
            assert after.boundaries[3] == 0xA0000000, "the last one has no topics"

    async def test_at_positions(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            await cluster.share()
            assert (await first.ask("PUT", f"{PARTS}/partitions", 40)).status == 204
            bundle = (await cluster.bundles())[1]
            query = "splitAlgorithmName=specified_positions_divide"
            path = f"{SPACE}/{bundle.range}/split?{query}"
            empty = await first.ask("PUT", path)
            assert (empty.status, empty.json) == (
                412,
                {
                    "reason": "With specified_positions_divide split algorithm, splitBoundaries "
                    "must not be empty"
                },
            )
            cuts = [0x50000000, 0x48000000, 1]
            assert (await first.ask("PUT", path, cuts)).status == 204
            after = await first.service.namespaces.bundles("public/default")
            assert {0x50000000, 0x48000000} <= set(after.boundaries)
            assert len(after.boundaries) == 7

    async def test_one_that_is_split_already(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            await cluster.share()
            bundle = (await cluster.bundles())[0]
            path = f"{SPACE}/{bundle.range}/split"
            with first.service.unloader.keep([bundle]):
                reply = await first.ask("PUT", path)
            assert (reply.status, reply.json) == (
                412,
                {"reason": f"bundle {bundle} is being split"},
            )
            assert (await first.ask("PUT", path)).status == 204

    @pytest.mark.parametrize("query", ["splitAlgorithmName=nope", "splitAlgorithmName=%20x"])
    async def test_unknown_algorithms(self, query: str) -> None:
        async with cluster_of(1) as cluster:
            await cluster.share()
            bundle = (await cluster.bundles())[0]
            reply = await cluster[0].ask("PUT", f"{SPACE}/{bundle.range}/split?{query}")
            assert (reply.status, reply.json) == (
                412,
                {
                    "reason": "Unsupported namespace bundle split algorithm, supported algorithms "
                    "are [range_equally_divide, topic_count_equally_divide, "
                    "specified_positions_divide, flow_or_qps_equally_divide]"
                },
            )
