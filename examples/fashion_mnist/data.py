"""Fashion-MNIST from the Debian package dataset-fashion-mnist: 28 x 28 grey images of clothes in ten classes.

The files have the format idx: a header of big-endian 32-bit numbers (two bytes of zero, the type, the number of
dimensions; then the size of each dimension), then the bytes of the array.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
UNSIGNED_BYTES = 8  # the only type these files use


class DataMissing(Exception):
    """Raised when the files are not on this computer; the message names the package to install."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array in a gzipped idx file.

    Raises:
        DataMissing: The file does not exist.
        ValueError: It is not an idx file of unsigned bytes.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataMissing(
            f"no {path}: on Debian and Ubuntu run  sudo apt-get install dataset-fashion-mnist ; elsewhere put the four "
            "idx files into a folder on every node and name it in the environment variable FASHION_MNIST"
        ) from None
    zero, kind, dimensions = int.from_bytes(content[:2], "big"), content[2], content[3]
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    if zero != 0 or kind != UNSIGNED_BYTES or len(content) != start + shape.prod():
        raise ValueError(f"{path} is not an idx file of unsigned bytes, or is cut off")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load(part: str, first: int, last: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the images and labels from number `first` up to, but not including, `last`.

    Args:
        part: "train" (60,000 images) or "t10k" (10,000 more).
        first: Number of the first image; numbers start at 0.
        last: Number after the last image.

    Returns:
        Images of shape (n, 1, 14, 14): the mean of each 2 x 2 pixels, shifted and scaled to a mean near 0 and a standard
        deviation near 1. Labels of shape (n,), 0 .. 9.
    """
    pixels = read_idx(FOLDER / f"{part}-images-idx3-ubyte.gz")[first:last]
    labels = read_idx(FOLDER / f"{part}-labels-idx1-ubyte.gz")[first:last]
    # A quarter of the pixels needs a quarter of the time, and the classes can still be distinguished.
    halved = pixels.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5), dtype=np.float32)
    return (halved / 255 - np.float32(0.29)) / np.float32(0.33), labels.astype(np.int64)
