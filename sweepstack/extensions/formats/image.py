"""The reader of images: Pillow decodes every pixel of a PNG or a JPEG."""

from __future__ import annotations

import warnings
from typing import Any, BinaryIO

from PIL import Image

from sweepstack.extensions.formats.shared import LibraryFile
from sweepstack.loaders.base import Content, Unreadable, beyond
from sweepstack.loaders.scan import Scan

KINDS = ("PNG", "JPEG")


class ImageFile(LibraryFile):
    """An image. Raises Unreadable where Pillow refuses it, Unsupported for one that is too large to be decoded."""

    def _check_end(self) -> None:
        """Raises Unreadable for a PNG without its last chunk, which Pillow does without."""
        end = self.file.read(max(0, self.file.size - 12), min(12, self.file.size))
        if self.file.begins_with(b"\x89PNG\r\n\x1a\n") and end != b"\0\0\0\0IEND\xaeB`\x82":
            raise Unreadable("is cut off, or has something behind its end")

    def content(self, scanned: Scan) -> Content:
        """No names; one colour alone counts as numbers that are all the same."""
        with self.file.stream() as handle:
            image = decode(handle)
        self._check_end()
        found = Content()
        bounds = image.getextrema()
        pairs = bounds if isinstance(bounds[0], tuple) else (bounds,)
        found.add_floats("the image", constant=all(low == high for low, high in pairs))
        return found


def decode(handle: BinaryIO) -> Any:
    """The image, with all its pixels. Raises Unreadable, Unsupported."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(handle, formats=KINDS) as first:
                first.verify()  # of a PNG each CRC
            handle.seek(0)
            image = Image.open(handle, formats=KINDS)
            image.load()
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise beyond(f"has more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels") from None
        except (OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, IndexError) as error:
            raise Unreadable(f"Pillow refuses it ({type(error).__name__})") from None
    return image
