"""Arrays as msgpack, for the server and its client; numpy alone, no torch.

An array is its type, its shape and its bytes, little-endian and in C order; nothing is unpickled.
"""

import math
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError

Kind = Literal["|u1", "|b1", "<f4", "<f8", "<i8"]
Named = dict[str, npt.NDArray[Any]]


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array."""

    dtype: Kind
    shape: tuple[int, ...]
    data: bytes

    def numpy(self, name: str) -> npt.NDArray[Any]:
        """The array; an error if the number of its bytes does not fit its shape."""
        dtype = np.dtype(self.dtype)
        if min(self.shape, default=1) < 0 or math.prod(self.shape) * dtype.itemsize != len(
            self.data
        ):
            raise DjepaError(f"{name} of shape {self.shape} does not have {len(self.data)} bytes.")
        return np.frombuffer(self.data, dtype).reshape(self.shape)


def pack(arrays: Named) -> bytes:
    """Arrays by name -> msgpack."""
    found = {}
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        kind = array.dtype.newbyteorder("<").str
        found[name] = {"dtype": kind, "shape": array.shape, "data": array.astype(kind).tobytes()}
    return msgspec.msgpack.encode(found)


def unpack(data: bytes) -> Named:
    """Msgpack -> arrays by name."""
    try:
        found = msgspec.msgpack.decode(data, type=dict[str, Array])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DjepaError(f"This is no msgpack of arrays: {error}.") from None
    return {name: array.numpy(name) for name, array in found.items()}
