"""What a command of `geminga admin` is: a row of a table over the admin client's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

Values = dict[str, object]
"""What the command line gave, by parameter; None for what it left out."""
Run = Callable[["Calls", Values], object]
"""Makes the calls of a command; returns what is to be printed."""


@dataclass(frozen=True)
class Option:
    """An option. `names` are those of pulsar-admin, with spaces between; `kind` is one of `KINDS`
    in `values.py`.
    """

    names: str
    to: str
    kind: str = "text"
    required: bool = False
    default: object = None
    help: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Command:
    """A command.

    It calls `operation` with the values of its arguments and options, changed by `make`, or does
    what `run` does. `says` is printed after an operation without an answer.
    """

    name: str
    about: str
    operation: Callable[..., object] | None = None
    arguments: str = ""
    """Names of the parameters that are given by place; `[name]` may be left out."""
    options: Sequence[Option] = ()
    make: Callable[[Values], Values] | None = None
    run: Run | None = None
    says: str = ""
    lines: Callable[[object], str] | None = None
    """Makes the text for people of an answer; with `--json` it is printed as it came."""
    failed: Callable[[object], bool] | None = None
    """Whether an answer tells of something that is wrong: then the exit code is 1."""
    tells: bool = False
    """Whether it has an answer, although it changes something: without one it is `null`."""
    is_read: bool = False
    """Whether it only reads, although it has a `run`: then it can be watched."""
    is_hidden: bool = False


@dataclass(frozen=True)
class Family:
    """Commands on one kind of thing."""

    about: str
    modules: Sequence[str]
    """Modules of `table` that have its commands, each in `COMMANDS`; the first ones are imported
    more often.
    """


FAMILIES: Mapping[str, Family] = {
    "bookies": Family("Bookies and their racks.", ["bookies"]),
    "broker-stats": Family("What a broker measures.", ["broker_stats"]),
    "brokers": Family("Brokers and their settings.", ["brokers"]),
    "clusters": Family("Clusters and failure domains.", ["clusters"]),
    "namespaces": Family(
        "Namespaces, their policies and bundles.",
        ["namespaces", "namespace_policies", "namespace_limits"],
    ),
    "ns-isolation-policy": Family("Which brokers serve which namespaces.", ["isolation"]),
    "proxy-stats": Family(
        "What a proxy sees of clients; --admin-url is the proxy's.", ["proxy_stats"]
    ),
    "resource-quotas": Family("Shares of brokers that bundles need.", ["resource_quotas"]),
    "resourcegroups": Family(
        "Bounds on several namespaces together; kept and told, not enforced.", ["resource_groups"]
    ),
    "schemas": Family("Schemas of topics.", ["schemas"]),
    "tenants": Family("Tenants.", ["tenants"]),
    "topicPolicies": Family("Policies of topics.", ["topic_policies", "topic_limits"]),
    "topics": Family(
        "Topics, subscriptions and messages.",
        ["topics", "subscriptions", "messages", "topic_aliases"],
    ),
}
"""By pulsar-admin's names."""


def text(names: str, to: str, help: str = "", *, required: bool = False) -> Option:
    """An option with a text."""
    return Option(names, to, "text", required, help=help)


def flag(names: str, to: str, help: str = "", *, default: object = False) -> Option:
    """An option without a value."""
    return Option(names, to, "flag", default=default, help=help)


def number(
    names: str, to: str, help: str = "", *, required: bool = False, default: object = None
) -> Option:
    """An option with a whole number."""
    return Option(names, to, "int", required, default, help)


def listed(names: str, to: str, help: str = "", *, required: bool = False) -> Option:
    """An option with texts between commas."""
    return Option(names, to, "list", required, help=help)


def pairs(names: str, to: str, help: str = "key=value; several, or between commas.") -> Option:
    """An option with key=value pairs."""
    return Option(names, to, "pairs", help=help)


SUBSCRIPTION = text("-s --subscription", "subscription", "Name of the subscription.", required=True)
FORCE = flag("-f --force", "force", "Although it is in use.")
EITHER = (
    flag("-e --enable", "enable", "Switch it on."),
    flag("-d --disable", "disable", "Switch it off."),
)
"""One of both must be given; `either` makes one value of them."""
