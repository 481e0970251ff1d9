# The C types of topic.py, for the compiled build.
from penstock.log.partition cimport Partition


cdef class Topic:
    cdef public object entry
    cdef public list partitions
    cdef public long long largest_batch
    cdef public bint takes_batches_as_they_are
    cdef public bint needs_keys
    cdef object _config

    cpdef Partition partition(self, long long number)
