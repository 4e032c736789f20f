"""`railshmem model`: what dispatch, combine and init would take on a cluster that is not there.

Rails, forwarders and queue pairs come from the code that jobs use (`_core.model`), tokens are drawn
and counted one by one (`traffic.py`), and a network is a handful of numbers (`network.py`) that
`railshmem model fit` takes from measurements.
"""
