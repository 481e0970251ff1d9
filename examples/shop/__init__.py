"""The demo: an online shop. `make demo` runs it; see demo.py."""
