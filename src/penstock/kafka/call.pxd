# The C types of call.py, for the compiled build.
cimport cython


cdef class Call:
    cdef public object context
    cdef public object peer
    cdef public object answer
    cdef public int version
    cdef public int correlation_id
    cdef public object frame
    cdef public Py_ssize_t body_start

    @cython.locals(size=Py_ssize_t)
    cpdef reply_parts(self, parts, bint flexible)
