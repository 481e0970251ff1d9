# The C types of producers.py, for the compiled build.
cimport cython

from penstock.record.batch cimport BatchHeader


cdef long long NO_PRODUCER
cdef long long _SEQUENCE_MAX


cdef class Producer:
    cdef public long long epoch
    cdef public list batches
    cdef public long long last_timestamp


cdef class ProducerTable:
    cdef object _producers
    cdef long long _newest_timestamp

    @cython.locals(producer=Producer, first=cython.longlong, last=cython.longlong)
    cpdef find_duplicate(self, BatchHeader header)
    @cython.locals(producer=Producer, first=cython.longlong, last=cython.longlong)
    cpdef appended(self, BatchHeader header, long long base_offset)


cpdef long long sequence_after(long long sequence, long long count)
