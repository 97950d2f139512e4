"""The reader of TensorBoard's event files: tensorboard meets each record's checksums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sweepstack.extensions.formats.shared import LibraryFile
from sweepstack.loaders.base import Bad, Content, NonFinite, Unreadable
from sweepstack.loaders.scan import Scan

FRAME = 16
"""Bytes around each record: its length, and two checksums."""


class Events(LibraryFile):
    """An event file. A file that is cut between two records is a shorter one, and no mistake can be seen in it."""

    def content(self, scanned: Scan) -> Content:
        """Tags; scalars that are not finite, by tag. Raises Unreadable for a record that is cut or damaged, and for a
        file without an event beside that of its version."""
        found, bad, events = Content(), dict[str, int](), 0
        for event in read(self.file.path, self.file.size):
            events += 1
            for value in event.summary.value:
                found.names.add(value.tag)
                if any(not math.isfinite(number) for number in _numbers(value)):
                    bad[value.tag] = bad.get(value.tag, 0) + 1
        if events < 2:
            raise Unreadable("holds no event")
        found.nonfinite = [NonFinite(tag, Bad(count, count)) for tag, count in bad.items()]
        return found


def read(path: str, size: int, *, cut: bool = False) -> Iterator[Any]:
    """The events of a file of `size` bytes, the first of which says its version. `cut`: its last record may be one that
    is not whole; it is left out. Raises Unreadable."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.tensorflow_stub import errors
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader, position = PyRecordReader_New(path), 0
    try:
        while position < size:
            reader.GetNext()
            record = reader.record()
            event = event_pb2.Event.FromString(record)
            if not position and not event.file_version:
                raise Unreadable("does not begin as an event file does")
            position += FRAME + len(record)
            yield event
    except errors.OutOfRangeError:
        raise Unreadable("is cut off in a record") from None
    except (errors.DataLossError, DecodeError, OverflowError, ValueError) as error:
        if cut and "truncated record" in str(error):
            return
        raise Unreadable(f"tensorboard refuses it ({type(error).__name__})") from None


def _numbers(value: Any) -> Any:
    if value.HasField("simple_value"):
        return (value.simple_value,)
    if value.HasField("tensor"):
        return (*value.tensor.float_val, *value.tensor.double_val)
    return ()
