"""The reader of TensorBoard's event files: tensorboard meets each record's checksums."""

from __future__ import annotations

import math
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
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto import event_pb2
        from tensorboard.compat.tensorflow_stub import errors
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

        found, bad, position, events = Content(), dict[str, int](), 0, 0
        reader = PyRecordReader_New(self.file.path)
        try:
            while position < self.file.size:
                reader.GetNext()
                record = reader.record()
                position += FRAME + len(record)
                event = event_pb2.Event.FromString(record)
                if not events and not event.file_version:
                    raise Unreadable("does not begin as an event file does")
                events += 1
                for value in event.summary.value:
                    found.names.add(value.tag)
                    if any(not math.isfinite(number) for number in _numbers(value)):
                        bad[value.tag] = bad.get(value.tag, 0) + 1
        except errors.OutOfRangeError:
            raise Unreadable("is cut off in a record") from None
        except (errors.DataLossError, DecodeError, OverflowError, ValueError) as error:
            raise Unreadable(f"tensorboard refuses it ({type(error).__name__})") from None
        if events < 2:
            raise Unreadable("holds no event")
        found.nonfinite = [NonFinite(tag, Bad(count, count)) for tag, count in bad.items()]
        return found


def _numbers(value: Any) -> Any:
    if value.HasField("simple_value"):
        return (value.simple_value,)
    if value.HasField("tensor"):
        return (*value.tensor.float_val, *value.tensor.double_val)
    return ()
