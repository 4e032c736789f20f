"""What railshmem raises, grouped by what the caller must do next."""


class RailshmemError(Exception):
    """Base of all errors of this library."""


class ArgumentError(RailshmemError, ValueError):
    """Fix the call; nothing was sent."""


class HeapExhausted(RailshmemError, MemoryError):
    """Free symmetric memory, or raise RAILSHMEM_HEAP_SIZE."""


class InitError(RailshmemError):
    """Fix the environment the message names, and start again."""


class WaitTimeout(RailshmemError, TimeoutError):
    """A wait ended at its deadline (RAILSHMEM_TIMEOUT_S); the message says what it waited for."""


class NetworkError(RailshmemError, ConnectionError):
    """A NIC answered with an error: the message names peer, rail, operation and address."""


class PeerLost(RailshmemError, ConnectionError):
    """The process of another PE has ended: restart the job."""


class JobAborted(RailshmemError):
    """The job is being ended: restart it."""


class GpuError(RailshmemError):
    """The GPU's driver refused a call, or kernels for it cannot be had; the message says which."""
