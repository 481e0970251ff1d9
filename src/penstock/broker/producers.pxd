# The C types of producers.py, for the compiled build.
cimport cython

from penstock.record.batch cimport BatchHeader


cdef long long NO_PRODUCER
cdef long long _SEQUENCE_MAX
cdef long long TRANSACTIONAL_FLAG


cdef class Producer:
    cdef public long long epoch
    cdef public list batches
    cdef public long long last_timestamp
    cdef public double seen_at
    cdef public long long transaction_start


cdef class ProducerTable:
    cdef object _clock
    cdef object _producers
    cdef long long _newest_timestamp
    cdef dict _open
    cdef readonly list _ending
    cdef list _aborted

    @cython.locals(producer=Producer, first=cython.longlong, last=cython.longlong)
    cpdef find_duplicate(self, BatchHeader header)
    @cython.locals(producer=Producer, first=cython.longlong, last=cython.longlong)
    cpdef appended(self, BatchHeader header, long long base_offset)
    @cython.locals(producer=Producer)
    cdef Producer _producer(self, BatchHeader header)
    cpdef long long last_stable_offset(self, long long durable_offset) except? -1


cpdef long long sequence_after(long long sequence, long long count)
