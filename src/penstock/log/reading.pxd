# The C types of reading.py, for the compiled build.
cimport cython

from penstock.log.partition cimport DurablePoint, Partition
from penstock.log.segment cimport Segment


cdef long long _SMALL_BYTES
cdef long long NO_END

@cython.locals(place=DurablePoint, at=Py_ssize_t, segment=Segment, position=cython.longlong)
cpdef read(Partition partition, long long offset, long long max_bytes, long long end=*)

@cython.locals(segment=Segment)
cpdef long long record_bytes(Partition partition, long long offset) except -1

@cython.locals(
    limit=cython.longlong, start=Py_ssize_t, size=Py_ssize_t, wanted=cython.longlong
)
cdef _read_at(
    Partition partition,
    Segment segment,
    long long position,
    long long offset,
    long long max_bytes,
    stop,
)

@cython.locals(start=Py_ssize_t, size=Py_ssize_t)
cdef tuple _find(
    Partition partition, Segment segment, object data, long long position, long long offset
)

cdef _pread(Segment segment, long long size, long long position)
