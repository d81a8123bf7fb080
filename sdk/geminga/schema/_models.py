"""Models of pydantic 2 as records (spec SDK-49). pydantic is never imported for programs that have
no model: a class that was derived from `BaseModel` has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import msgspec

from geminga._options.checks import one
from geminga.errors import InvalidSchemaError, InvalidValueError
from geminga.schema._base import Unfit
from geminga.schema._plans import Change, FieldSpec, Plan, RecordCodec

if TYPE_CHECKING:
    from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
    from pydantic.fields import FieldInfo

NEEDED = 'pip install "geminga[pydantic]"'
ERRORS_MAX = 5
"""Bound of the fields that an error names."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RECODED = frozenset({"PlainSerializer", "WrapSerializer", "EncodedBytes", "EncodedStr"})
"""Annotations of pydantic by which the written form is another than the value's."""


def is_model(kind: type) -> TypeGuard[type[BaseModel]]:
    """Whether it is a model of pydantic 2. Raises InvalidSchemaError for one of pydantic 1."""
    library = sys.modules.get("pydantic")
    if library is None:
        return False
    base: type = library.BaseModel
    if kind is base:
        raise InvalidSchemaError("BaseModel itself is no record: a model derived from it is needed")
    if hasattr(base, "model_fields") and issubclass(kind, base):
        return True
    for each in kind.__mro__:
        if each.__name__ == "BaseModel" and each.__module__ in (
            "pydantic.main",
            "pydantic.v1.main",
        ):
            raise InvalidSchemaError(
                f"{kind.__name__} is a model of pydantic 1; models of pydantic 2 are needed: "
                f"{NEEDED}, and derive it from pydantic.BaseModel"
            )
    return False


def avro_name(kind: type) -> str:
    """The name of a class in Avro; a generic model has its parameters' names in it."""
    return re.sub(r"\W+", "_", kind.__name__, flags=re.ASCII).strip("_") or kind.__name__


def class_value(kind: type, name: str) -> object:
    """A setting that is an attribute of the class, or None. pydantic makes names with an underscore
    private attributes of objects, unless they are ClassVars.
    """
    private: dict[str, Any] = getattr(kind, "__private_attributes__", {})
    return private[name].default if name in private else getattr(kind, name, None)


def has_raw_enums(kind: type) -> bool:
    """Whether it is a model with values instead of members of enums."""
    return is_model(kind) and bool(kind.model_config.get("use_enum_values"))


def check_mark(mark: object, where: str) -> None:
    """Raises InvalidSchemaError for an annotation that gives values another written form."""
    kind = type(mark)
    if kind.__name__ in _RECODED and kind.__module__.startswith("pydantic."):
        raise InvalidSchemaError(f"{where}: values with a {kind.__name__} can't be mapped to Avro")


def digits_of(mark: object) -> tuple[int, int] | None:
    """Digits of a decimal, and those behind the point, that an annotation of pydantic tells."""
    told = getattr(mark, "__dict__", {})
    total, behind = told.get("max_digits"), told.get("decimal_places")
    return (total, behind) if isinstance(total, int) and isinstance(behind, int) else None


def fields_of_model(kind: type[BaseModel]) -> list[FieldSpec]:
    """The fields that are written, in the model's order. Raises InvalidSchemaError, naming the
    field.
    """
    from pydantic import RootModel

    name = kind.__name__
    if issubclass(kind, RootModel):
        raise InvalidSchemaError(f"{name} is a RootModel, which is no record")
    if not kind.__pydantic_complete__ and not kind.model_rebuild(raise_errors=False):
        raise InvalidSchemaError(f"{name} refers to types that are not defined")
    decorators = kind.__pydantic_decorators__
    if decorators.model_serializers:
        raise InvalidSchemaError(f"{name} has a model_serializer: its written form is not known")
    for serializer in decorators.field_serializers.values():
        where = f"{name}.{'/'.join(serializer.info.fields)}"
        raise InvalidSchemaError(f"{where} has a field_serializer: its written form is not known")
    found = []
    for attribute, info in kind.model_fields.items():
        where = f"{name}.{attribute}"
        if getattr(info, "exclude_if", None) is not None:
            raise InvalidSchemaError(f"{where}: whether it is excluded depends on its value")
        if info.exclude:
            if info.is_required():
                raise InvalidSchemaError(f"{where} is excluded, so it needs a default")
            continue
        found.append(_spec(attribute, info, where))
    names = [each.name for each in found]
    for each in found:
        if names.count(each.name) > 1:
            raise InvalidSchemaError(f"{name}: two fields are called {each.name}")
    return found


def _spec(attribute: str, info: FieldInfo, where: str) -> FieldSpec:
    for mark in info.metadata:
        check_mark(mark, where)
    name = info.serialization_alias or attribute
    others = [each for each in _aliases(info.validation_alias, where) if each != name]
    for each in (name, *others):
        if not _NAME.fullmatch(each):
            raise InvalidSchemaError(f"{where}: {each!r} can't be a name in Avro")
    hint: Any = info.annotation
    if info.metadata:
        hint = Annotated[(hint, *info.metadata)]
    return FieldSpec(name, attribute, hint, _default(info), tuple(others))


def _aliases(given: str | AliasPath | AliasChoices | None, where: str) -> list[str]:
    if given is None or isinstance(given, str):
        return [given] if given else []
    choices: Iterable[str | AliasPath] = getattr(given, "choices", [given])
    found = [each for each in choices if isinstance(each, str)]
    if len(found) < len(list(choices)):
        raise InvalidSchemaError(f"{where}: an AliasPath has no counterpart in Avro")
    return found


def _default(info: FieldInfo) -> object:
    """Of factories only the empty list and dict count: others may give something else each time."""
    if info.is_required():
        return msgspec.NODEFAULT
    if info.default_factory is None:
        default: object = info.default
        return default
    empty: dict[object, object] = {list: [], dict: {}}
    return empty.get(info.default_factory, msgspec.NODEFAULT)


class ModelCodec(RecordCodec):
    """Converts models to dicts and back. Both ways pydantic validates, so nothing is written that
    can't be read.
    """

    def __init__(self, kind: type[BaseModel], name: str) -> None:
        super().__init__(kind, name)
        from pydantic import ValidationError

        self._model = kind
        self._invalid = ValidationError
        self._attributes = tuple(kind.model_fields)
        self._written: tuple[str, ...] = ()
        self._specs: tuple[tuple[FieldSpec, Change | None, bool], ...] = ()

    def begin(self, fields: list[tuple[FieldSpec, Plan]]) -> None:
        """Set the fields, in the model's order; their types may be this model."""
        super().begin(fields)
        self._written = tuple(spec.attribute for spec, _ in fields)
        self._specs = tuple(
            (spec, plan.back, spec.default is msgspec.NODEFAULT and _allows_null(plan))
            for spec, plan in fields
        )

    def to_dict(self, value: Any) -> dict[str, Any]:
        """The dict for a writer. Raises InvalidValueError, naming the field."""
        kind = self._model
        if not isinstance(value, kind):
            raise InvalidValueError(f"the value must be {one(kind.__name__)}, not {value!r}")
        own = value.__dict__
        given = {name: own[name] for name in self._attributes if name in own}
        if value.__pydantic_extra__:
            unknown = ", ".join(value.__pydantic_extra__)
            raise InvalidValueError(f"{kind.__name__}: the schema has no field {unknown}")
        values = self._validated(given, InvalidValueError).__dict__
        return self._changed(dict(zip(self._names, map(values.get, self._written), strict=True)))

    def from_dict(self, read: dict[str, Any]) -> Any:
        """The model for a reader's dict. Raises ValueError, naming the field."""
        given: dict[str, Any] = {}
        left = dict(read)
        for spec, back, is_filled in self._specs:
            name = spec.name
            if name not in read:
                name = next((each for each in spec.aliases if each in read), name)
            if name not in read:
                if is_filled:  # as Java's clients leave nulls out
                    given[spec.attribute] = None
                continue
            found = left.pop(name, None)
            if back is not None:
                try:
                    found = back(found)
                except Exception as error:
                    raise Unfit(f"{self.kind.__name__}.{spec.attribute}: {error}") from error
            given[spec.attribute] = found
        for name in left.keys() - self._attributes:
            given[name] = left[name]  # ignored, kept or refused, as the model says
        return self._validated(given, Unfit)

    def _validated(self, given: dict[str, Any], raised: Callable[[str], Exception]) -> BaseModel:
        try:
            made: object = self._model.model_validate(given, by_alias=False, by_name=True)
        except self._invalid as error:
            raise raised(_told(self._model.__name__, error)) from error
        if not isinstance(made, self._model):
            raise raised(f"validating a {self._model.__name__} gave {made!r}")
        return made

    @property
    def is_exact(self) -> bool:
        """False: JSON can't be written from a model as it is."""
        return False


def _allows_null(plan: Plan) -> bool:
    return isinstance(plan.schema, list) and "null" in plan.schema


def _told(name: str, error: ValidationError) -> str:
    """What pydantic found, in one line: each field and what is wrong with it."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = []
    for each in found[:ERRORS_MAX]:
        path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in each["loc"])
        told.append(f"{name}{path}: {each['msg']}")
    if len(found) > ERRORS_MAX:
        told.append(f"and {len(found) - ERRORS_MAX} more")
    return "; ".join(told)
