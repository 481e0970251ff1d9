# The C types of columns.py, for the compiled build.
cimport cython

from penstock.record.batch cimport BatchHeader
from penstock.record.spans cimport Cursor


cdef int _NEWLINE
cdef int _SPACE


@cython.final
cdef class ByteColumn:
    cdef public bytearray ends
    cdef public bytearray data
    cdef public bytearray valid
    cdef public Py_ssize_t nulls
    cdef public Py_ssize_t used
    cdef int[::1] _ends
    cdef unsigned char[::1] _data
    cdef unsigned char[::1] _valid

    cdef add(self, Py_ssize_t row, bytes source, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(at=Py_ssize_t)
    cdef add_line(self, Py_ssize_t row, bytes source, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(at=Py_ssize_t)
    cdef _copy(self, bytes source, Py_ssize_t start, Py_ssize_t length)


@cython.locals(index=Py_ssize_t)
cdef _blank_newlines(unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end)


@cython.final
cdef class Columns:
    cdef public Py_ssize_t rows
    cdef public bint lines
    cdef public bytearray offsets
    cdef public bytearray timestamps
    cdef public ByteColumn keys
    cdef public ByteColumn values
    cdef long long[::1] _offsets
    cdef long long[::1] _timestamps

    @cython.locals(
        cursor=Cursor, size=Py_ssize_t, append_time=cython.bint, record_end=Py_ssize_t,
        length=cython.longlong, timestamp_delta=cython.longlong, offset=cython.longlong,
        key_length=cython.longlong, key_start=Py_ssize_t, value_length=cython.longlong,
        value_start=Py_ssize_t, row=Py_ssize_t,
    )
    cpdef add(self, BatchHeader header, bytes data, long long first, long long end)
