"""What can be sent, and what comes out: trees, NumPy arrays and other holders of tensors."""

from __future__ import annotations

import array
import collections
import datetime
import enum
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stagewire

EXTENSIONS = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", *EXTENSIONS]


def send(pair: tuple[Any, Any], payload: Any, **options: Any) -> Any:
    sender, receiver = pair
    return receiver.get(sender.put("payload", payload), **options)


def refuse(pair: tuple[Any, Any], payload: Any, *texts: str) -> None:
    with pytest.raises(stagewire.InvalidArgument) as caught:
        pair[0].put("payload", payload)
    for text in texts:
        assert text in str(caught.value)


def test_trees_come_back_as_they_were(any_route: tuple[Any, Any]) -> None:
    tree = {
        "none": None,
        "bools": [True, False],
        "ints": (0, -1, 2**63 - 1, -(2**63), 2**64 - 1),
        "float": [0.5, -0.0, math.inf],
        "text": "é中\0x",
        b"bytes key": b"\x00\xff",
        7: {"nested": [[], (), {}]},
        "tensor": np.arange(5000, dtype=np.float32),
    }
    got = send(any_route, tree)
    tensor = got.pop("tensor")
    expected = {key: value for key, value in tree.items() if key != "tensor"}
    assert got == expected
    assert list(got) == list(expected)
    assert type(got["ints"]) is tuple and type(got["bools"]) is list
    assert [type(flag) for flag in got["bools"]] == [bool, bool]
    assert math.copysign(1, got["float"][1]) == -1
    np.testing.assert_array_equal(tensor, np.arange(5000, dtype=np.float32))


def test_scalars_alone_are_payloads(pair: tuple[Any, Any]) -> None:
    for value in [None, True, 3, "x", b"", 2.5, [], {}]:
        assert send(pair, value) == value
    assert math.isnan(send(pair, math.nan))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(any_route: tuple[Any, Any], dtype: Any) -> None:
    values = (np.arange(3000) % 7).astype(dtype)
    got = send(any_route, values)
    assert got.dtype == values.dtype
    assert got.tobytes() == values.tobytes()
    assert type(got) is np.ndarray and got.flags.writeable and got.flags.c_contiguous


def test_shapes_and_strides(any_route: tuple[Any, Any]) -> None:
    base = np.arange(6000, dtype=np.int32).reshape(10, 20, 30)
    tensors = {
        "0-d": np.array(7.5),
        "empty": np.zeros((0, 3), np.float16),
        "transposed": base.transpose(2, 0, 1),
        "negative": base[::-1, ::2, ::-3],
        "broadcast": np.broadcast_to(np.float32(2), (40, 50)),
        "fortran": np.asfortranarray(base),
        "unaligned": np.frombuffer(b"x" + base.tobytes(), np.int32, offset=1),
    }
    got = send(any_route, tensors)
    for name, tensor in tensors.items():
        assert got[name].shape == tensor.shape, name
        assert got[name].dtype == tensor.dtype, name
        np.testing.assert_array_equal(got[name], tensor, err_msg=name)


def test_the_same_tensor_twice_is_stored_once_and_comes_back_once(pair: tuple[Any, Any]) -> None:
    one = np.ones(100_000, np.uint8)
    ticket = pair[0].put("k", [one, {"again": one}, one.copy()])
    assert ticket.size == 200_000
    got = pair[1].get(ticket)
    assert got[0] is got[1]["again"]
    assert got[0] is not got[2]


def test_numpy_scalars_come_back_as_tensors_without_dimensions(pair: tuple[Any, Any]) -> None:
    for scalar in [np.float32(1.5), np.float64(2.5), np.int64(-3), np.bool_(True), ml_dtypes.bfloat16(4)]:
        got = send(pair, scalar)
        assert got.shape == () and got.dtype == scalar.dtype and got == scalar
    assert send(pair, np.str_("text")) == "text"


def test_other_holders_of_tensors(pair: tuple[Any, Any]) -> None:
    got = send(pair, {"bytearray": bytearray(b"abc"), "view": memoryview(b"abcdef")[::2], "array": array.array("d", [1, 2])})
    np.testing.assert_array_equal(got["bytearray"], np.frombuffer(b"abc", np.uint8))
    np.testing.assert_array_equal(got["view"], np.frombuffer(b"ace", np.uint8))
    np.testing.assert_array_equal(got["array"], np.array([1.0, 2.0]))


class OnlyDlpack:
    """Hands out an array the way a foreign framework would, with or without versions."""

    def __init__(self, values: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0), versioned: bool = True) -> None:
        self.values, self.device, self.versioned = values, device, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("no such argument")
        if options and np.lib.NumpyVersion(np.__version__) < "2.1.0":
            options = {}
        return self.values.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(pair: tuple[Any, Any], versioned: bool) -> None:
    values = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(send(pair, OnlyDlpack(values[:, ::2], versioned=versioned)), values[:, ::2])


def test_device_memory_is_refused_by_name(pair: tuple[Any, Any]) -> None:
    refuse(pair, OnlyDlpack(np.zeros(3), device=(2, 0)), "device memory is not supported")


def test_a_fallback_makes_known_what_is_not(pair: tuple[Any, Any]) -> None:
    when = datetime.date(2020, 1, 2)
    sender, receiver = pair
    got = receiver.get(sender.put("k", {"when": [when]}, default=lambda value: value.isoformat()))
    assert got == {"when": ["2020-01-02"]}
    with pytest.raises(stagewire.InvalidArgument):
        sender.put("k", when, default=lambda value: value)
    with pytest.raises(ZeroDivisionError):
        sender.put("k", when, default=lambda value: 1 / 0)


def test_subclasses_are_what_they_derive_from(pair: tuple[Any, Any]) -> None:
    class Color(str, enum.Enum):
        RED = "red"

    class Number(enum.IntEnum):
        ONE = 1

    Point = collections.namedtuple("Point", "x y")
    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    got = send(pair, [Color.RED, Number.ONE, Point(1, 2), ordered])
    assert got == ["red", 1, (1, 2), {"b": 2, "a": 1}]
    assert list(got[3]) == ["b", "a"]


def test_what_cannot_be_sent_says_where_and_why(pair: tuple[Any, Any]) -> None:
    refuse(pair, {"a": [1, {2, 3}]}, "payload['a'][1]", "of type set")
    refuse(pair, np.array([object()]), "dtype object")
    refuse(pair, np.zeros(3, ">f4"), "byte order")
    refuse(pair, np.array(["x"]), "text")
    refuse(pair, np.array(["2020-01-01"], "M8[D]"), "dates")
    refuse(pair, np.zeros(2, [("a", "f4")]), "field")
    refuse(pair, np.zeros(2, np.longdouble), "cannot be sent")
    refuse(pair, np.ma.masked_array([1, 2], [0, 1]), "masked")
    refuse(pair, array.array("u", "x"), "format")
    refuse(pair, 2**64, "outside the range")
    refuse(pair, {2**63: 1}, "key outside")
    refuse(pair, {1.5: 1}, "key of type float")
    refuse(pair, {True: 1}, "key of type bool")
    refuse(pair, "\ud800", "surrogate")


def test_cycles_and_deep_nesting_are_refused(pair: tuple[Any, Any]) -> None:
    cycle: list[Any] = []
    cycle.append({"back": cycle})
    refuse(pair, cycle, "contains itself")
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    assert send(pair, deep) == deep
    refuse(pair, [deep], "64 containers deep")


def test_the_callers_memory_is_its_own_after_put(pair: tuple[Any, Any]) -> None:
    values = np.zeros(100_000, np.int64)
    ticket = pair[0].put("k", values)
    values[:] = 1
    assert not pair[1].get(ticket).any()


STAND_IN = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, stagewire
with stagewire.Node(publish_pool_size="16 MiB", receive_pool_size="16 MiB") as node:
    got = node.get(sys.argv[1])
    for name, array in got.items():
        assert array.dtype.kind == "u" and array.dtype.itemsize == (2 if name == "bf16" else 1), array.dtype
        assert stagewire.dtype_of(array) == name and stagewire.dtype_of(array[1:]) == name
        print(name, array.tobytes().hex())
    back = node.get(node.put("again", got))
    assert [stagewire.dtype_of(array) for array in back.values()] == list(got)
"""


def test_without_ml_dtypes_integers_know_what_they_are(make_node: Any, peer: Any) -> None:
    tensors = {
        name: np.arange(4).astype(dtype) for name, dtype in zip(["bf16", "f8_e4m3fn", "f8_e5m2"], EXTENSIONS, strict=True)
    }
    assert [stagewire.dtype_of(tensor) for tensor in tensors.values()] == list(tensors)
    out, _ = peer(STAND_IN, str(make_node().put("k", tensors))).end()
    assert out.splitlines() == [f"{name} {tensor.tobytes().hex()}" for name, tensor in tensors.items()]
