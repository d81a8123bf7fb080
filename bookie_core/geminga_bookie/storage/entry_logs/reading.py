"""Reading entry logs: their blocks, also behind damage, and how much each ledger has in one (spec
BK-04, BK-06, BK-12).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from geminga_bookie.errors import DataDirError
from geminga_bookie.storage.disk import PAGE_BYTES, DiskFile
from geminga_bookie.storage.entry_logs.format import (
    BLOCK_HEAD_BYTES,
    FILE_HEADER_BYTES,
    FILE_VERSION,
    HEADER_COPY_BYTES,
    KIND_ENTRIES,
    KIND_LEDGER,
    KIND_MAP,
    MAGIC_BYTES,
    NO_SALT,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    BlockHead,
    DamagedBlock,
    LogHeader,
    block_head,
    block_magic,
    block_table,
    check_head,
    decode_entries,
    decode_ledger_map,
    parse_file_header,
    parse_head,
    parse_trailer,
)
from geminga_bookie.storage.location_index import Location, LocationIndex

logger = logging.getLogger(__name__)

SEARCH_BYTES = 1024 * 1024
"""So much is read at once where blocks are searched behind damage."""
BLOCKS_WITHOUT_SALT = 1000
"""A bad sector may take seconds to say so."""
BLANK_BYTES_MAX = 16 * 1024 * 1024
"""More than a flush writes before it syncs (2 MiB, and the last block)."""


class LogFile:
    """A log that is open for reading."""

    __slots__ = ("_file", "_header", "_salted_id", "_without_salt", "path")

    def __init__(self, file: DiskFile, path: Path, salted_id: int | None = None) -> None:
        """`salted_id` is its number, if by that it can't be of version 1."""
        self._file = file
        self.path = path
        self._salted_id = salted_id
        self._header: LogHeader | None = None
        self._without_salt = 0
        """So many more blocks are read before a header that failed is asked for again."""

    @property
    def header(self) -> LogHeader | None:
        """None if it is damaged, or isn't written yet. Raises OSError."""
        if self._header is None:
            self._header = _read_header(self, self._salted_id)
        return self._header

    @property
    def salt(self) -> bytes | None:
        """For a block that the index names: None if the header can't be read."""
        if self._header is not None:
            return self._header.salt
        if self._without_salt > 0:
            self._without_salt -= 1
            return None
        try:
            header = self.header
        except OSError:
            header = None
        if header is None:
            self._without_salt = BLOCKS_WITHOUT_SALT
            return None
        return header.salt

    def read(self, size_bytes: int, offset: int) -> bytes:
        """See `DiskFile.read`; its errors name the file."""
        try:
            return self._file.read(size_bytes, offset)
        except OSError as error:
            raise named(error, self.path) from error

    def size(self) -> int:
        """Bytes in the file. Raises OSError."""
        return self._file.size()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def _read_header(file: LogFile, salted_id: int | None) -> LogHeader | None:
    """From the copy that can be read: a bad sector takes one of them at most. None if both are
    damaged. Raises OSError.
    """
    failure: OSError | None = None
    try:
        return parse_file_header(file.read(HEADER_COPY_BYTES, 0))
    except DamagedBlock:
        pass
    except OSError as error:
        failure = error
    if (other := _other_header(file, salted_id)) is not None:
        return other
    if failure is not None:
        raise failure
    return None


def _other_header(file: LogFile, salted_id: int | None) -> LogHeader | None:
    """In a log of version 1 a client's bytes stand where the copy would. Its blocks can be read
    without a header, if this is one. Raises OSError.
    """
    with suppress(DamagedBlock):
        if salted_id is None:
            old = LogHeader(1, 0, 0, NO_SALT)
            _head_at(file, old.size_bytes, file.size(), NO_SALT)
            return old
        copy = parse_file_header(file.read(HEADER_COPY_BYTES, PAGE_BYTES))
        if (copy.version, copy.log_id) == (FILE_VERSION, salted_id):
            return copy
    return None


def named(error: OSError, path: Path) -> OSError:
    """The same error with the file that it is about."""
    if error.filename is not None or error.errno is None:
        return error
    return OSError(error.errno, error.strerror, str(path))


def parse_block(
    data: bytes, offset: int, location: Location, salt: bytes | None
) -> list[bytes | None]:
    """Packets of one block; None for an entry that is damaged. Without the log's salt, as its
    header is damaged, what the index says has to do. Raises DamagedBlock."""
    head = block_head(data, offset) if salt is None else parse_head(data, salt, offset)
    expected = (location.ledger_id, location.first, location.entries, location.size_bytes)
    if (head.ledger_id, head.first_entry_id, head.entries, head.total_bytes) != expected:
        raise DamagedBlock("not the block that the index names")
    if salt is None:
        return decode_entries(head, block_table(head, data, offset), data, offset)
    return decode_entries(head, check_head(head, data, salt, offset), data, offset)


def scan_blocks(
    file: LogFile, unreadable: list[range] | None = None
) -> Iterator[tuple[int, BlockHead]]:
    """Offset and verified head of every whole block. After damage it searches for the next valid
    head; skipped offsets are added to `unreadable`. Raises OSError."""
    header, size = file.header, file.size()
    if header is None:
        if unreadable is not None and size:
            unreadable.append(range(size))
        return
    offset, candidates = header.size_bytes, _Candidates(file, block_magic(header.salt))
    while offset + BLOCK_HEAD_BYTES <= size:
        try:
            head = _head_at(file, offset, size, header.salt)
        except DamagedBlock:
            following = candidates.behind(offset, size)
            if unreadable is not None:
                begin = offset
                if unreadable and unreadable[-1].stop == offset:
                    begin = unreadable.pop().start
                unreadable.append(range(begin, following))
            offset = following
            continue
        yield offset, head
        offset += head.total_bytes


def packets_at(file: LogFile, offset: int, head: BlockHead) -> list[bytes | None]:
    """Packets of a block that a scan found; None for a damaged one. Raises DamagedBlock (it changed
    meanwhile), OSError."""
    data = file.read(head.total_bytes, offset)
    return decode_entries(head, check_head(head, data, file.salt or NO_SALT), data)


def _head_at(file: LogFile, offset: int, size: int, salt: bytes) -> BlockHead:
    """The head of a whole block. Raises DamagedBlock, OSError."""
    data = file.read(BLOCK_HEAD_BYTES, offset)
    head = parse_head(data, salt)
    if head.kind in (KIND_LEDGER, KIND_MAP) and head.entries != 1:
        raise DamagedBlock("such a block has one packet")
    if offset + head.total_bytes > size:
        raise DamagedBlock("the block is cut short")
    check_head(head, data + file.read(head.table_bytes, offset + BLOCK_HEAD_BYTES), salt)
    return head


class _Candidates:
    """Places where a block may begin. What was read is kept: there may be many of them."""

    def __init__(self, file: LogFile, magic: bytes) -> None:
        self._file = file
        self._magic = magic
        self._begin = 0
        self._data = b""

    def behind(self, offset: int, size: int) -> int:
        """The next one behind an offset; `size` if there is none."""
        offset += 1
        while offset < size:
            at = offset - self._begin
            if not 0 <= at <= len(self._data) - MAGIC_BYTES:
                self._begin, self._data, at = offset, self._file.read(SEARCH_BYTES, offset), 0
            place = self._data.find(self._magic, at)
            if place >= 0:
                return self._begin + place
            offset = self._begin + max(at + 1, len(self._data) - MAGIC_BYTES + 1)
        return size


def location_of(head: BlockHead, log_id: int, offset: int) -> Location:
    """A block's location, as in the index."""
    return Location(
        head.ledger_id, head.first_entry_id, log_id, offset, head.total_bytes, head.entries
    )


def check_version(file: LogFile) -> LogHeader | None:
    """Its header, None if that is damaged. Raises DataDirError, OSError."""
    header = file.header
    if header is not None and header.version not in (1, FILE_VERSION):
        raise DataDirError(
            f"{file.path} is of entry log version {header.version}, this bookie reads up to "
            f"{FILE_VERSION}"
        )
    return header


def map_at(file: LogFile) -> int | None:
    """Where the ledger map of a sealed log begins; None for others. Raises OSError."""
    header, end = file.header, file.size() - TRAILER_BYTES
    if header is None or end < 0:
        return None
    return parse_trailer(file.read(TRAILER_BYTES, end), header.salt)


def _map_of(file: LogFile) -> dict[int, int] | None:
    """The ledger map of a sealed log. None without one: also of version 1, as there the end of a
    log that was not sealed may be what a client wrote. Raises OSError, DamagedBlock.
    """
    header, offset = file.header, map_at(file)
    if header is None or not header.salt or offset is None:
        return None
    salt = header.salt
    end = file.size() - TRAILER_BYTES
    if not FILE_HEADER_BYTES <= offset <= end - BLOCK_HEAD_BYTES:
        raise DamagedBlock("the ledger map is not where the trailer says")
    data = file.read(end - offset, offset)
    head = parse_head(data, salt)
    packet = decode_entries(head, check_head(head, data, salt), data)[0]
    if packet is None or head.kind != KIND_MAP:
        raise DamagedBlock("the ledger map fails its checksum")
    return decode_ledger_map(packet)


def map_in(file: LogFile) -> dict[int, int] | None:
    """Bytes of each ledger in a log, as its end says; None without such a map. Raises OSError."""
    try:
        return _map_of(file)
    except DamagedBlock as error:
        logger.warning("%s: %s", file.path, error)
        return None


def ledger_map(file: LogFile, unreadable: list[range] | None = None) -> dict[int, int]:
    """Bytes of each ledger in a log: from the map, or, without one, by reading every head
    (`unreadable`: see `scan_blocks`). Raises OSError."""
    found = map_in(file)
    if found is not None:
        return found
    sizes: dict[int, int] = {}
    for _, head in scan_blocks(file, unreadable):
        # A log may have the only copy of a ledger's key and fence: also count its record.
        if head.kind in (KIND_ENTRIES, KIND_LEDGER):
            sizes[head.ledger_id] = sizes.get(head.ledger_id, 0) + head.total_bytes
    return sizes


def is_sealed(file: LogFile) -> bool:
    """Whether it ends with a trailer. Raises OSError."""
    return map_at(file) is not None


def has_lost_its_header(file: LogFile) -> bool:
    """Whether it had one: it seems to be sealed, which is done with what was synced. That it is one
    of its trailers can't be verified without the header. Raises OSError.
    """
    if file.header is not None:
        return False
    end = file.read(TRAILER_BYTES, max(0, file.size() - TRAILER_BYTES))
    return end.startswith(TRAILER_MAGIC)


def may_hide_blocks(file: LogFile, unreadable: Sequence[range]) -> bool:
    """Whether a scan with those unreadable places may have passed over whole blocks: in a log of
    version 1, what is found behind damage may be a client's block that reaches over true ones.
    Raises OSError.
    """
    header, size = file.header, file.size()
    is_old = header is not None and not header.salt
    return is_old and any(places.stop < size for places in unreadable)


def is_unknown(file: LogFile) -> bool:
    """Whether nothing in it can be found but by the index. Zeros alone are no contents: a loss of
    power left them of what was never synced. Raises OSError.
    """
    return file.header is None and not _is_blank(file)


def _is_blank(file: LogFile) -> bool:
    if file.size() > BLANK_BYTES_MAX:
        return False
    offset = 0
    while data := file.read(SEARCH_BYTES, offset):
        if data.count(0) < len(data):
            return False
        offset += len(data)
    return True


def end_of_unsealed(file: LogFile) -> list[range]:
    """The places behind a log that may have been cut short. Raises OSError."""
    return [] if is_sealed(file) else [range(file.size(), sys.maxsize)]


def blocks_within(
    index: LocationIndex, log_id: int, unreadable: Sequence[range]
) -> Iterator[Location]:
    """Blocks that the index has at those unreadable offsets of a log."""
    if unreadable:
        for location in index.in_log(log_id):
            if any(location.offset in places for places in unreadable):
                yield location
