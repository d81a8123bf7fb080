"""The server and the proxy of a run, and what goes wrong with them on purpose."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from compat_tests.processes import ServerProcess, StartError, free_port, start_geminga
from compat_tests.secured import start_proxy

SETTINGS = {
    # Ledgers fill up, are trimmed and collected all the time.
    "managedLedgerMaxEntriesPerLedger": "5000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "retentionCheckIntervalInSeconds": "30",
    "gcWaitTime": "60000",
    "minorCompactionInterval": "300",
    "majorCompactionInterval": "1200",
}
_PAUSES_S = (0.5, 2.0, 8.0)


class Servers:
    """A standalone that is killed and stopped, and a proxy before it that is not."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self._folder = folder
        self._chance = chance
        self._broker_port, self._web_port = free_port(), free_port()
        self.server = self._start()
        try:
            self.proxy = start_proxy(
                folder / "proxy",
                {
                    "brokerServiceURL": self.server.service_url,
                    "brokerWebServiceURL": self.server.web_url,
                },
                log_level="WARNING",
            )
        except BaseException:
            self.server.kill()
            raise
        self._restarts = 0

    def _start(self) -> ServerProcess:
        return start_geminga(
            self.data, broker_port=self._broker_port, web_port=self._web_port, settings=SETTINGS
        )

    @property
    def data(self) -> Path:
        """All that the server keeps."""
        return self._folder / "data"

    def restart(self) -> str:
        """By kill -9 and in order, by turns. Raises StartError, also if a stop isn't clean."""
        self._restarts += 1
        began = time.monotonic()
        if self._restarts % 2:
            self.server.kill()
            how = "kill -9"
        else:
            code = self.server.stop()
            if code != 0:
                raise StartError(f"stopped with {code}:\n{self.server.log_tail()}")
            how = "stop"
        self.server = self._start()
        return f"{how} and start ({time.monotonic() - began:.1f} s)"

    def trouble(self) -> str:
        """Something from which all recovers without a restart."""
        paused_s = self._chance.choice(_PAUSES_S)
        kind = self._chance.choice(("server", "proxy", "unload"))
        if kind == "unload":
            self._unload()
            return "unload"
        process = self.server if kind == "server" else self.proxy
        process.process.send_signal(signal.SIGSTOP)
        try:
            process.process.wait(paused_s)
        except subprocess.TimeoutExpired:
            return f"{kind} paused {paused_s:g} s"
        finally:
            process.process.send_signal(signal.SIGCONT)
        raise StartError(f"the {kind} ended while it was paused:\n{process.log_tail()}")

    def _unload(self) -> None:
        url = f"{self.server.web_url}/admin/v2/namespaces/soak/load/unload"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60):
            pass

    def end(self) -> None:
        """Stop both. Raises StartError if one doesn't stop in order."""
        for each in (self.proxy, self.server):
            ended = each.process.poll()
            if ended is not None:
                raise StartError(f"ended by itself with {ended}:\n{each.log_tail()}")
            code = each.stop()
            if code != 0:
                raise StartError(f"stopped with {code}:\n{each.log_tail()}")


@contextmanager
def running(folder: Path, chance: Random) -> Iterator[Servers]:
    """Killed at the end, unless they were ended."""
    servers = Servers(folder, chance)
    try:
        yield servers
    finally:
        servers.proxy.kill()
        servers.server.kill()
