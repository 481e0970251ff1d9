# The C types of produce.py, for the compiled build.
cimport cython

from penstock.broker.appending cimport Appended
from penstock.broker.topic cimport Topic
from penstock.kafka.call cimport Call
from penstock.kafka.throttling cimport budget_of
from penstock.log.partition cimport Partition
from penstock.wire.requests cimport ProduceRequest, TopicKey, parse_produce
from penstock.wire.writer cimport Writer

cdef long long PRODUCE_FLEXIBLE_FROM

cdef long long _NONE


cdef class Result:
    cdef public long long number
    cdef public long long code
    cdef public object message
    cdef public long long base_offset
    cdef public long long append_time
    cdef public Partition partition
    cdef public object refused_records


@cython.locals(
    request=ProduceRequest, acks=cython.longlong, must_sync=bint, result=Result, key=TopicKey,
    size=cython.longlong
)
cpdef handle(Call call)

@cython.locals(topic=Topic, partition=Partition, appended=Appended)
cdef Result _append(Call call, TopicKey key, long long number, records, long long acks)

@cython.locals(version=int, answer=Writer, key=TopicKey, result=Result)
cpdef _answer(Call call, list topics, int throttle_ms)

@cython.locals(partition=Partition, start_offset=cython.longlong)
cdef _write(Writer answer, Result result, int version)
