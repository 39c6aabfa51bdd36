"""Element types: which NumPy and torch dtype is which of the core's, and what stands in where one is missing.

The order is that of the core's numbers (stagewire::DType).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

NAMES = (
    "bool",
    "u8",
    "u16",
    "u32",
    "u64",
    "i8",
    "i16",
    "i32",
    "i64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "f8_e4m3fn",
    "f8_e5m2",
    "c64",
    "c128",
)
_CODES = {name: code for code, name in enumerate(NAMES)}

_NUMPY = {
    "bool": "?",
    "u8": "u1",
    "u16": "u2",
    "u32": "u4",
    "u64": "u8",
    "i8": "i1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
    "c64": "c8",
    "c128": "c16",
}
# What NumPy lacks: the name in ml_dtypes, and the unsigned integer that stands in without it.
_EXTENSIONS = {
    "bf16": ("bfloat16", "u2"),
    "f8_e4m3fn": ("float8_e4m3fn", "u1"),
    "f8_e5m2": ("float8_e5m2", "u1"),
}
_TORCH = {
    "bool": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "c64": "complex64",
    "c128": "complex128",
}
_METADATA = "stagewire"


def _ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes


def numpy_dtypes() -> tuple[np.dtype[Any], ...]:
    """The dtype that a received tensor of each type gets."""
    extensions = _ml_dtypes()
    made: list[np.dtype[Any]] = []
    for name in NAMES:
        if name in _NUMPY:
            made.append(np.dtype(_NUMPY[name]))
            continue
        attribute, stand_in = _EXTENSIONS[name]
        scalar = getattr(extensions, attribute, None)
        if scalar is not None:
            made.append(np.dtype(scalar))
        else:
            # The integers know what they are: slices and views keep a dtype's metadata.
            made.append(np.dtype(stand_in, metadata={_METADATA: name}))
    return tuple(made)


def _name_of(dtype: np.dtype[Any]) -> str | None:
    if dtype.metadata and _METADATA in dtype.metadata:
        return str(dtype.metadata[_METADATA])
    for name, (attribute, _) in _EXTENSIONS.items():
        if dtype.name == attribute:
            return name
    if not dtype.isnative:
        return None
    # By kind and width: on some platforms two NumPy types share them.
    if dtype.kind in "biufc":
        for name, text in _NUMPY.items():
            known = np.dtype(text)
            if known.kind == dtype.kind and known.itemsize == dtype.itemsize:
                return name
    return None


def code_of_numpy(dtype: np.dtype[Any]) -> int:
    """The core's number of a NumPy dtype. Raises InvalidArgument."""
    name = _name_of(dtype)
    if name is not None:
        return _CODES[name]
    from stagewire.errors import InvalidArgument

    if dtype.hasobject:
        why = "Python objects have no fixed bytes; send lists, dicts and numbers as such"
    elif not dtype.isnative:
        why = "its byte order is not this machine's; use array.astype(array.dtype.newbyteorder('='))"
    elif dtype.kind in "mM":
        why = "send dates and times as integers: array.view('i8')"
    elif dtype.kind in "SUT":
        why = "send text as a list of str"
    elif dtype.names is not None:
        why = "send each field as an array of its own"
    else:
        why = f"expected one of {', '.join(NAMES)}"
    raise InvalidArgument(f"an array of dtype {dtype} cannot be sent: {why}", operation="put")


def dtype_of(array: Any) -> str:
    """The element type of a received array or tensor by stagewire's name ("bf16", "f32", …): also that of the unsigned
    integers which stand in for a type that NumPy lacks while ml_dtypes is not installed."""
    dtype = array.dtype
    if isinstance(dtype, np.dtype):
        return NAMES[code_of_numpy(dtype)]
    torch = sys.modules.get("torch")
    if torch is not None:
        for name, attribute in _TORCH.items():
            if dtype == getattr(torch, attribute, None):
                return name
    from stagewire.errors import InvalidArgument

    raise InvalidArgument(f"elements of type {dtype} cannot be sent: expected one of {', '.join(NAMES)}")


def torch_dtypes(torch: Any) -> tuple[Any, ...]:
    """The torch dtype of each type; None for those that this torch lacks."""
    return tuple(getattr(torch, _TORCH[name], None) for name in NAMES)
