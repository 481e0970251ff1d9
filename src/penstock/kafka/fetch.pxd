# The C types of fetch.py, for the compiled build.
cimport cython

from penstock.kafka.call cimport Call
from penstock.log.partition cimport Partition
from penstock.log.reading cimport read, record_bytes
from penstock.wire.requests cimport (
    FetchPartition, FetchRequest, PartitionKey, TopicKey, parse_fetch,
)
from penstock.wire.writer cimport Writer

cdef long long FETCH_BYTES_ENOUGH_HERE
cdef long long FETCH_RECORDS_ENOUGH_HERE
cdef long long FETCH_RESPONSE_BYTES_MAX
cdef long long FETCH_FLEXIBLE_FROM
cdef long long NO_SESSION

cdef long long _NONE


@cython.locals(request=FetchRequest)
cpdef handle(Call call)


cdef class Found:
    cdef public PartitionKey key
    cdef public FetchPartition wanted
    cdef public Partition partition
    cdef public long long code
    cdef public object data
    cdef public object aborted


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
    cdef bint _looking
    cdef bint _done
    cdef object _budget
    cdef long long _room
    cdef long long _min_bytes
    cdef bint _is_full

    cpdef start(self)
    @cython.locals(size=cython.longlong, item=Found)
    cdef bint _is_enough(self, list found) except -1
    @cython.locals(partition=Partition)
    cdef _watch(self, list partitions)
    cpdef advanced(self, Partition partition, long long added_bytes)
    cpdef finish(self)
    @cython.locals(partition=Partition)
    cdef _stop_waiting(self)
    cdef list _read_all(self)
    @cython.locals(
        room=cython.longlong, enough=cython.longlong, taken=cython.longlong,
        limit=cython.longlong, item=Found, wanted=FetchPartition, left_out=PartitionKey, key=PartitionKey,
        is_here=bint, average=cython.longlong,
    )
    cdef list _read(self)
    cdef _in_turn(self)
    @cython.locals(partition=Partition, end=cython.longlong)
    cdef _read_partition(self, Found item, long long limit)
    cdef Partition _partition(self, PartitionKey key)
    @cython.locals(call=Call, answer=Writer, item=Found, key=TopicKey)
    cdef _answer(self, list found)
    @cython.locals(item=Found)
    cdef _remember(self, list found)


cdef list _by_topic(list found)

cdef _write_start(Writer answer, int version, int code, int session_id, int throttle_ms)

@cython.locals(partition=Partition, end=cython.longlong, stable=cython.longlong)
cdef _write(Writer answer, Found item, int version)
