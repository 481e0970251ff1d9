"""When events happened, and how far time has come."""
