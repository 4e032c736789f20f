"""`railshmem check --host`: whether a host is set up for RoCE, InfiniBand, EFA or TCP.

Everything is read below one folder, a `Tree`, so that tests have hosts of their own. Nothing here
communicates or opens a device.
"""
