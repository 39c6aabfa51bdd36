"""torch tensors in and out, and that torch is never imported."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stagewire


NEVER_IMPORTED = """
import sys, stagewire, numpy as np
with stagewire.Node(publish_pool_size="1 MiB", receive_pool_size="1 MiB") as node:
    node.get(node.put("k", [np.zeros(3), bytearray(2)]))
    try:
        node.put("k", object())
    except stagewire.InvalidArgument:
        pass
    try:
        node.get("unix:@x", "k", framework="torch")
    except stagewire.InvalidArgument as error:
        print(error.message)
    assert stagewire.Connector({"role": "receiver", "stagewire": {"publish_pool_size": "1 MiB"}}).health()
assert not [name for name in sys.modules if name.split(".")[0] in ("torch", "vllm", "vllm_omni")]
"""


def test_torch_is_never_imported(peer: Any) -> None:
    out, errors = peer(NEVER_IMPORTED).end(0)
    assert "import it first" in out and errors == ""


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(torch: Any, any_route: tuple[Any, Any], name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        # What this torch lacks arrives as an array even where tensors were asked for.
        sender, receiver = any_route
        sent = np.dtype(getattr(ml_dtypes, name) if name.startswith("float8") else name)
        got = receiver.get(sender.put("k", np.arange(5).astype(sent)), framework="torch")
        assert isinstance(got, np.ndarray) and got.dtype == sent
        return
    sender, receiver = any_route
    tensor = (torch.arange(3000) % 7).to(dtype)
    ticket = sender.put("k", tensor, readers=2)
    assert ticket.size == 3000 * tensor.element_size()
    got = receiver.get(ticket, framework="torch", reader="one")
    assert type(got) is torch.Tensor and got.dtype == dtype and got.shape == (3000,)
    assert torch.equal(got.to(torch.complex128), tensor.to(torch.complex128))
    array = receiver.get(ticket, reader="two")
    assert isinstance(array, np.ndarray) and array.nbytes == ticket.size


def test_layouts(torch: Any, pair: tuple[Any, Any]) -> None:
    base = torch.arange(6000, dtype=torch.float32).reshape(10, 20, 30)
    complex_ = torch.complex(base, base + 1)
    tensors = {
        "0-d": torch.tensor(2.5),
        "empty": torch.zeros((0, 3)),
        "transposed": base.permute(2, 0, 1),
        "strided": base[::2, 1::3, ::5],
        "expanded": torch.ones(1, 5).expand(7, 5),
        "conjugated": complex_.conj(),
        "negated": complex_.conj().imag,
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "graph": torch.ones(3, requires_grad=True) * 2,
    }
    sender, receiver = pair
    got = receiver.get(sender.put("k", tensors), framework="torch")
    for name, tensor in tensors.items():
        assert got[name].shape == tensor.shape and torch.equal(got[name], tensor.detach().resolve_conj()), name
        assert not got[name].requires_grad


def test_what_is_refused(torch: Any, pair: tuple[Any, Any]) -> None:
    for tensor, text in [
        (torch.zeros(3).to_sparse(), "not dense"),
        (torch.zeros(3, device="meta"), "device memory is not supported"),
        (torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8), "cannot be sent"),
    ]:
        with pytest.raises(stagewire.InvalidArgument, match=text):
            pair[0].put("k", [tensor])


def test_tensors_own_writable_memory(torch: Any, pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    ticket = sender.put("k", [torch.ones(100_000)] * 2, readers=2)
    got = receiver.get(ticket, framework="torch", reader="a")
    assert got[0] is got[1]
    got[0].fill_(7)
    assert receiver.get(ticket, framework="torch", reader="b")[0].max() == 1
    part = got[0][5:6]
    del got
    gc.collect()
    assert part[0] == 7 and receiver.stats()["receive_pool"]["used"] > 0
    del part
    gc.collect()
    assert receiver.stats()["receive_pool"]["used"] == 0


def test_a_view_is_given_where_it_is_asked_for(torch: Any, pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    got = receiver.get(sender.put("k", torch.arange(100_000)), framework="torch", view=True, details=True)
    assert got.view and torch.equal(got.value, torch.arange(100_000))
    assert receiver.stats()["views"] == 1
    del got
    gc.collect()
    assert receiver.stats()["views"] == 0


def test_into_tensors(torch: Any, any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    values = [torch.arange(1000.0), torch.arange(50)]
    into = [torch.zeros(1000), torch.zeros(50, dtype=torch.int64)]
    got = receiver.get(sender.put("k", values), into=into, framework="torch")
    for one, destination, value in zip(got, into, values, strict=True):
        assert torch.equal(one, value) and torch.equal(destination, value)
        assert one.data_ptr() == destination.data_ptr()
    with pytest.raises(stagewire.InvalidArgument, match="not contiguous"):
        receiver.get(sender.put("k", values[0]), into=torch.zeros(2000)[::2])
