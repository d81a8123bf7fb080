"""The machine of one client as scripts: lookups and bounds (spec PX-01, PX-07)."""

from __future__ import annotations

import logging

import pytest

from geminga_protocol.commands import answers, connection, lookup, producing, schemas
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_proxy.addresses import Address
from geminga_proxy.binary import machine as machine_module
from geminga_proxy.binary._tests.scripts import (
    BROKER,
    HELLO,
    OTHER,
    PROOF,
    STRANGER,
    TOPIC,
    Script,
    frame,
    kinds,
    named,
    schema,
)
from geminga_proxy.binary.events import (
    Answered,
    Ask,
    Drained,
    End,
    Learn,
    Send,
    Ticked,
    Unanswered,
    Warn,
)
from geminga_proxy.binary.requests import REDIRECTS_MAX

# ---- lookups ----


def test_a_lookup_leads_back_to_the_proxy() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    assert request.encoded() == lookup.lookup(TOPIC, 5)
    learn, send = script(Answered(request, BROKER, named(5, STRANGER)))
    assert learn == Learn(STRANGER)
    assert isinstance(send, Send)
    found = frame(send.data).command.lookupTopicResponse
    assert (found.request_id, found.proxy_through_service_url) == (5, True)
    assert found.brokerServiceUrl == found.brokerServiceUrlTls == "pulsar://evil:6650"
    assert (script.machine.pending, script.budget.waiting) == (0, 0)


def test_a_clients_original_principal_is_not_passed_on() -> None:
    script = Script(HELLO)
    claimed = connection.Original("admin", "jwt", "token")
    for request_id, ask in enumerate((lookup.lookup, lookup.partitioned_metadata)):
        (request,) = script.asked(ask(TOPIC, request_id, original=claimed))
        assert request.encoded() == ask(TOPIC, request_id)


def test_tls_to_brokers_uses_the_tls_url() -> None:
    script = Script(HELLO, by_tls=True)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    answer = frame(
        lookup.lookup_response(
            5, broker_url="pulsar://a:6650", broker_url_tls="pulsar+ssl://b:6651"
        )
    )
    assert script(Answered(request, BROKER, answer))[0] == Learn(Address("b", 6651))


def test_redirects_are_followed_among_brokers() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    assert script(Answered(request, BROKER, named(5, OTHER, redirect=True))) == [
        Ask(request, OTHER)
    ]
    assert kinds(script(Answered(request, OTHER, named(5, OTHER)))) == ["Learn", "LOOKUP_RESPONSE"]


def test_a_redirect_passes_on_authoritative() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    answer = named(5, OTHER, redirect=True)
    answer.command.lookupTopicResponse.authoritative = True
    script(Answered(request, BROKER, answer))
    assert frame(request.encoded()).command.lookupTopic.authoritative


def test_a_redirect_to_a_stranger_is_not_followed() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    warn, send = script(Answered(request, BROKER, named(5, STRANGER, redirect=True)))
    assert isinstance(warn, Warn)
    assert warn.text.startswith("a:6650 redirects to evil:6650, which is neither listed")
    refused = lookup.lookup_error(5, ServerError.ServiceNotReady, "No broker can be reached now")
    assert send == Send(refused)
    assert script.machine.pending == 0


def test_redirects_end() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    answer = named(5, OTHER, redirect=True)
    for _ in range(REDIRECTS_MAX - 1):
        assert script(Answered(request, BROKER, answer)) == [Ask(request, OTHER)]
    assert kinds(script(Answered(request, BROKER, answer))) == ["Warn", "LOOKUP_RESPONSE"]


def test_other_answers_pass_as_they_are() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.partitioned_metadata(TOPIC, 6))
    answer = lookup.partitioned_metadata_response(6, 7)
    assert script(Answered(request, BROKER, frame(answer))) == [Send(answer)]
    (request,) = script.asked(lookup.lookup(TOPIC, 7))
    error = answers.error(7, ServerError.AuthorizationError, "no")
    assert script(Answered(request, BROKER, frame(error))) == [Send(error)]


def test_each_kind_of_request_has_its_own_error_response() -> None:
    script = Script(HELLO)
    sent = {
        "PARTITIONED_METADATA_RESPONSE": lookup.partitioned_metadata(TOPIC, 1),
        "ERROR": lookup.get_topics_of_namespace(2, "public/default"),
        "GET_SCHEMA_RESPONSE": schemas.get_schema(3, TOPIC),
        "GET_OR_CREATE_SCHEMA_RESPONSE": schemas.get_or_create_schema(4, TOPIC, schema(1)),
    }
    for kind, data in sent.items():
        (request,) = script.asked(data)
        effects = script(Unanswered(request, ServerError.ServiceNotReady, "a is gone"))
        assert effects[0] == Warn("a is gone")
        assert kinds(effects) == ["Warn", kind]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (producing.producer(TOPIC, 1, 2), "closed: PRODUCER needs a tunnel to a broker"),
        (HELLO, "closed: CONNECT needs a tunnel to a broker"),
        (PROOF, "closed: AUTH_RESPONSE needs a tunnel to a broker"),
        (bytes([0, 0, 0, 6, 0, 0, 0, 2, 8, 3]), "closed: connected lacks required fields"),
    ],
)
def test_other_commands_end_the_connection(data: bytes, text: str) -> None:
    (end,) = Script(HELLO).sent(data)
    assert isinstance(end, End)
    assert end.text.startswith(text)


# ---- bounds ----


def test_a_full_client_is_read_again_after_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "REQUESTS_MAX", 2)
    script = Script(HELLO)
    first, second = script.asked(*(lookup.lookup(TOPIC, number) for number in range(3)))
    assert script.machine.is_full
    effects = script(Answered(second, BROKER, named(1, BROKER)))
    assert kinds(effects) == ["Learn", "LOOKUP_RESPONSE", "Ask"]
    assert isinstance(effects[-1], Ask)
    assert effects[-1].request.id == 2
    effects = script(Unanswered(first, ServerError.ServiceNotReady, "gone"))
    assert kinds(effects) == ["Warn", "LOOKUP_RESPONSE"]
    assert not script.machine.is_full


def test_too_many_requests_of_all_clients() -> None:
    script = Script(HELLO, requests_max=1)
    effects = script.sent(*(lookup.lookup(TOPIC, number) for number in range(3)))
    assert kinds(effects) == ["Ask", "LOOKUP_RESPONSE", "LOOKUP_RESPONSE"]
    assert script.budget.rejected == {"lookup": 2}
    assert script.budget.passed_on == {"lookup": 1}


def test_large_requests() -> None:
    """Names are short; schemas may be large, as long as there is room for all."""
    script = Script(HELLO, held_bytes_max=300_000)
    effects = script.sent(lookup.lookup("persistent://a/b/" + "x" * 70_000, 1))
    assert isinstance(effects[0], Send)
    response = frame(effects[0].data).command.lookupTopicResponse
    assert response.error == ServerError.NotAllowedError
    large = schema(200_000)
    (request,) = script.asked(schemas.get_or_create_schema(1, TOPIC, large))
    assert 200_000 < script.budget.held.bytes < 201_000
    effects = script.sent(schemas.get_or_create_schema(2, TOPIC, large))
    assert kinds(effects) == ["GET_OR_CREATE_SCHEMA_RESPONSE"]
    assert script.budget.rejected == {"schema": 1}
    script(Unanswered(request, ServerError.ServiceNotReady, "gone"))
    assert (script.budget.held.bytes, script.budget.waiting) == (0, 0)


def test_an_unfinished_request_is_counted_and_ends() -> None:
    script = Script(HELLO)
    part = schemas.get_or_create_schema(1, TOPIC, schema(100_000))
    assert script.sent(part[:50_000], at_s=1.0) == []
    assert script.budget.held.bytes == 50_000
    assert script(Ticked(30.0)) == [Send(connection.PING)]
    assert script(Ticked(31.0)) == [End("closed: a request did not come in time")]
    full = Script(HELLO, held_bytes_max=40_000)
    expected = End("closed: too many large requests of all clients are under way")
    assert full.sent(part[:50_000]) == [expected]


def test_release_gives_everything_back() -> None:
    script = Script(HELLO)
    data = schemas.get_or_create_schema(1, TOPIC, schema(100_000))
    script.sent(data, data, data[:50_000])
    assert (script.budget.waiting, script.budget.held.bytes > 250_000) == (2, True)
    script.machine.release()
    assert (script.budget.waiting, script.budget.held.bytes) == (0, 0)


def test_a_silent_client_is_dropped() -> None:
    script = Script(HELLO)
    script.sent(connection.PONG, at_s=10.0)
    assert script(Ticked(69.0)) == [Send(connection.PING)]
    script.asked(lookup.lookup(TOPIC, 1))
    script.machine.release()
    script.sent(connection.PONG, at_s=10.0)
    assert script(Ticked(70.0)) == [End("silent for 60 s, dropped", logging.INFO)]
    assert script(Ticked(100.0)) == []


def test_a_client_that_waits_for_an_answer_may_be_silent() -> None:
    script = Script(HELLO)
    script.asked(lookup.lookup(TOPIC, 1))
    assert script(Ticked(1000.0)) == [Send(connection.PING)]


def test_pending_requests_are_answered_after_the_end() -> None:
    script = Script(HELLO)
    (request,) = script.asked(lookup.lookup(TOPIC, 5))
    assert script(Drained()) == [End()]
    assert script.sent(lookup.lookup(TOPIC, 6)) == []
    assert kinds(script(Answered(request, BROKER, named(5, BROKER)))) == [
        "Learn",
        "LOOKUP_RESPONSE",
    ]
    assert script.machine.pending == 0
