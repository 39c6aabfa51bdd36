"""The exceptions of stagewire. Each kind of the core's errors has its class; `kind` is the core's name of it."""

from __future__ import annotations


class Error(Exception):
    """What went wrong: `kind`, with the `operation`, `key`, `peer` and `transport` as far as they are known."""

    kind: str = "internal"

    def __init__(
        self,
        message: str = "",
        *,
        operation: str = "",
        key: str = "",
        peer: str = "",
        transport: str = "",
        cause: Error | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operation = operation
        self.key = key
        self.peer = peer
        self.transport = transport
        self.cause = cause

    def __str__(self) -> str:
        parts = [self.operation] if self.operation else []
        for name in ("key", "peer", "transport"):
            if value := getattr(self, name):
                parts.append(f"{name}={value}")
        text = f"{self.kind}: {self.message}"
        if parts:
            text = f"{' '.join(parts)}: {text}"
        return f"{text} (caused by {self.cause})" if self.cause is not None else text

    def __reduce__(self) -> tuple[object, ...]:
        # Keywords do not survive the way Exception is pickled.
        fields = (self.kind, self.message, self.operation, self.key, self.peer, self.transport, self.cause)
        return make, fields


class InvalidArgument(Error, ValueError):
    """The caller's argument is wrong; nothing was done."""

    kind = "invalid_argument"


class ConfigError(Error, ValueError):
    """A configuration value, file or variable is wrong."""

    kind = "config"


class DeadlineExceeded(Error, TimeoutError):
    """The operation's deadline passed."""

    kind = "deadline_exceeded"


class Cancelled(Error):
    """The owner or the caller withdrew it."""

    kind = "cancelled"


class Replaced(Error):
    """A newer generation of the key was published."""

    kind = "replaced"


class Expired(Error):
    """The payload's time to live or maximum lifetime ran out."""

    kind = "expired"


class Consumed(Error):
    """Every owed reader, or this one, already has this generation."""

    kind = "consumed"


class NotFound(Error):
    """The key is not published, and the caller asked not to wait."""

    kind = "not_found"


class PeerRestarted(Error, ConnectionError):
    """The process at the address is not the one the ticket names."""

    kind = "peer_restarted"


class PeerLost(Error, ConnectionError):
    """The peer died, or the session to it was lost and not regained in time."""

    kind = "peer_lost"


class LeaseLost(Error):
    """The lease ended before the read was complete."""

    kind = "lease_lost"


class Unreachable(Error, ConnectionError):
    """No connection to the address could be made."""

    kind = "unreachable"


class AuthFailed(Error, ConnectionError):
    """The peer did not prove knowledge of the secret, or none is configured for this route."""

    kind = "auth_failed"


class ProtocolError(Error, ConnectionError):
    """The peer sent something that the protocol does not allow."""

    kind = "protocol"


class VersionMismatch(Error, ConnectionError):
    """There is no protocol version that both sides speak."""

    kind = "version_mismatch"


class PoolExhausted(Error, MemoryError):
    """No pool memory became free before the deadline."""

    kind = "pool_exhausted"


class TooLarge(Error, ValueError):
    """Larger than a bound that waiting cannot change."""

    kind = "too_large"


class DestinationHeld(Error):
    """The read could not be proven over; its destination stays referenced."""

    kind = "destination_held"


class NotViable(Error):
    """No transport can do this between these two places."""

    kind = "not_viable"


class Busy(Error):
    """A bounded table is full."""

    kind = "busy"


class Closed(Error, RuntimeError):
    """The node, connector or handle was closed."""

    kind = "closed"


class Forked(Error, RuntimeError):
    """The handle belongs to the parent process of a fork."""

    kind = "forked"


class Interrupted(Error):
    """A signal ended the wait."""

    kind = "interrupted"


class IoError(Error, OSError):
    """The operating system refused."""

    kind = "io"


class InternalError(Error, RuntimeError):
    """A broken invariant of stagewire itself."""

    kind = "internal"


_CLASSES: dict[str, type[Error]] = {
    cls.kind: cls
    for cls in (
        AuthFailed,
        Busy,
        Cancelled,
        Closed,
        ConfigError,
        Consumed,
        DeadlineExceeded,
        DestinationHeld,
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
}


def make(
    kind: str, message: str, operation: str, key: str, peer: str, transport: str, cause: Error | None
) -> Error:
    """The exception of an error of the core."""
    error = _CLASSES.get(kind, InternalError)(
        message, operation=operation, key=key, peer=peer, transport=transport, cause=cause
    )
    error.__cause__ = cause
    return error
