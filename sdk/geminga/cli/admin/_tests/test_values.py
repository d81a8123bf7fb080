from __future__ import annotations

from pathlib import Path

import click
import pytest

from geminga.cli.admin import values


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0), ("-1", -1), ("4096", 4096), ("100K", 102_400), ("10m", 10 << 20),
        ("16G", 16 << 30), ("2T", 2 << 40), ("3gb", 3 << 30), (" 5 ", 5),
    ],
)  # fmt: skip
def test_sizes(text: str, size_bytes: int) -> None:
    assert values.size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("-1", -1), ("90", 90), ("5s", 5), ("2m", 120), ("3H", 10_800), ("1d", 86_400),
        ("2w", 1_209_600), ("1y", 31_536_000),
    ],
)  # fmt: skip
def test_times(text: str, seconds: int) -> None:
    assert values.seconds(text) == seconds
    assert values.milliseconds(text) == seconds * 1000


@pytest.mark.parametrize("text", ["", "x", "1.5G", "1 G", "G", "1P", "--1"])
def test_bad_sizes_and_times(text: str) -> None:
    for parse in (values.size, values.seconds):
        with pytest.raises(click.BadParameter):
            parse(text)


def test_lists_and_pairs() -> None:
    assert values.listed(["a,b", " c ,"]) == ["a", "b", "c"]
    assert values.paired(["a=b,c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    for bad in ("a", "=b"):
        with pytest.raises(click.BadParameter):
            values.paired([bad])


@pytest.mark.parametrize(
    ("text", "ledger_id", "entry_id"),
    [("earliest", -1, -1), ("latest", values.LONG_MAX, values.LONG_MAX), ("3:4", 3, 4)],
)
def test_places(text: str, ledger_id: int, entry_id: int) -> None:
    found = values.place(text)
    assert (found["ledgerId"], found["entryId"]) == (ledger_id, entry_id)


@pytest.mark.parametrize("text", ["", "3", "3:4:5", "first", "a:b"])
def test_bad_places(text: str) -> None:
    with pytest.raises(click.BadParameter):
        values.place(text)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    assert values.file(str(tmp_path / "f")) == b"x"
    with pytest.raises(click.BadParameter):
        values.file(str(tmp_path))


@pytest.mark.parametrize(
    ("enable", "disable", "is_on"), [(True, False, True), (False, True, False)]
)
def test_one_of_two_flags(enable: bool, disable: bool, is_on: bool) -> None:
    given: dict[str, object] = {"enable": enable, "disable": disable, "x": 1}
    assert values.either(given) is is_on
    assert given == {"x": 1}
    for both in (True, False):
        with pytest.raises(click.UsageError):
            values.either({"enable": both, "disable": both})
