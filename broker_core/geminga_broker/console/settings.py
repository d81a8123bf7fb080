"""Settings of the console, a part of `config.BrokerConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Apache's broker has no console; the key is ours."""

    enabled: bool = setting("webConsoleEnabled", True)
