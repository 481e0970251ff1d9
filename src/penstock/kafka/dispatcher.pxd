# The C types of dispatcher.py, for the compiled build.
cimport cython

from penstock.kafka.call cimport Call


cdef long long REQUEST_BYTES_MAX
cdef long long _START_BYTES
cdef long long _PRODUCE
cdef long long _API_VERSIONS


cdef class Dispatcher:
    cdef object _context

    @cython.locals(
        size=Py_ssize_t, key=int, version=int, correlation_id=int, client_id_bytes=Py_ssize_t,
        position=Py_ssize_t, call=Call
    )
    cpdef handle(self, frame, peer, answer)


cdef Py_ssize_t _skip_tags(frame, Py_ssize_t position) except -1
