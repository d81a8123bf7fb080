"""What the tests of Apache's `bookkeeper shell` share."""

from __future__ import annotations

from collections.abc import Callable

SHELL_LOGGING = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="error"><AppenderRef ref="out"/></Root>
    <Logger name="org.apache.bookkeeper.tools" level="info"/>
    <Logger name="org.apache.bookkeeper.bookie.BookieShell" level="info"/>
  </Loggers>
</Configuration>
"""
"""Most of what the shell prints it logs."""

_TRIES = 3


def disks_by(shell: Callable[[str], list[str]]) -> str:
    """What Apache's shell tells of disks.

    It closes the connections of bookies that it has not heard of yet when it reads them, and then
    tells of one that its client is closed: it is asked again.
    """
    for _ in range(_TRIES):
        (info,) = shell("bookieinfo")
        if "client is closed" not in info:
            break
    return info
