"""`railshmem check`: whether this machine does what the library relies on."""

from railshmem.check.job import check_machine

__all__ = ["check_machine"]
