"""Rows for policies: three commands for each, that read, set and remove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from geminga._admin.policies import namespace_base, topic_base
from geminga.cli.admin.calls import answered
from geminga.cli.admin.declare import Command, Option, Values, flag

if TYPE_CHECKING:
    from geminga._admin.policy_paths import PolicyPath
    from geminga.cli.admin.calls import Calls

Make = Callable[[Values], object]
GLOBAL = flag("-g --global", "is_global", "The one for all clusters.")
APPLIED = flag("-ap -a --applied", "applied", "What holds, by whatever level.")


class Names(NamedTuple):
    """The names of a policy's commands; empty for one that there isn't."""

    get: str = ""
    set: str = ""
    remove: str = ""


def names_of(name: str) -> Names:
    """As most policies have them."""
    return Names(f"get-{name}", f"set-{name}", f"remove-{name}")


def namespace_rows(
    names: str | Names,
    about: str,
    where: PolicyPath[Any],
    options: Sequence[Option],
    make: Make,
    *,
    removable: bool = True,
    applied: bool = False,
) -> Iterator[Command]:
    """The commands of a policy of namespaces. `make` makes the value of the options."""
    named = names_of(names) if isinstance(names, str) else names

    def read(calls: Calls, values: Values) -> object:
        query = [("applied", "true")] if values.get("applied") else []
        return answered(calls.ask(where.reading(namespace_base(str(values["namespace"])), query)))

    def put(calls: Calls, values: Values) -> object:
        base = namespace_base(str(values.pop("namespace")))
        return answered(calls.ask(where.setting(base, make(values))))

    def remove(calls: Calls, values: Values) -> object:
        return answered(calls.ask(where.removing(namespace_base(str(values["namespace"])))))

    reading = (APPLIED,) if applied else ()
    yield Command(named.get, f"Show {about}.", None, "namespace", reading, run=read, is_read=True)
    yield Command(named.set, f"Set {about}.", None, "namespace", options, run=put)
    if removable and named.remove:
        yield Command(named.remove, f"Remove {about}.", None, "namespace", run=remove)


def topic_rows(
    names: str | Names,
    about: str,
    where: PolicyPath[Any],
    options: Sequence[Option],
    make: Make,
    *,
    removable: bool = True,
    applied: bool = True,
    is_global: bool = True,
) -> Iterator[Command]:
    """The same for topics."""
    named = names_of(names) if isinstance(names, str) else names
    shared = (GLOBAL,) if is_global else ()

    def query(values: Values) -> list[tuple[str, str]]:
        found = [("isGlobal", "true")] if values.pop("is_global", False) else []
        return [*found, ("applied", "true")] if values.pop("applied", False) else found

    def base(values: Values) -> str:
        return topic_base(str(values.pop("topic")))

    def read(calls: Calls, values: Values) -> object:
        return answered(calls.ask(where.reading(base(values), query(values))))

    def put(calls: Calls, values: Values) -> object:
        path, asked = base(values), query(values)
        return answered(calls.ask(where.setting(path, make(values), asked)))

    def remove(calls: Calls, values: Values) -> object:
        return answered(calls.ask(where.removing(base(values), query(values))))

    reading = (APPLIED, *shared) if applied else shared
    yield Command(named.get, f"Show {about}.", None, "topic", reading, run=read, is_read=True)
    yield Command(named.set, f"Set {about}.", None, "topic", (*options, *shared), run=put)
    if removable and named.remove:
        yield Command(named.remove, f"Remove {about}.", None, "topic", shared, run=remove)
