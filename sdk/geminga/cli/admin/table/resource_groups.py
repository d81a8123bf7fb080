"""`geminga admin resourcegroups` (Apache's CmdResourceGroups)."""

from __future__ import annotations

from geminga._admin.families.brokers import ResourceGroups
from geminga.cli.admin.declare import Command, Values, number

_FIGURES = {
    "publish_msgs": ("-mp --msg-publish-rate", "publishRateInMsgs", "Messages/s in."),
    "publish_bytes": ("-bp --byte-publish-rate", "publishRateInBytes", "Bytes/s in."),
    "dispatch_msgs": ("-md --msg-dispatch-rate", "dispatchRateInMsgs", "Messages/s out."),
    "dispatch_bytes": ("-bd --byte-dispatch-rate", "dispatchRateInBytes", "Bytes/s out."),
}
_OPTIONS = tuple(number(names, to, about) for to, (names, _, about) in _FIGURES.items())


def _bounds(values: Values) -> Values:
    bounds = {
        member: values[to] for to, (_, member, _) in _FIGURES.items() if values[to] is not None
    }
    return {"group": values["group"], "bounds": bounds}


COMMANDS = (
    Command("list", "List the groups.", ResourceGroups.list),
    Command("get", "Show a group's bounds.", ResourceGroups.get, "group"),
    Command("create", "Create a group.", ResourceGroups.set, "group", _OPTIONS, make=_bounds),
    Command("update", "Change a group's bounds.", ResourceGroups.set, "group", _OPTIONS,
            make=_bounds),
    Command("delete", "Delete a group.", ResourceGroups.delete, "group"),
)  # fmt: skip
