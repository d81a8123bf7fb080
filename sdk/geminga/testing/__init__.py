"""A real broker for a program's own tests, in the process of the tests (spec SDK-46).

    with geminga.testing.broker() as url:                 # any test
        with geminga.blocking.connect(url) as client: ...

    async with geminga.testing.open_broker() as url:      # a Trio test, in the same loop
        async with geminga.connect(url) as client: ...

It is the standalone broker itself, with everything in memory, on a free port. Any number may run at
once. `brokers=2` starts two processes that share the topics, for programs that are to follow
lookups. pytest finds the fixtures `geminga_broker` (one broker for the session) and
`geminga_namespace` (a namespace for one test) automatically. Needs `geminga[server]`.
"""

from __future__ import annotations

from geminga.testing._broker import BrokerStartFailed, BrokerUrl, broker, open_broker

__all__ = ["BrokerStartFailed", "BrokerUrl", "broker", "open_broker"]
