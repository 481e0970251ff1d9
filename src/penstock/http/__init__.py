"""The HTTP port's app: routes, JSON, errors. It knows no sockets; server/http_connection.py does."""
