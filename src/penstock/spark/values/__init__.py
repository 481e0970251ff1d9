"""What the bytes of a value are read as."""
