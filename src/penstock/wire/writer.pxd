# The C types of writer.py, for the compiled build.
cimport cython


cdef class Writer:
    cdef bint _flexible
    cdef list _parts
    cdef bytearray _text
    cdef Py_ssize_t _used

    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _room(self, Py_ssize_t size) except -1
    cpdef int16(self, short value)
    cpdef int32(self, int value)
    cpdef int64(self, long long value)
    cpdef raw(self, bytes data)
    cpdef byte(self, unsigned char value)
    cpdef varint(self, unsigned long long value)
    cpdef length(self, long long value)
    cpdef string(self, text)
    cpdef topic(self, name, topic_id)
    cpdef end(self)
    @cython.locals(size=Py_ssize_t)
    cpdef records(self, data)
    cdef _close_piece(self)
    @cython.locals(size=Py_ssize_t)
    cpdef list finish(self)
