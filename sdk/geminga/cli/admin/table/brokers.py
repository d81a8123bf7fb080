"""`geminga admin brokers` (Apache's CmdBrokers)."""

from __future__ import annotations

from geminga._admin.families.brokers import Brokers
from geminga.cli.admin.calls import Calls
from geminga.cli.admin.declare import Command, Values, flag, number, text


def _list(calls: Calls, values: Values) -> object:
    if values["cluster"] is None:
        return calls.call(Brokers.list)
    return calls.call(Brokers.list_of, cluster=values["cluster"])


_NAME = text("-c --config", "name", "Name of the setting.", required=True)

COMMANDS = (
    Command("list", "List the active brokers.", None, "[cluster]", run=_list, is_read=True),
    Command("leader-broker", "Show the broker that spreads the load.", Brokers.leader),
    Command("namespaces", "List the bundles that a broker owns.", Brokers.owned_namespaces,
            "cluster", (text("-u --url", "broker", "The broker, host:port.", required=True),)),
    Command(
        "update-dynamic-config", "Change a setting of all brokers.",
        Brokers.update_dynamic_configuration, "",
        (_NAME, text("-v --value", "value", "The value.", required=True)),
    ),
    Command("delete-dynamic-config", "Let the configuration's value hold again.",
            Brokers.delete_dynamic_configuration, "", (_NAME,)),
    Command("list-dynamic-config", "List the settings that can be changed.",
            Brokers.list_dynamic_configuration),
    Command("get-all-dynamic-config", "Show the settings that were changed.",
            Brokers.get_dynamic_configuration),
    Command("get-internal-config", "Show where the metadata are.",
            Brokers.get_internal_configuration),
    Command("get-runtime-config", "Show all settings.", Brokers.get_runtime_configuration),
    Command(
        "healthcheck", "Have a broker write and read a message.", Brokers.healthcheck, "",
        (
            text("-tv --topic-version", "topic_version", "V1 or V2: where the message goes."),
            text("-b --broker", "broker", "Another broker, host:port."),
        ),
    ),
    Command("backlog-quota-check", "Enforce backlog quotas now.", Brokers.check_backlog_quotas,
            says="ok"),
    Command("version", "Show the version of the broker that answers.", Brokers.version),
    Command(
        "shutdown", "Unload a broker's bundles and end its process.", Brokers.shut_down, "",
        (
            number("-m --max-concurrent-unload-per-sec", "max_concurrent_unloads_per_s",
                   "0 is no bound.", default=0),
            flag("-f --forced-terminate-topic", "force", "Close topics that are in use."),
        ),
        says="Successfully trigger broker shutdown gracefully",
    ),
)  # fmt: skip
