"""Topics, producers, appending: what a broker does, without a protocol and without a loop."""
