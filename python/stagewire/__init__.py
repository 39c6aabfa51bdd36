"""stagewire carries typed tensors between the stages of an inference pipeline.

A node publishes a payload (a tree of dicts, lists and scalars with tensors in it) and hands out a ticket; another
node, in another process on this host or a different one, gets it:

    with stagewire.Node() as a, stagewire.Node() as b:
        ticket = a.put("kv", {"k": keys, "v": values})
        kv = b.get(ticket)
"""

from stagewire import _lifecycle as _lifecycle
from stagewire._core import Buffer, Future, Got, Memory, Node, Publication, Region, Released, Ticket, __version__
from stagewire._tensors import dtype_of
from stagewire.connector import Connector, RawPayload
from stagewire.errors import (
    AuthFailed,
    Busy,
    Cancelled,
    Closed,
    ConfigError,
    Consumed,
    DeadlineExceeded,
    DestinationHeld,
    Error,
    Expired,
    Forked,
    InternalError,
    Interrupted,
    InvalidArgument,
    IoError,
    LeaseLost,
    NotFound,
    NotViable,
    PeerLost,
    PeerRestarted,
    PoolExhausted,
    ProtocolError,
    Replaced,
    TooLarge,
    Unreachable,
    VersionMismatch,
)

__all__ = [
    "AuthFailed",
    "Buffer",
    "Busy",
    "Cancelled",
    "Closed",
    "ConfigError",
    "Connector",
    "Consumed",
    "DeadlineExceeded",
    "DestinationHeld",
    "Error",
    "Expired",
    "Forked",
    "Future",
    "Got",
    "InternalError",
    "Interrupted",
    "InvalidArgument",
    "IoError",
    "LeaseLost",
    "Memory",
    "Node",
    "NotFound",
    "NotViable",
    "PeerLost",
    "PeerRestarted",
    "PoolExhausted",
    "ProtocolError",
    "Publication",
    "RawPayload",
    "Region",
    "Released",
    "Replaced",
    "Ticket",
    "TooLarge",
    "Unreachable",
    "VersionMismatch",
    "__version__",
    "dtype_of",
]
