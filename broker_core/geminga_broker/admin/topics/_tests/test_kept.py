"""What topics keep, over REST: properties, policies that are only stored, the replication of
subscriptions, and places within a batch.
"""

from __future__ import annotations

import pytest
import trio

from geminga_broker.admin.namespaces._tests.test_kept import Admin, admin
from geminga_broker.admin.topics.subscriptions import ResetCursorData
from geminga_protocol.ids import Position

D = "/admin/v2/persistent/public/default"
T = D + "/t"
PROPS = T + "/properties"
COPIES = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
OFFLOAD = {"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b"}
REPLICATED = T + "/subscription/s/replicatedSubscriptionStatus"


async def _made(at: Admin, properties: object = None) -> None:
    await at.done("PUT", T, properties)


async def test_a_new_topic_keeps_its_properties() -> None:
    async with admin() as at:
        await _made(at, {"a": "1"})
        assert await at.ask("GET", PROPS) == (200, {"a": "1"})
        await at.done("PUT", PROPS, {"b": "2"})
        await at.done("PUT", T + "/unload")
        assert await at.ask("GET", PROPS) == (200, {"a": "1", "b": "2"})
        await at.done("DELETE", PROPS, query="key=a")
        await at.done("PUT", T + "/unload")
        assert await at.ask("GET", PROPS) == (200, {"b": "2"})


async def test_partitions_keep_theirs_in_their_record() -> None:
    async with admin() as at:
        await at.done("PUT", T + "/partitions", {"partitions": 2, "properties": {"a": "1"}})
        await at.done("PUT", PROPS, {"b": "2"})
        both = {"a": "1", "b": "2"}
        assert await at.ask("GET", PROPS) == (200, both)
        _, told = await at.ask("GET", T + "/partitions")
        assert isinstance(told, dict)
        assert (told["partitions"], told["properties"]) == (2, both)
        await at.done("POST", T + "/partitions", 3)
        assert await at.ask("GET", PROPS) == (200, both)


@pytest.mark.parametrize("name", ["geminga.x", "index", "pulsar.topic.epoch"])
async def test_the_brokers_own_properties_are_refused(name: str) -> None:
    async with admin() as at:
        assert (await at.ask("PUT", T, {name: "1"}))[0] == 412
        parts = {"partitions": 2, "properties": {name: "1"}}
        assert (await at.ask("PUT", T + "/partitions", parts))[0] == 412
        await _made(at)
        assert (await at.ask("PUT", PROPS, {name: "1"}))[0] == 412
        assert (await at.ask("DELETE", PROPS, query=f"key={name}"))[0] == 412
        assert await at.ask("GET", PROPS) == (200, {})


async def test_properties_are_few() -> None:
    async with admin() as at:
        await _made(at)
        for start in range(0, 5000, 50):
            given = {f"p{start + step}": "v" for step in range(50)}
            status, _ = await at.ask("PUT", PROPS, given)
            if status != 204:
                break
        assert status == 412


async def test_a_missing_topic_has_none() -> None:
    async with admin() as at:
        for method, body in (("GET", None), ("PUT", {"a": "b"}), ("DELETE", None)):
            assert (await at.ask(method, PROPS, body, "key=a"))[0] == 404
        passing = "/admin/v2/non-persistent/public/default/t/properties"
        assert (await at.ask("GET", passing))[0] == 406


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        ("persistence", COPIES, {**COPIES, "managedLedgerMaxMarkDeleteRate": 0.0}),
        ("replication", ["standalone"], ["standalone"]),
    ],
)
async def test_a_policy_is_kept_until_it_is_removed(path: str, body: object, shown: object) -> None:
    async with admin() as at:
        await _made(at)
        one = f"{T}/{path}"
        assert await at.ask("GET", one) == (200, "")
        await at.done("POST", one, body)
        assert await at.ask("GET", one) == (200, shown)
        await at.done("DELETE", one)
        assert await at.ask("GET", one) == (200, "")
        await at.done("POST", one, body)
        await at.done("DELETE", T + "/policies")
        assert await at.ask("GET", one) == (200, "")
        assert (await at.ask("POST", f"{D}/missing/{path}", body))[0] == 404


async def test_offload_policies_say_what_their_driver_is() -> None:
    async with admin() as at:
        await _made(at)
        await at.done("POST", T + "/offloadPolicies", OFFLOAD)
        _, told = await at.ask("GET", T + "/offloadPolicies")
        assert isinstance(told, dict)
        assert (told["s3Driver"], told["gcsDriver"]) == (True, False)
        assert told["s3ManagedLedgerOffloadBucket"] == "b"
        for bad in ({"managedLedgerOffloadDriver": "nope"}, None):
            assert (await at.ask("POST", T + "/offloadPolicies", bad))[0] == 412


async def test_what_holds_without_a_policy() -> None:
    async with admin() as at:
        await _made(at)
        status, told = await at.ask("GET", T + "/persistence", query="applied=true")
        assert status == 200
        assert isinstance(told, dict)
        assert set(COPIES) < set(told)
        pause = T + "/dispatcherPauseOnAckStatePersistent"
        assert await at.ask("GET", pause) == (200, False)
        await at.done("POST", pause)
        assert await at.ask("GET", pause) == (200, True)


@pytest.mark.parametrize(
    "body",
    [
        {"bookkeeperEnsemble": 6, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1},
        {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1},
        None,
    ],
)
async def test_copies_that_cannot_be_are_refused(body: object) -> None:
    async with admin() as at:
        await _made(at)
        assert (await at.ask("POST", T + "/persistence", body))[0] == 400


async def test_a_topics_own_copies_hold_for_later_ledgers() -> None:
    async with admin() as at:
        await _made(at)
        before = await at.quorums()
        await at.done("POST", T + "/persistence", COPIES)
        assert await at.quorums() == before
        await at.done("PUT", T + "/unload")
        await at.ask("GET", T + "/stats")
        assert await at.quorums() == (1, 1, 1)


async def test_what_nothing_here_would_do_is_refused() -> None:
    async with admin() as at:
        await _made(at)
        service = at.service
        other = "/admin/v2/clusters/far"
        await at.done("PUT", other, {"serviceUrl": "http://far:8080"})
        tenant = {"adminRoles": [], "allowedClusters": ["standalone", "far"]}
        await at.done("POST", "/admin/v2/tenants/public", tenant)
        assert (await at.ask("POST", T + "/replication", ["standalone", "far"]))[0] == 501
        await at.done("PUT", D + "/shadow")
        shadows = ["persistent://public/default/shadow"]
        assert (await at.ask("PUT", T + "/shadowTopics", shadows))[0] == 501
        given = {"PULSAR.SHADOW_SOURCE": "persistent://public/default/t"}
        assert (await at.ask("PUT", D + "/new", given))[0] == 501
        assert "persistent://public/default/new" not in service.topics.loaded


async def test_offloading_fails_as_without_an_offloader() -> None:
    async with admin() as at:
        await _made(at)
        _, told = await at.ask("GET", T + "/offload")
        assert isinstance(told, dict)
        assert told["status"] == "NOT_RUN"
        await at.done("PUT", T + "/offload", {"ledgerId": 9, "entryId": 0})
        _, told = await at.ask("GET", T + "/offload")
        assert isinstance(told, dict)
        assert (told["status"], "NullLedgerOffloader" in told["lastError"]) == ("ERROR", True)


async def test_a_subscription_stays_replicated() -> None:
    async with admin() as at:
        await _made(at)
        await at.done("PUT", T + "/subscription/s", query="replicated=true")
        topic = "persistent://public/default/t"
        for value in (True, False):
            await at.done("POST", REPLICATED, value)
            await at.done("PUT", T + "/unload")
            assert await at.ask("GET", REPLICATED) == (200, {topic: value})
        missing = REPLICATED.replace("/s/", "/no/")
        assert (await at.ask("GET", missing))[0] == 404
        assert (await at.ask("POST", missing, True))[0] == 404


async def test_what_is_stored_of_a_topic() -> None:
    async with admin() as at:
        await _made(at, {"a": "1"})
        await at.done("PUT", T + "/subscription/s")
        status, told = await at.ask("GET", T + "/internal-info")
        assert status == 200
        assert isinstance(told, dict)
        assert told["properties"] == {"a": "1"}
        assert set(told["cursors"]) == {"s"}
        assert (await at.ask("GET", D + "/missing/internal-info"))[0] == 404
        assert (await at.ask("GET", T + "/backlog"))[0] == 200


@pytest.mark.parametrize(
    ("batch_index", "excluded", "size", "expected"),
    [
        (-1, False, 4, (Position(1, 2), ())),
        (-1, True, 0, (Position(1, 3), ())),
        (0, False, 4, (Position(1, 2), ())),
        (3, True, 4, (Position(1, 3), ())),
        (9, False, 4, (Position(1, 2), ())),
    ],
)
def test_places_at_the_ends_of_a_batch(
    batch_index: int, excluded: bool, size: int, expected: object
) -> None:
    data = ResetCursorData(1, 2, batch_index=batch_index, excluded=excluded)
    assert data.within(size) == expected


@pytest.mark.parametrize(("batch_index", "excluded", "left"), [(2, False, 2), (2, True, 1)])
def test_a_place_within_a_batch_leaves_the_rest(
    batch_index: int, excluded: bool, left: int
) -> None:
    data = ResetCursorData(1, 2, batch_index=batch_index, excluded=excluded)
    position, acked = data.within(4)
    assert position == Position(1, 2)
    assert sum(word.bit_count() for word in acked) == left


async def test_more_copies_than_bookies_are_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    path = "/admin/v2/namespaces/public/default/persistence"
    wanted = {"bookkeeperEnsemble": 5, "bookkeeperWriteQuorum": 5, "bookkeeperAckQuorum": 5}
    async with admin() as at:
        await at.done("POST", path, wanted)
        for number in range(15):
            status, told = await at.ask("PUT", f"{D}/lacking{number}")
            assert status == 503
            assert "needs 5 bookies, 1 are writable" in str(told)
        assert 0 < caplog.text.count("needs 5 bookies") <= 10
        await at.done("DELETE", path)
        await at.done("PUT", f"{D}/lacking0")


async def test_puts_of_properties_at_once_lose_nothing() -> None:
    async with admin() as at:
        await _made(at)
        await at.done("PUT", D + "/p/partitions", 2)
        async with trio.open_nursery() as nursery:
            for path in (PROPS, D + "/p/properties"):
                for number in range(10):
                    nursery.start_soon(at.done, "PUT", path, {f"k{number}": "v"})
        for path in (PROPS, D + "/p/properties"):
            _, told = await at.ask("GET", path)
            assert isinstance(told, dict)
            assert len(told) == 10


async def test_one_of_several_callers_makes_a_topic() -> None:
    async with admin() as at:
        statuses: list[int] = []

        async def make(number: int) -> None:
            status, _ = await at.ask("PUT", T, {"by": str(number), f"p{number}": "x"})
            statuses.append(status)

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(make, number)
        assert sorted(statuses) == [204] + [409] * 11
        _, found = await at.ask("GET", PROPS)
        assert isinstance(found, dict)
        assert len(found) == 2


async def test_names_of_shadows_that_are_none() -> None:
    async with admin() as at:
        await _made(at)
        assert (await at.ask("PUT", T + "/shadowTopics", [None]))[0] == 403
