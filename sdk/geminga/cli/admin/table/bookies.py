"""`geminga admin bookies` (Apache's CmdBookies)."""

from __future__ import annotations

from geminga._admin.families.brokers import Bookies
from geminga.cli.admin.declare import Command, Option, Values, text

_BOOKIE = text("-b --bookie", "bookie", "Bookie, host:port.", required=True)


def _rack(values: Values) -> Values:
    info = {"rack": values["rack"], "hostname": values["hostname"]}
    return {"bookie": values["bookie"], "group": values["group"], "info": info}


COMMANDS = (
    Command("list-bookies", "List the registered bookies.", Bookies.list),
    Command("space", "Show the room on the disks of bookies that take entries.", Bookies.space),
    Command("racks-placement", "Show the racks of all bookies.", Bookies.racks),
    Command("get-bookie-rack", "Show a bookie's rack.", Bookies.get_rack, "", (_BOOKIE,)),
    Command(
        "set-bookie-rack", "Put a bookie into a rack.", Bookies.set_rack, "",
        (
            _BOOKIE,
            text("-r --rack", "rack", "Name of the rack.", required=True),
            Option("-g --group", "group", default="default", help="Name of the group."),
            text("-hn --hostname", "hostname", "Name of the bookie's host."),
        ),
        make=_rack,
    ),
    Command("delete-bookie-rack", "Forget a bookie's rack.", Bookies.delete_rack, "", (_BOOKIE,)),
)  # fmt: skip
