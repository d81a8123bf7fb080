"""Whether data of one Avro schema can be read with another: the rules of Java's `SchemaValidator`
1.11, which are those of its resolving decoder (spec BR-51).

They are laxer than the specification: outside of unions the names of records are ignored, and an
enum may lose symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_protocol.avro_schema import NOTHING, AvroSchema, AvroType

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NUMBERS = ("long", "float", "double")
_INT_MAX = 1 << 31

STEPS_BASE = 10_000
STEPS_PER_PART = 30
"""Comparisons for each field and type of two schemas; above that the schemas count as incompatible.
Normal schemas need few, malicious ones could take for ever.
"""


class _BadDefault(Exception):
    """A default that is needed doesn't fit its type."""


class _TooComplex(Exception):
    """The two schemas need too many comparisons."""


class _Steps:
    """Counts comparisons."""

    __slots__ = ("_left",)

    def __init__(self, *schemas: AvroType) -> None:
        parts = sum(map(_parts_of, schemas))
        self._left = STEPS_BASE + STEPS_PER_PART * parts

    def take(self, count: int = 1) -> None:
        """Raises _TooComplex."""
        self._left -= count
        if self._left < 0:
            raise _TooComplex


def _parts_of(schema: AvroType) -> int:
    """The number of its fields and types."""
    seen: set[int] = set()
    todo = [schema]
    count = 0
    while todo:
        each = todo.pop()
        count += 1
        if id(each) not in seen:
            seen.add(id(each))
            todo += each.branches
            todo += [field.type for field in each.fields.values()]
            if each.items is not None:
                todo.append(each.items)
    return count


@dataclass(eq=False, slots=True)
class _Plan:
    """How one type is read as another: not at all (`error`), or by its parts."""

    error: bool = False
    parts: list[_Plan] = field(default_factory=list)


def can_read(writer: AvroSchema, reader: AvroSchema) -> bool:
    """Whether everything written with `writer` can be read with `reader`."""
    resolver = _Resolver(writer.root, reader.root)
    try:
        plan = resolver.resolve(writer.root, reader.root)
    except (_BadDefault, _TooComplex, RecursionError):
        return False
    return not _has_error(plan)


def _has_error(plan: _Plan) -> bool:
    seen: set[int] = set()
    todo = [plan]
    while todo:
        each = todo.pop()
        if each.error:
            return True
        if id(each) not in seen:
            seen.add(id(each))
            todo += each.parts
    return False


class _Resolver:
    """One pass over a pair of schemas. The reader's aliases map the writer's names."""

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self._names: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self._plans: dict[tuple[int, int], _Plan] = {}
        self._named_branches: dict[int, dict[tuple[str, str], AvroType]] = {}
        self._steps = _Steps(writer, reader)
        self._collect(reader, set())

    def resolve(self, w: AvroType, r: AvroType) -> _Plan:
        """The plan for reading `w` as `r`. Raises _BadDefault, _TooComplex."""
        self._steps.take()
        if w.kind == "union":
            same = self._equivalent(w, r, {})
            pairs = zip(w.branches, r.branches if same else [r] * len(w.branches), strict=True)
            return _Plan(parts=[self.resolve(*pair) for pair in pairs])
        if w.kind == r.kind:
            return self._same_kind(w, r)
        if r.kind == "union":
            match = self._branch(w, r)
            return _Plan(error=True) if match is None else _Plan(parts=[self.resolve(w, match)])
        return _Plan(error=r.kind not in _PROMOTIONS.get(w.kind, ()))

    def _same_kind(self, w: AvroType, r: AvroType) -> _Plan:
        if w.kind == "fixed":
            return _Plan(error=self._short(w) != r.short_name or w.size != r.size)
        if w.kind == "enum":
            return _Plan(error=self._short(w) != r.short_name)
        if w.kind == "record":
            return self._record(w, r)
        if w.items is not None and r.items is not None:
            return _Plan(parts=[self.resolve(w.items, r.items)])
        return _Plan()

    def _record(self, w: AvroType, r: AvroType) -> _Plan:
        key = id(w), id(r)
        if (known := self._plans.get(key)) is not None:
            return known
        plan = self._plans[key] = _Plan()
        self._steps.take(len(w.fields) + len(r.fields))
        written = self._written_fields(w)
        for name, kind in written.items():
            if name in r.fields:
                plan.parts.append(self.resolve(kind, r.fields[name].type))
        for each in r.fields.values():
            if each.name in written:
                continue
            if each.default is NOTHING:
                self._plans[key] = plan = _Plan(error=True)
                return plan
            _check_default(each.default, each.type, self._steps)
        return plan

    def _branch(self, w: AvroType, union: AvroType) -> AvroType | None:
        """The reader's branch for a type: the same one, then one of equal structure,
        then a wider number.
        """
        named = self._named_branches.get(id(union))
        if named is None:
            named = {(each.kind, each.name): each for each in reversed(union.branches)}
            self._named_branches[id(union)] = named
        same = named.get((w.kind, self._full(w) if w.name else ""))
        if same is not None:
            return same
        structure: AvroType | None = None
        self._steps.take(len(union.branches))
        for each in union.branches:
            if each.kind != w.kind:
                continue
            better = structure is None or self._short(w) == each.short_name
            if better and w.kind == "record" and not self._mismatches(w, each):
                structure = each
        if structure is not None:
            return structure
        wider = _PROMOTIONS.get(w.kind, ())
        return next((each for each in union.branches if each.kind in wider), None)

    def _mismatches(self, w: AvroType, r: AvroType) -> bool:
        plan = self._record(w, r)
        return plan.error or any(part.error for part in plan.parts)

    def _equivalent(self, w: AvroType, r: AvroType, seen: dict[tuple[int, int], bool]) -> bool:
        """Whether two types have the same encoding."""
        self._steps.take(1 + len(w.fields))
        if w.kind != r.kind or (w.name and self._short(w) != r.short_name):
            return False
        if w.items is not None and r.items is not None:
            return self._equivalent(w.items, r.items, seen)
        if w.kind == "union":
            return len(w.branches) == len(r.branches) and all(
                self._equivalent(*pair, seen) for pair in zip(w.branches, r.branches, strict=True)
            )
        if w.kind != "record":
            return w.size == r.size and w.symbols == r.symbols
        key = id(w), id(r)
        if key not in seen:
            seen[key] = True  # for now, as the type may contain itself
            written = self._written_fields(w)
            seen[key] = list(written) == list(r.fields) and all(
                self._equivalent(kind, r.fields[name].type, seen) for name, kind in written.items()
            )
        return seen[key]

    # ---- aliases ----

    def _collect(self, r: AvroType, seen: set[int]) -> None:
        if id(r) in seen:
            return
        seen.add(id(r))
        self._names.update((alias, r.name) for alias in r.aliases)
        for each in r.fields.values():
            renamed = self._fields.setdefault(r.name, {})
            renamed.update((alias, each.name) for alias in each.aliases)
            self._collect(each.type, seen)
        for inner in (*r.branches, *([r.items] if r.items is not None else [])):
            self._collect(inner, seen)

    def _full(self, w: AvroType) -> str:
        return self._names.get(w.name, w.name)

    def _short(self, w: AvroType) -> str:
        return self._full(w).rpartition(".")[2]

    def _written_fields(self, w: AvroType) -> dict[str, AvroType]:
        renamed = self._fields.get(self._full(w), {})
        return {renamed.get(name, name): each.type for name, each in w.fields.items()}


def _check_default(value: object, kind: AvroType, steps: _Steps) -> None:
    """Raises _BadDefault for a default that Java can't encode, _TooComplex."""
    steps.take(1 + len(kind.symbols) // 16)
    if kind.kind == "union":
        if not kind.branches:
            raise _BadDefault
        _check_default(value, kind.branches[0], steps)
    elif kind.kind == "record":
        for each in kind.fields.values():
            given = value.get(each.name, each.default) if isinstance(value, dict) else NOTHING
            if given is NOTHING:
                raise _BadDefault
            _check_default(given, each.type, steps)
    elif kind.items is not None:
        _check_items(value, kind, steps)
    elif not _fits(value, kind):
        raise _BadDefault


def _check_items(value: object, kind: AvroType, steps: _Steps) -> None:
    assert kind.items is not None
    if isinstance(value, dict) and kind.kind == "map":
        values = list(value.values())
    elif isinstance(value, list) and kind.kind == "array":
        values = value
    else:
        raise _BadDefault
    for each in values:
        _check_default(each, kind.items, steps)


def _fits(value: object, kind: AvroType) -> bool:
    if kind.kind == "null":
        return value is None
    if kind.kind == "boolean":
        return isinstance(value, bool)
    if kind.kind == "enum":
        return value in kind.symbols
    if kind.kind in ("string", "bytes", "fixed"):
        text = isinstance(value, str)
        return text and (kind.kind != "fixed" or len(str(value)) == kind.size)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind.kind == "int":
        return isinstance(value, int) and -_INT_MAX <= value < _INT_MAX
    return kind.kind in _NUMBERS
