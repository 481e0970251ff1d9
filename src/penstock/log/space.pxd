# The C types of space.py, for the compiled build.


cdef class DiskSpace:
    cdef object _files
    cdef object _folder
    cdef object _clock
    cdef object _free_bytes_min
    cdef object _reserve_bytes
    cdef object _open_again_bytes
    cdef object _reserve
    cdef double _looked_at
    cdef long long _since_look
    cdef public bint full

    cpdef check(self, long long size=*)
