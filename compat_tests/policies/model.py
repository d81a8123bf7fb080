"""What there is to say of a policy, as plain data (spec BR-60). The policies stand in `table`."""

from __future__ import annotations

from dataclasses import dataclass

JSON = object
"""What `json` reads and writes."""

EMPTY = ""
"""An answer without a body."""


class Given:
    """What stands for the value that was set."""


GIVEN = Given()


@dataclass(frozen=True, slots=True)
class Level:
    """How a policy is set, read and removed at one level: of namespaces, or of topics.

    `told` is what is answered once it is set, `unset` before that, with the status `absent`.
    """

    path: str
    value: JSON = None
    told: JSON = GIVEN
    unset: JSON = EMPTY
    absent: int = 200
    verb: str = "POST"
    done: int = 204
    """The status of a change."""
    setting: str = ""
    """The path that sets it, with a query if there is one, where it isn't that of reading."""
    removal: tuple[str, str, JSON] | None = None
    """Method, path and body that remove it; None is DELETE of the path that sets it."""
    lasting: bool = False
    """Once set it can't be removed, as in Apache: `removal` sets the default of broker.conf."""
    applied: JSON = None
    """Of topics: the answer with `applied=true` where no level has a value; None: that asks for
    the topic's own value as well."""

    @property
    def has_form(self) -> bool:
        """Whether it can be set, with what the table says."""
        return self.value is not None or self.told is not GIVEN

    @property
    def answer(self) -> JSON:
        """What GET answers once it is set."""
        return self.value if self.told is GIVEN else self.told

    @property
    def set_at(self) -> str:
        """The path that sets it."""
        return self.setting or self.path

    @property
    def removed_by(self) -> tuple[str, str, JSON]:
        """Method, path and body."""
        return self.removal or ("DELETE", self.set_at, None)


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. `effect` is a sentence of the documents, `keys` are those of `broker.conf`."""

    name: str
    effect: str
    namespace: Level | None = None
    topic: Level | None = None
    keys: tuple[str, ...] = ()
    shown_by: str = ""
    """Where its effect is tested, if not by the probe of its name in `effects`."""
    kept: bool = False
    """Kept and told without an effect here."""
    refused: bool = False
    """What would ask for something is refused, since it isn't built."""
