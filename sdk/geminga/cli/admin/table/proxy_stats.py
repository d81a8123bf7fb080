"""`geminga admin proxy-stats` (Apache's CmdProxyStats)."""

from __future__ import annotations

from geminga._admin.families.brokers import ProxyStats
from geminga.cli.admin.declare import Command, Values, flag

_INDENT = (flag("-i --indent", "indent", "For pulsar-admin's sake: it is indented anyway."),)


def _plain(values: Values) -> Values:
    del values["indent"]
    return values


COMMANDS = (
    Command("connections", "Show clients' connections to brokers.", ProxyStats.connections, "",
            _INDENT, make=_plain),
    Command("topics", "Show what passes of each topic; the proxy needs proxyLogLevel=2.",
            ProxyStats.topics, "", _INDENT, make=_plain),
    Command("get-log-level", "Show what the proxy logs of clients.", ProxyStats.log_level),
    Command("set-log-level", "Log nothing (0), commands (1), messages as well (2), until the "
            "proxy starts anew.", ProxyStats.set_log_level, "level"),
)  # fmt: skip
