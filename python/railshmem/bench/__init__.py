"""`railshmem bench`: one module per kind, each figure beside its physical limit and its rival."""
