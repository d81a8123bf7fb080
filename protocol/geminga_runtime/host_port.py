"""Hosts and ports as they stand in URLs and log lines."""

from __future__ import annotations


def bracketed(host: str) -> str:
    """A host's name or address; an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def host_port(host: str, port: int) -> str:
    """Both, as `host:port` or `[address]:port`."""
    return f"{bracketed(host)}:{port}"
