"""Settings of the console, a part of `config.BrokerConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The console, which Apache's broker hasn't."""

    enabled: bool = setting("webConsoleEnabled", True)
