# The C types of appending.py, for the compiled build.
cimport cython

from penstock.broker.topic cimport Topic
from penstock.log.commit cimport GroupCommit
from penstock.log.partition cimport Partition
from penstock.log.space cimport DiskSpace
from penstock.record.batch cimport BatchHeader, checked, parse


cdef long long LENGTH_OVERHEAD
cdef long long NO_PRODUCER
cdef long long CODEC_MASK
cdef long long CODEC_MAX
cdef long long CONTROL_FLAG
cdef long long TRANSACTIONAL_FLAG
cdef long long NO_TIMESTAMP


cdef class Appended:
    cdef public long long base_offset
    cdef public long long append_time


cdef class Appender:
    cdef GroupCommit _commit
    cdef DiskSpace _space
    cdef object _clock
    cdef public object enlist

    @cython.locals(header=BatchHeader, base_offset=cython.longlong)
    cpdef Appended append(self, Topic topic, Partition partition, data, bint begins=*)
    cdef _check_timestamp(self, Topic topic, BatchHeader header)


@cython.locals(count=cython.longlong)
cdef _check_batch(Topic topic, BatchHeader header, long long size)
