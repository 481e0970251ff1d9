# The C types of reading.py, for the compiled build.
cimport cython

from penstock.log.partition cimport DurablePoint, Partition
from penstock.log.segment cimport Segment


cdef long long _SMALL_BYTES

@cython.locals(place=DurablePoint, at=Py_ssize_t, segment=Segment, position=cython.longlong)
cpdef read(Partition partition, long long offset, long long max_bytes)

@cython.locals(
    limit=cython.longlong, start=Py_ssize_t, size=Py_ssize_t, wanted=cython.longlong
)
cdef _read_at(
    Partition partition, Segment segment, long long position, long long offset, long long max_bytes
)

cdef _pread(Segment segment, long long size, long long position)
