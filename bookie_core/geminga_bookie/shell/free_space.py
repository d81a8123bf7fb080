"""`bookieinfo` (spec BK-11; Apache's bookies.InfoCommand)."""

from __future__ import annotations

import socket
from decimal import ROUND_DOWN, Decimal

import trio

from geminga_bookie.autorecovery.registrations import read_registered
from geminga_bookie.autorecovery.tools import Cluster
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import BookieInfo
from geminga_bookie.registered import address_of
from geminga_protocol.bookkeeper import paths

NAME_S = 5.0
"""For the name of an address."""
_UNITS = ("", "KB", "MB", "GB", "TB")


def readable(size: int) -> str:
    """Apache's short form: thousands, cut off behind three digits."""
    number, unit = Decimal(size), 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    if not unit:
        return ""
    text = f"{number.quantize(Decimal('0.001'), ROUND_DOWN):f}".rstrip("0").rstrip(".")
    return f"({text}{_UNITS[unit]})"


async def bookie_info(at: Cluster) -> int:
    """Print the disks of all registered bookies; one that doesn't answer is left out, as in
    Apache's shell, but named on its own line. Returns 1 if none answers.
    """
    registered = await read_registered(at.store)
    found: dict[str, BookieInfo] = {}
    failed: dict[str, BookkeeperError] = {}

    async def ask(bookie_id: str) -> None:
        try:
            found[bookie_id] = await at.bookies.port(bookie_id).info()
        except BookkeeperError as error:
            failed[bookie_id] = error

    async with trio.open_nursery() as nursery:
        for bookie_id in registered.writable | registered.readonly:
            nursery.start_soon(ask, bookie_id)
    if not found:
        at.say("Failed to retrieve bookie information from any of the bookies")
        return 1
    at.say("Free disk space info:")
    for bookie_id, info in sorted(found.items()):
        at.say(
            f"{await _described(at, bookie_id)}: \tFree: {info.free_bytes}"
            f"{readable(info.free_bytes)}\tTotal: {info.total_bytes}{readable(info.total_bytes)}"
        )
    for bookie_id, error in sorted(failed.items()):
        at.say(f"BookieID:{bookie_id}: \t{error}")
    free = sum(info.free_bytes for info in found.values())
    total = sum(info.total_bytes for info in found.values())
    at.say(f"Total free disk space in the cluster:\t{free}{readable(free)}")
    at.say(f"Total disk capacity in the cluster:\t{total}{readable(total)}")
    return 0


async def _described(at: Cluster, bookie_id: str) -> str:
    """Id, address and host name."""
    value = b""
    for parent in (paths.readonly(), paths.available()):
        node = await at.store.get(f"{parent}/{bookie_id}")
        value = value if node is None else node.value
    address = address_of(bookie_id, value)
    if address is None:
        return f"BookieID:{bookie_id}"
    host, port = address
    ip = name = host
    with trio.move_on_after(NAME_S):
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            ip = str(found[0][4][0])
            name = (await trio.socket.getnameinfo((ip, port), 0))[0]
        except OSError:
            pass  # without a name
    return f"BookieID:{bookie_id}, IP:{ip}, Port:{port}, Hostname:{name}"
