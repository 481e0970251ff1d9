# The C types of segment.py, for the compiled build.
cimport cython

from penstock.log.index cimport SparseIndex
from penstock.record.batch cimport BatchHeader


cdef long long LENGTH_OVERHEAD


cdef class Segment:
    cdef object _files
    cdef object _file
    cdef long long _interval
    cdef long long _bytes_since_entry
    cdef long long _indexed_timestamp
    cdef public bint has_its_names
    cdef public long long room_end
    cdef public object folder
    cdef public long long base_offset
    cdef public long long next_offset
    cdef public long long size
    cdef public long long batches
    cdef public long long checkpointed_bytes
    cdef public long long checkpointed_batches
    cdef public long long first_timestamp
    cdef public long long max_timestamp
    cdef public long long max_timestamp_offset
    cdef public SparseIndex offsets
    cdef public SparseIndex times

    cpdef append(self, BatchHeader header, long long base_offset, data)
    @cython.locals(last_offset=cython.longlong, size=cython.longlong)
    cpdef note(self, BatchHeader header, long long base_offset)
    cdef _note_time(self)
