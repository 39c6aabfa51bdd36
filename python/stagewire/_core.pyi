from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Generator, Literal, TypedDict, final, overload

from typing_extensions import Buffer as _BufferProtocol
from typing_extensions import Self

from stagewire.errors import Error

__version__: str

_Framework = Literal["numpy", "torch"]
_Source = Ticket | str | tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, str] | tuple[str, str, str, str, str]
_Reason = Literal["consumed", "cancelled", "replaced", "expired", "closed"]
_Option = bool | int | float | str | PathLike[str] | Sequence[str]

class PoolStats(TypedDict):
    size: int
    used: int
    largest_free: int
    buffers: int
    waiting: int
    peak_used: int
    failed: int
    bad_releases: int
    touched: int

class NodeStats(TypedDict):
    published: int
    leases: int
    waiting_claims: int
    running_gets: int
    sessions: int
    views: int
    quarantined: int
    regions: int
    region_bytes: int
    publish_pool: PoolStats
    receive_pool: PoolStats

@final
class Memory(_BufferProtocol):
    @property
    def nbytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Buffer(_BufferProtocol):
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Region:
    @property
    def nbytes(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self, timeout: float | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

class Got:
    @property
    def value(self) -> Any: ...
    @property
    def generation(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def transport(self) -> str: ...
    @property
    def view(self) -> bool: ...
    @property
    def placement_note(self) -> str: ...

class Ticket:
    @staticmethod
    def parse(text: str) -> Ticket: ...
    @property
    def addresses(self) -> list[str]: ...
    @property
    def node(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def from_stage(self) -> str: ...
    @property
    def to_stage(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

class Future:
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def result(self, timeout: float | None = None) -> Any: ...
    def fileno(self) -> int: ...
    def cancel(self) -> None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...

class Released:
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def result(self, timeout: float | None = None) -> _Reason: ...
    def fileno(self) -> int: ...
    def __await__(self) -> Generator[Any, None, _Reason]: ...

class Publication:
    @property
    def ticket(self) -> Ticket: ...
    @property
    def released(self) -> Released: ...

class Node:
    def __init__(
        self,
        config: Mapping[str, _Option] | None = None,
        *,
        config_file: str | PathLike[str] | None = None,
        environment: bool = True,
        **options: _Option,
    ) -> None: ...
    def put(
        self,
        key: str,
        payload: Any,
        *,
        from_stage: str = "",
        to_stage: str = "",
        namespace: str = "",
        readers: int = 1,
        ttl: float | None = None,
        max_lifetime: float | None = None,
        timeout: float | None = None,
        default: Callable[[Any], Any] | None = None,
    ) -> Ticket: ...
    def allocate(self, nbytes: int, *, timeout: float | None = None) -> Buffer: ...
    def register(self, obj: Any, *, name: str = "region") -> Region: ...
    def put_in_place(
        self,
        key: str,
        payload: Any,
        memory: Buffer | Region | Sequence[Buffer] | Sequence[Region],
        *,
        from_stage: str = "",
        to_stage: str = "",
        namespace: str = "",
        readers: int = 1,
        ttl: float | None = None,
        max_lifetime: float | None = None,
        default: Callable[[Any], Any] | None = None,
    ) -> Publication: ...
    @overload
    def get(
        self,
        source: _Source,
        key: str | None = None,
        *,
        from_stage: str = "",
        to_stage: str = "",
        namespace: str = "",
        timeout: float | None = None,
        view: bool = False,
        into: Any = None,
        reader: str = "",
        framework: _Framework = "numpy",
        details: Literal[False] = False,
        wait: bool = True,
    ) -> Any: ...
    @overload
    def get(
        self,
        source: _Source,
        key: str | None = None,
        *,
        from_stage: str = "",
        to_stage: str = "",
        namespace: str = "",
        timeout: float | None = None,
        view: bool = False,
        into: Any = None,
        reader: str = "",
        framework: _Framework = "numpy",
        details: Literal[True],
        wait: bool = True,
    ) -> Got: ...
    def get_async(
        self,
        source: _Source,
        key: str | None = None,
        *,
        from_stage: str = "",
        to_stage: str = "",
        namespace: str = "",
        timeout: float | None = None,
        view: bool = False,
        into: Any = None,
        reader: str = "",
        framework: _Framework = "numpy",
        details: bool = False,
        wait: bool = True,
    ) -> Future: ...
    @overload
    def get_many(
        self,
        sources: Iterable[_Source],
        *,
        timeout: float | None = None,
        view: bool = False,
        into: list[Any] | None = None,
        reader: str = "",
        framework: _Framework = "numpy",
        details: Literal[False] = False,
        wait: bool = True,
    ) -> list[Any]: ...
    @overload
    def get_many(
        self,
        sources: Iterable[_Source],
        *,
        timeout: float | None = None,
        view: bool = False,
        into: list[Any] | None = None,
        reader: str = "",
        framework: _Framework = "numpy",
        details: Literal[True],
        wait: bool = True,
    ) -> list[Got | Error]: ...
    def withdraw(
        self, what: Ticket | str, *, from_stage: str = "", to_stage: str = "", namespace: str = ""
    ) -> bool: ...
    def withdraw_prefix(self, prefix: str, *, namespace: str = "") -> int: ...
    def withdraw_everywhere(self, key: str, *, namespace: str = "") -> int: ...
    def connect(self, address: str) -> None: ...
    def connected(self, address: str) -> bool: ...
    def listen(self, address: str) -> str: ...
    def unlisten(self, address: str) -> bool: ...
    @property
    def id(self) -> str: ...
    @property
    def addresses(self) -> list[str]: ...
    @property
    def address(self) -> str: ...
    @property
    def config(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def stats(self) -> NodeStats: ...
    def metrics(self) -> str: ...
    def explain(self) -> str: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

class ConnectorCore:
    def __init__(
        self,
        node: Node,
        *,
        role: str,
        host: str,
        port: int,
        sender_host: str,
        sender_port: int,
        namespace: str,
        ttl: float | None,
        put_wait: float | None,
    ) -> None: ...
    def put(
        self, from_stage: str, to_stage: str, key: str, payload: Any, default: Callable[[Any], Any] | None
    ) -> tuple[bool, int, dict[str, Any] | None]: ...
    def get(
        self,
        from_stage: str,
        to_stage: str,
        key: str,
        host: str | None,
        port: int,
        ticket: str | None,
        timeout: float | None,
        framework: str,
    ) -> tuple[Any, int, bool] | None: ...
    def update_sender_info(self, host: str, port: int) -> None: ...
    def cleanup(self, key: str, from_stage: str | None = None, to_stage: str | None = None) -> bool: ...
    def health(self) -> dict[str, Any]: ...
    def take_log(self) -> list[tuple[str, str]]: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def close(self) -> None: ...

def reap_once() -> bool: ...
def close_process() -> None: ...
def forget_after_fork() -> None: ...
def torch_loaded() -> bool: ...
