# The C types of outbox.py, for the compiled build.
cimport cython


cdef class Outbox:
    cdef object _loop
    cdef readonly object socket
    cdef object _send
    cdef object _parts
    cdef object _progressed
    cdef object _broken
    cdef bint _watching
    cdef public long long waiting_bytes

    cpdef send(self, list parts)
    @cython.locals(sent=Py_ssize_t)
    cdef bint _sent_whole(self, part) except -1
