"""Policies of namespaces and topics: each is an attribute with `get`, `set` and mostly `remove`."""

from __future__ import annotations

from typing import Generic, Self, TypeVar, overload

from geminga._admin.declared import Family, Send
from geminga._admin.policy_paths import PolicyPath, Query
from geminga._admin.requests import namespace_path, topic_path

T = TypeVar("T")


def namespace_base(namespace: str) -> str:
    """The path of a namespace. Raises InvalidArgumentError."""
    return f"/admin/v2/namespaces/{namespace_path(namespace)}"


def topic_base(topic: str) -> str:
    """The path of a topic. Raises InvalidTopicNameError."""
    return f"/admin/v2/{topic_path(topic)}"


def global_query(is_global: bool) -> Query:
    """For the policies that hold in all clusters."""
    return [("isGlobal", "true")] if is_global else []


class NamespaceSetting(Generic[T]):
    """A policy of namespaces that can't be removed."""

    def __init__(self, send: Send, where: PolicyPath[T]) -> None:
        self._send = send
        self._where = where

    async def get(self, namespace: str) -> T | None:
        """What is set for the namespace; None if the broker's own setting holds."""
        request = self._where.reading(namespace_base(namespace))
        return self._where.value(await self._send(request))

    async def set(self, namespace: str, value: T) -> None:
        """Set it for the namespace."""
        await self._send(self._where.setting(namespace_base(namespace), value))


class NamespacePolicy(NamespaceSetting[T]):
    """A policy of namespaces."""

    async def remove(self, namespace: str) -> None:
        """Let the broker's own setting hold."""
        await self._send(self._where.removing(namespace_base(namespace)))


class TopicSetting(Generic[T]):
    """A policy of topics that can't be removed."""

    def __init__(self, send: Send, where: PolicyPath[T]) -> None:
        self._send = send
        self._where = where

    async def get(self, topic: str, *, applied: bool = False, is_global: bool = False) -> T | None:
        """What is set for the topic, or None; with `applied` what holds for it, by whatever level.
        With `is_global` it is that for all clusters.
        """
        query = [*global_query(is_global), *([("applied", "true")] if applied else [])]
        request = self._where.reading(topic_base(topic), query)
        return self._where.value(await self._send(request))

    async def set(self, topic: str, value: T, *, is_global: bool = False) -> None:
        """Set it for the topic; with `is_global` in all clusters."""
        query = global_query(is_global)
        await self._send(self._where.setting(topic_base(topic), value, query))


class TopicPolicy(TopicSetting[T]):
    """A policy of topics."""

    async def remove(self, topic: str, *, is_global: bool = False) -> None:
        """Let the namespace's policy hold."""
        query = global_query(is_global)
        await self._send(self._where.removing(topic_base(topic), query))


class Declared(Generic[T]):
    """A policy as an attribute of a family's class; its path there, the policy of an instance."""

    def __init__(self, where: PolicyPath[T]) -> None:
        self.where = where

    def __set_name__(self, owner: type, name: str) -> None:
        self.__doc__ = name.replace("_", " ")


class namespace_setting(Declared[T]):
    """Declares a `NamespaceSetting`."""

    @overload
    def __get__(self, family: None, owner: type) -> Self: ...
    @overload
    def __get__(self, family: Family, owner: type) -> NamespaceSetting[T]: ...
    def __get__(self, family: Family | None, owner: type) -> Self | NamespaceSetting[T]:
        return self if family is None else NamespaceSetting(family._send, self.where)


class namespace_policy(Declared[T]):
    """Declares a `NamespacePolicy`."""

    @overload
    def __get__(self, family: None, owner: type) -> Self: ...
    @overload
    def __get__(self, family: Family, owner: type) -> NamespacePolicy[T]: ...
    def __get__(self, family: Family | None, owner: type) -> Self | NamespacePolicy[T]:
        return self if family is None else NamespacePolicy(family._send, self.where)


class topic_setting(Declared[T]):
    """Declares a `TopicSetting`."""

    @overload
    def __get__(self, family: None, owner: type) -> Self: ...
    @overload
    def __get__(self, family: Family, owner: type) -> TopicSetting[T]: ...
    def __get__(self, family: Family | None, owner: type) -> Self | TopicSetting[T]:
        return self if family is None else TopicSetting(family._send, self.where)


class topic_policy(Declared[T]):
    """Declares a `TopicPolicy`."""

    @overload
    def __get__(self, family: None, owner: type) -> Self: ...
    @overload
    def __get__(self, family: Family, owner: type) -> TopicPolicy[T]: ...
    def __get__(self, family: Family | None, owner: type) -> Self | TopicPolicy[T]:
        return self if family is None else TopicPolicy(family._send, self.where)
