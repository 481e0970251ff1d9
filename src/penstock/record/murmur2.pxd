# The C types of murmur2.py, for the compiled build.
cimport cython


cdef unsigned int _SEED
cdef unsigned int _FACTOR
cdef unsigned int _32_BITS
cdef unsigned int _31_BITS


cpdef long long partition_of(bytes key, long long partitions) except -1
@cython.locals(
    size=Py_ssize_t, whole=Py_ssize_t, at=Py_ssize_t, rest=Py_ssize_t,
    value=cython.uint, block=cython.uint,
)
cpdef unsigned int murmur2(bytes data) except? 0
