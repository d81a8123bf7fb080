"""`geminga admin broker-stats` (Apache's CmdBrokerStats)."""

from __future__ import annotations

from geminga._admin.families.brokers import BrokerStats
from geminga.cli.admin.declare import Command, Values, flag

_INDENT = (flag("-i --indent", "indent", "For pulsar-admin's sake: it is indented anyway."),)


def _plain(values: Values) -> Values:
    del values["indent"]
    return values


COMMANDS = (
    Command("monitoring-metrics", "Show figures for monitoring.", BrokerStats.metrics, "", _INDENT,
            make=_plain),
    Command("mbeans", "Show figures of the Java machine.", BrokerStats.mbeans, "", _INDENT,
            make=_plain),
    Command("topics", "Show statistics of all topics.", BrokerStats.topics, "", _INDENT,
            make=_plain),
    Command("destinations", "As topics.", BrokerStats.topics, "", _INDENT, make=_plain,
            is_hidden=True),
    Command("allocator-stats", "Show an allocator's memory.", BrokerStats.allocator_stats,
            "allocator"),
    Command("load-report", "Show the broker's load.", BrokerStats.load_report),
)  # fmt: skip
