"""The event loop, listeners and connections; builds everything and stops it in reverse."""
