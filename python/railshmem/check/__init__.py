"""`railshmem check`: whether hosts are set up for their networks, and do what they should.

`host/` looks at each host's files; the rest runs the job's traffic and compares what arrives.
"""
