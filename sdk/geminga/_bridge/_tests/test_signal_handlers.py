"""Signal handlers that use the client, at any place of the interrupted frame: never a deadlock.

Each program raises a real signal during a call of the client. It has its own process: only the main
thread runs handlers, and a hanging one must be killed.
"""

from __future__ import annotations

import dis
import subprocess
import sys
from collections.abc import Callable

import pytest

from geminga._bridge.asyncs import AsyncSender
from geminga._bridge.sending import Sender
from geminga._bridge.threads import ThreadSender
from geminga.testing import BrokerUrl

TIMEOUT_S = 60

BEGIN = """
import signal
import sys

import geminga.blocking as gb
from geminga._bridge.portal import Portal, portal
from geminga._bridge.receiving import Receiver
from geminga._bridge.sending import Sender
from geminga._bridge.threads import ThreadSender, ThreadSession
from geminga._bridge.thread_listening import Listening

url, topic = sys.argv[1:]
is_armed = False
handled = []


def before(owner, name, wanted=lambda *arguments: True):
    # Have that function begin with a signal, once it is armed.
    function = getattr(owner, name)

    def call(*arguments, **named):
        global is_armed
        if is_armed and wanted(*arguments, **named):
            is_armed = False
            signal.raise_signal(signal.SIGUSR1)
        return function(*arguments, **named)

    setattr(owner, name, call)


def arm(handler):
    global is_armed

    def handle(*_):
        handler()
        handled.append(1)

    signal.signal(signal.SIGUSR1, handle)
    is_armed = True


"""

SEND = """
with gb.connect(url) as client, client.create_producer(topic, max_pending_messages={pending}) as p:
    {setup}
    arm(lambda: (p.send(b"of the handler"), p.submit(b"more").wait(), p.flush()))
    for _ in range({count}):
        p.{send}(b"of the program")
    p.flush()
    assert handled and not p.pending_messages
"""

PLACES = {
    "counting the room": 'before(Sender, "_look_for_room")',
    "telling of a message": (
        'before(Portal, "post", lambda _, function, *rest: function == p._sender._drain)'
    ),
    "waking the loop": """
    class Token:
        def __init__(self, token):
            self.run_sync_soon = token.run_sync_soon

    p.send(b"first")
    token = portal()._token = Token(portal()._token)
    before(token, "run_sync_soon")
""",
    "counting is done": 'before(ThreadSender, "_signal")',
}


def run(url: BrokerUrl, topic: str, program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BEGIN + program, url, topic],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("send", ["send", "submit", "send_nowait"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.slow
def test_sending(url: BrokerUrl, topic: str, place: str, send: str) -> None:
    run(url, topic, SEND.format(pending=1000, setup=PLACES[place], count=2, send=send))


@pytest.mark.slow
def test_sending_while_a_send_waits_for_room(url: BrokerUrl, topic: str) -> None:
    setup = (
        'before(ThreadSession, "call", lambda _, asked, **named: asked == p._sender.wait_for_room)'
    )
    run(url, topic, SEND.format(pending=1, setup=setup, count=100, send="submit"))


def test_acknowledging(url: BrokerUrl, topic: str) -> None:
    run(
        url,
        topic,
        """
with (
    gb.connect(url) as client,
    client.create_producer(topic) as producer,
    client.subscribe(topic, "s") as consumer,
):
    for n in range(3):
        producer.send(b"%d" % n)
    got = [consumer.receive(60) for _ in range(3)]
    drain = consumer._receiver._drain
    before(Portal, "post", lambda _, function, *rest: function == drain)

    def handler():
        consumer.acknowledge(got[1])
        consumer.negative_acknowledge(got[2])
        assert not consumer.has_message_available()

    arm(handler)
    consumer.acknowledge(got[0])
    assert handled
    assert not consumer.has_message_available()
with gb.connect(url) as client, client.subscribe(topic, "s") as consumer:
    assert consumer.receive(60).data == b"2"
""",
    )


def test_the_first_connect(url: BrokerUrl, topic: str) -> None:
    run(
        url,
        topic,
        """
kept = []


def handler():
    with gb.connect(url) as client:
        kept.append(portal())
        client.create_producer(topic).send(b"of the handler")


arm(handler)
before(Portal, "__init__")
with gb.connect(url) as client:
    assert handled and kept == [portal()]
    client.create_producer(topic).send(b"of the program")
""",
    )


@pytest.mark.parametrize("place", ['ThreadHost, "worker"', 'ThreadEvent, "wait"'])
@pytest.mark.slow
def test_closing_a_consumer_with_a_listener(url: BrokerUrl, topic: str, place: str) -> None:
    run(
        url,
        topic,
        """
import threading
import time
from geminga._bridge.waiting import ThreadEvent, ThreadHost

main = threading.main_thread()
busy, go_on = threading.Event(), threading.Event()


def listener(consumer, message):
    busy.set()
    go_on.wait(60)


before(PLACE, lambda *_: threading.current_thread() is main)
with gb.connect(url) as client:
    consumer = client.subscribe(topic, "s", message_listener=listener)
    client.create_producer(topic).send(b"a")
    assert busy.wait(60)

    def handler():
        threading.Timer(0.2, go_on.set).start()
        consumer.close()

    arm(handler)
    consumer.close()
    assert handled
""".replace("PLACE", place),
    )


@pytest.mark.parametrize(
    ("function", "first", "last"),
    [
        (Sender._take_in, "_put_messages", "append"),
        (ThreadSender.send_at_once, "_put_messages", "append"),
        (AsyncSender.send_at_once, "_put_messages", "append"),
    ],
)
def test_nothing_comes_between_what_changes_together(
    function: Callable[..., object], first: str, last: str
) -> None:
    """Python switches threads and runs signal handlers at calls, backward jumps and the beginnings
    of functions.
    """
    steps = [(each.opname, each.argval) for each in dis.get_instructions(function)]
    named = [n for n, (_, value) in enumerate(steps) if value in (first, last)]
    between = {name for name, _ in steps[named[0] : named[-1]]}
    assert len(between) > 5
    assert not {
        name for name in between if name.startswith(("CALL", "RESUME", "JUMP_BACKWARD", "YIELD"))
    }
