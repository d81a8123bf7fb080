"""`geminga admin resource-quotas` (Apache's CmdResourceQuotas)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from geminga._admin.families.brokers import ResourceQuotas
from geminga.cli.admin.declare import Command, Option, Values, flag, text

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

_NAMESPACE = text("-n --namespace", "namespace", "TENANT/NAMESPACE, with --bundle.")
_BUNDLE = text("-b --bundle", "bundle", "0x00000000_0x40000000, with --namespace.")
_FIGURES = {
    "msg_rate_in": ("-mi --msgRateIn", "msgRateIn", "Messages/s from producers."),
    "msg_rate_out": ("-mo --msgRateOut", "msgRateOut", "Messages/s to consumers."),
    "bandwidth_in": ("-bi --bandwidthIn", "bandwidthIn", "Bytes/s from producers."),
    "bandwidth_out": ("-bo --bandwidthOut", "bandwidthOut", "Bytes/s to consumers."),
    "memory": ("-mem --memory", "memory", "MB."),
}


def _where(values: Values) -> dict[str, object]:
    """Namespace and bundle, or nothing for the default. Raises UsageError for one of both."""
    where = {name: values[name] for name in ("namespace", "bundle") if values[name] is not None}
    if len(where) == 1:
        raise click.UsageError("--namespace and --bundle need each other")
    return where


def _get(calls: Calls, values: Values) -> object:
    where = _where(values)
    return calls.call(ResourceQuotas.get if where else ResourceQuotas.get_default, **where)


def _set(calls: Calls, values: Values) -> object:
    where = _where(values)
    quota = {member: values[to] for to, (_, member, _) in _FIGURES.items()}
    quota["dynamic"] = values["dynamic"]
    operation = ResourceQuotas.set if where else ResourceQuotas.set_default
    return calls.call(operation, quota=quota, **where)


def _reset(calls: Calls, values: Values) -> object:
    where = _where(values)
    if not where:
        raise click.UsageError("--namespace and --bundle are needed")
    return calls.call(ResourceQuotas.reset, **where)


COMMANDS = (
    Command("get", "Show the share of a bundle, or the default.", None, "", (_NAMESPACE, _BUNDLE),
            run=_get, is_read=True),
    Command(
        "set", "Set the share of a bundle, or the default.", None, "",
        (
            _NAMESPACE,
            _BUNDLE,
            *(Option(names, to, "float", default=0.0, help=about)
              for to, (names, _, about) in _FIGURES.items()),
            flag("-d --dynamic", "dynamic", "Brokers adjust it."),
        ),
        run=_set,
    ),
    Command("reset-namespace-bundle-quota", "Let the default hold for a bundle.", None, "",
            (_NAMESPACE, _BUNDLE), run=_reset),
)  # fmt: skip
