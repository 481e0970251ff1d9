# The C types of fetch.py, for the compiled build.
cimport cython

from penstock.broker.topic cimport Topic
from penstock.kafka.call cimport Call
from penstock.log.partition cimport Partition
from penstock.log.reading cimport read
from penstock.wire.requests cimport FetchPartition, FetchRequest, parse_fetch

cdef long long _NONE


@cython.locals(request=FetchRequest)
cpdef handle(Call call)


cdef class Found:
    cdef public object key
    cdef public FetchPartition wanted
    cdef public Partition partition
    cdef public long long code
    cdef public object data


cdef class Fetch:
    cdef Call _call
    cdef FetchRequest _request
    cdef dict _wanted
    cdef object _session
    cdef bint _incremental
    cdef list _watched
    cdef object _timer
    cdef long long _arrived
    cdef int _cold_tries
    cdef bint _done

    @cython.locals(size=cython.longlong, failed=bint, item=Found, request=FetchRequest)
    cpdef start(self)
    @cython.locals(partition=Partition)
    cdef _watch(self, list partitions)
    cpdef advanced(self, Partition partition, long long added_bytes)
    cpdef finish(self)
    @cython.locals(partition=Partition)
    cdef _stop_waiting(self)
    cdef list _read_all(self)
    @cython.locals(
        room=cython.longlong, taken=cython.longlong, limit=cython.longlong, item=Found,
        wanted=FetchPartition,
    )
    cdef list _read(self)
    @cython.locals(topic=Topic)
    cdef Partition _partition(self, key)
    @cython.locals(version=int, flexible=bint, answer=_Answer, item=Found)
    cdef _answer(self, list found)
    @cython.locals(item=Found)
    cdef _remember(self, list found)


cdef class _Answer:
    cdef int version
    cdef bint flexible
    cdef list parts
    cdef bytearray text

    @cython.locals(partition=Partition, end=cython.longlong)
    cdef add(self, Found item)
