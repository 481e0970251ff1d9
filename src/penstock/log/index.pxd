# The C types of index.py, for the compiled build.


cdef class SparseIndex:
    cdef object _files
    cdef public object path
    cdef object _entry
    cdef object _file
    cdef bytearray _buffer
    cdef long long _flushed
    cdef object _expected

    cpdef add(self, long long key, long long value)
