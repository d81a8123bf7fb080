"""Logging of the server processes: one line for each event, `key=value` where a thing is named
(spec OP-08).
"""

from __future__ import annotations

import logging
import sys
import time


class _LineFormatter(logging.Formatter):
    """`2026-01-31T10:20:30.123Z INFO geminga_broker.service text`, times in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def set_up_logging(level: str) -> None:
    """Log to standard error; other libraries only from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for package in (
        "geminga",
        "geminga_broker",
        "geminga_bookie",
        "geminga_proxy",
        "geminga_runtime",
    ):
        logging.getLogger(package).setLevel(level)
