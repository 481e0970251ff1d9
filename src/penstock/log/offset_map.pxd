# The C types of offset_map.py, for the compiled build.
cimport cython
from cpython cimport array


cdef long long _FREE


cdef class OffsetMap:
    cdef Py_ssize_t _count
    cdef Py_ssize_t _slots
    cdef array.array _table

    @cython.locals(high=cython.longlong, low=cython.longlong)
    cpdef put(self, bytes key, long long offset)
    @cython.locals(high=cython.longlong, low=cython.longlong)
    cpdef long long get(self, bytes key) except? -2
    @cython.locals(table=cython.longlong[::1], mask=cython.longlong, slot=cython.longlong)
    cdef long long _slot(self, long long high, long long low) except? -2
    @cython.locals(table=cython.longlong[::1], at=cython.longlong)
    cdef _put(self, long long high, long long low, long long offset)
    @cython.locals(old=cython.longlong[::1], at=Py_ssize_t)
    cdef _grow(self)
