"""Where the batches of a query go, each of them exactly once unless its module says otherwise."""
