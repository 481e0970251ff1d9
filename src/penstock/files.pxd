# The C types of files.py, for the compiled build.
cdef class FileSlice:
    cdef public object file
    cdef public long long position
    cdef public long long size


cdef class OsFile:
    cdef int _fd
    cdef public object path

    cpdef pwrite(self, data, long long position)
    cdef bint _wrote_at_once(self, data, long long position) except -1
