"""What all readers share: errors that name the file, and limits of size."""

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.scene import DT, Kind

MOST_BYTES = 256 << 20  # of any file, and of what it unpacks to
MOST_STATES = 5_000_000  # tracks times steps
KINDS = {
    "pedestrian": Kind.PEDESTRIAN,
    "stroller": Kind.PEDESTRIAN,
    "wheelchair": Kind.PEDESTRIAN,
    "bicycle": Kind.BICYCLE,
    "bicyclist": Kind.BICYCLE,
    "cyclist": Kind.BICYCLE,
    "wheeled_rider": Kind.BICYCLE,
    "bollard": Kind.STATIC,
    "construction_cone": Kind.STATIC,
    "construction_barrel": Kind.STATIC,
    "constructionzone": Kind.STATIC,
    "roadboundary": Kind.STATIC,
    "sign": Kind.STATIC,
    "stop_sign": Kind.STATIC,
    "mobile_pedestrian_crossing_sign": Kind.STATIC,
    "traffic_cone": Kind.STATIC,
    "traffic_barrier": Kind.STATIC,
    "message_board_trailer": Kind.STATIC,
}  # every other word is a vehicle
BROKEN = (
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    EOFError,
    MemoryError,
    RuntimeError,  # of archives: encrypted, or packed in another way (NotImplementedError)
    ImportError,
    struct.error,
    SyntaxError,  # this and TokenError: of headers of arrays; XML's ParseError is one too
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    OSError,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error from a damaged or hostile file into one error that names it."""
    try:
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise DjepaError(f"it is larger than {MOST_BYTES >> 20} MiB")
        yield
    except MissingExtraError:
        raise
    except DjepaError as error:
        raise DjepaError(f"Cannot read traffic from {path}: {error}.") from None
    except BROKEN as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise DjepaError(f"Cannot read traffic from {path}: {what}.") from None


def check_extent(tracks: int, steps: int) -> None:
    """Refuse arrays that would fill the memory, before they are made."""
    if steps * tracks > MOST_STATES:
        raise DjepaError(f"{tracks} tracks over {steps} steps are too many")


def speeds(xy: Array) -> Array:
    """(S, 2) positions at 10 Hz, NaN where not seen -> (S,) speeds by central differences."""
    speed = np.zeros(len(xy))
    seen = np.flatnonzero(np.isfinite(xy).all(1))
    if len(seen) > 1:
        moved = np.gradient(xy[seen], seen * DT, axis=0)
        speed[seen] = np.hypot(*moved.T)
    speed[np.isnan(xy).any(1)] = np.nan
    return speed
