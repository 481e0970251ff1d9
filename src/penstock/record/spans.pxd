# The C types of spans.py, for the compiled build.
cimport cython


cdef unsigned long long _64_BITS


cdef class Span:
    cdef public Py_ssize_t start
    cdef public Py_ssize_t end
    cdef public long long timestamp_delta
    cdef public long long offset_delta
    cdef public Py_ssize_t after_timestamp
    cdef public bytes key
    cdef public bint has_value


cdef class Cursor:
    cdef bytes data
    cdef Py_ssize_t position

    @cython.locals(
        raw=cython.ulonglong, value=cython.longlong, shift=cython.int, position=Py_ssize_t,
        data=bytes, size=Py_ssize_t, byte=cython.ulonglong,
    )
    cdef long long varint(self) except? -2
    @cython.locals(length=cython.longlong, start=Py_ssize_t)
    cdef bytes field(self, Py_ssize_t end)
    @cython.locals(start=Py_ssize_t)
    cdef Py_ssize_t skip(self, long long length, Py_ssize_t end) except -1


@cython.locals(cursor=Cursor, span=Span, length=cython.longlong, end=cython.longlong)
cpdef list spans(bytes data, long long count)
