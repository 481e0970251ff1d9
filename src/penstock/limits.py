"""Every bound the server keeps, in one place, with the reason for its size.

Names end in the unit and say which end they bound.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# -- frames and connections

# Kafka's socket.request.max.bytes.
FRAME_BYTES_MAX = 100 * MIB
# Every request but Produce, which alone carries records: the largest, a Fetch of 10,000 partitions,
# takes 0.5 MiB. Reading them costs far more per byte than batches do, so that a frame of the largest
# size would keep the loop busy for minutes.
REQUEST_BYTES_MAX = 2 * MIB
# Larger ones are decoded and encoded on a thread, and handled one at a time. In the worst case, which is
# numbers and names of a few bytes, it takes 1.7 us of the loop for each byte to handle one there.
LARGE_REQUEST_BYTES_MIN = 8 * KIB
# Those that others in large frames do not wait for: a commit of 600 partitions, 10.8 kB, took 5.7 s
# behind three requests of a megabyte. A commit of 3,500 partitions is below.
HUGE_REQUEST_BYTES_MIN = 64 * KIB
# Numbers and texts in one of those: a request for the metadata of 100,000 topics has fewer. When the
# memory of so many is given back, nothing else happens for 20 to 40 ms.
REQUEST_VALUES_MAX = 500_000
# How long the loop works for one request before it looks after the others.
PIECE_SECONDS_MAX = 0.002
# A receive buffer starts small, so that thousands of idle connections cost little, and grows to the
# frames its client really sends.
RECEIVE_BUFFER_BYTES_MIN = 16 * KIB
# A buffer that grew beyond this for one large frame is given back after it.
RECEIVE_BUFFER_BYTES_KEPT = 2 * MIB
# Of a large frame the loop is woken for so much, or for its end: it comes in pieces of 64 KiB, and to be
# woken for each costs both sides, the client that sends the next one meanwhile more than the loop.
RECEIVE_PIECE_BYTES = 128 * KIB
# How often is looked for smaller ones that have not been filled since the last look: they are given back
# too. Memory that comes from the system again costs 0.5 ms a megabyte: whoever sends one every second
# keeps his buffer, and a thousand who send less often cost a tenth of the loop's time at the very worst.
RECEIVE_BUFFER_LOOK_SECONDS = 5.0
# So many are given back in one turn of the loop: 0.2 ms each if they are of the largest that are kept.
RECEIVE_BUFFERS_SHRUNK_MAX = 16
# Frames that are larger than a kept buffer share this much memory; the rest wait unread.
LARGE_FRAME_BYTES_TOTAL = 256 * MIB
# Kafka's default is unlimited; 10,000 connections that are idle take 160 MB, 16 KiB each. One that is in
# the middle of a frame may have a buffer of up to RECEIVE_BUFFER_BYTES_KEPT.
CONNECTIONS_MAX = 10_000
# Answers a connection may owe before its further requests wait unread. Five is what Java pipelines,
# librdkafka goes up to a million if told to.
REQUESTS_IN_FLIGHT_MAX = 1_000
# A peer that started a frame and stalls is a half-open or hostile connection: in every 30 s it must
# end the frame or bring this much more of it (70 kbit/s; clients give up on slower links themselves).
FRAME_SECONDS_MAX = 30.0
FRAME_PROGRESS_BYTES_MIN = 256 * KIB
# Kafka's connections.max.idle.ms.
IDLE_SECONDS_MAX = 600.0
# While more than this waits to be sent, a connection's further requests wait unread.
WRITE_BUFFER_BYTES_MAX = 1 * MIB
# Answers that are smaller together are copied into one buffer: cheaper than one system call each.
JOIN_BYTES_MAX = 64 * KIB

# How long a thread that wants the interpreter waits before the loop must hand it over.
SWITCH_SECONDS = 50e-6

# -- fetch

# One answer to one fetch. Kafka allows 55 MB because it sends from the page cache; here an answer is
# memory until the client has taken it.
FETCH_RESPONSE_BYTES_MAX = 16 * MIB
# An answer to a client on this machine takes in no further partition once it holds this much, and about
# so many records: there is no way to the client whose length would have to be made up for, and what fits
# its processor's cache is taken faster, with what it makes of them. From six partitions librdkafka
# takes 4.6 instead of 3.0 million records of 100 bytes a second, but of a kilobyte an eighth fewer if it
# does not get those of all six at once.
FETCH_BYTES_ENOUGH_HERE = 512 * KIB
FETCH_RECORDS_ENOUGH_HERE = 8_000
# Kafka's max.incremental.fetch.session.cache.slots.
FETCH_SESSIONS_MAX = 1_000
# Kafka's min.incremental.fetch.session.eviction.ms: one that was used since gives way to no other.
FETCH_SESSION_KEPT_SECONDS = 120.0
# A fetch of 60 bytes looks at every partition of its session: 25 ms for so many, in which the loop does
# nothing else. They are a whole topic of the largest kind; a client that wants more has no session and
# names them all in each of its fetches, which its request must then have room for.
FETCH_SESSION_PARTITIONS_MAX = 10_000
# Of all sessions together, at 140 bytes each, or 550 if each has a topic of its own: 275 MB at the most.
FETCH_SESSIONS_PARTITIONS_TOTAL = 500_000
# Fetches that wait longer are answered empty, whatever they asked for.
FETCH_WAIT_MS_MAX = 60_000

# -- the log

# A segment's checkpoint is renewed after this many bytes or batches, so that recovery after a kill
# reads no more than that. 64 MiB are checked in well under a second.
CHECKPOINT_BYTES = 64 * MIB
CHECKPOINT_BATCHES = 50_000
# Above this many dirty files one syncfs is cheaper than one fdatasync each (six files: 0.25 against
# 0.94 ms; 1,000 files: 10 against 140 ms). It also writes what other programs have left dirty on the
# same file system, so that one or two files are synced by themselves.
SYNC_ONE_BY_ONE_MAX = 2
# A round over more files than that writes what they got to the journal of rounds, and syncs that, if it
# is no more than this: of more, writing it twice costs what is gained.
ROUND_JOURNALED_BYTES_MAX = 256 * KIB
ROUND_JOURNALED_PARTITIONS_MAX = 256
# A round that finds it full syncs the files of all partitions that have something in it. If it were
# larger, that would happen less often, and a start after a crash would have more to read.
ROUND_JOURNAL_BYTES = 4 * MIB
# Up to so many are synced one by one then: that takes longer than one syncfs, but not as long as the
# data of other programs may.
SETTLE_ONE_BY_ONE_MAX = 64
# The slices that the sync thread is scheduled in, the shortest that Linux grants. It runs for some 20 us
# at a time, and all that waits for a round waits for it: with the usual ones a sync took 1.0 to 1.8 ms
# beside a client that used both cores, with these 0.7, and half of librdkafka's requests of 1 MB were
# answered within 1.4 to 4.3 instead of 5.5 to 6.6 ms.
SYNC_SLICE_SECONDS = 100e-6
# A commit round that has as much to sync starts at once; one with less looks whether more is arriving.
# Of 64 requests in flight a round then takes 58 instead of 27: a tenth more requests a second, and a
# sixth less work. 128 requests are handled in under 2 ms; large ones are synced while more arrive.
ROUND_WAITING_ENOUGH = 128
ROUND_BYTES_ENOUGH = 64 * KIB
# A log that has got this much since its last commit round has room allocated ahead on the disk: as
# much as its segment holds, up to the maximum, so that a burst costs little and no disk is used up by
# promises. 500 MB in pieces of 1 MB take 0.42 instead of 0.49 s of processor time then (six
# partitions: 0.43 instead of 0.47), because blocks are not accounted for one by one. Small pieces gain
# nothing.
# One that is not synced before the acknowledgement asks for a round to get it: without room ext4 finds
# blocks when a checkpoint's sync writes 64 MiB back, and an append to the same file waits meanwhile,
# and with it the loop, for 12 to 92 ms.
ROOM_AHEAD_ROUND_BYTES_MIN = 256 * KIB
ROOM_AHEAD_BYTES_MAX = 64 * MIB
# What stays free: who is short of room needs it more.
ROOM_AHEAD_FREE_BYTES_MIN = GIB
# How stale the journal of durable ends may be on disk. It only tells a torn tail from damage, so it
# need not cost every commit round a second fdatasync (0.09 ms of 0.25). At ten times a second it was
# one record in a hundred at 1,000 records/s: the 99th percentile of the latency.
POSITIONS_SYNC_SECONDS = 1.0
# A batch larger than this is refused whatever the topic says: Kafka's own limit is an int32.
BATCH_BYTES_MAX = FRAME_BYTES_MAX
# What one compressed batch may unpack to: more than any frame, and a third of a second's work at most
# (512 MiB were more than a second and a gigabyte of memory, for 16 kB of zstd).
DECOMPRESSED_BYTES_MAX = 128 * MIB
# What a search by time opens of one batch, on the loop: a fifth of a second's work.
OPENED_BYTES_MAX = 32 * MIB
OPENED_RECORDS_MAX = 100_000
# Free space below which writes are refused, and the file that is given up so that metadata, deletes
# and the shutdown still find room.
DISK_FREE_BYTES_MIN = 64 * MIB
DISK_RESERVE_BYTES = 8 * MIB
# How many bytes are written on the word of one look at the free space, and how often a full disk is
# looked at again.
DISK_CHECK_BYTES = 8 * MIB
DISK_CHECK_SECONDS = 0.2
# What topics of durability memory may hold together, unless it is said: the machine's memory by this.
# The rest is for connections, for whatever else runs there, and for the cache of the files on disk.
MEMORY_TOPICS_DIVISOR = 4
# A segment in memory is no larger, whatever segment.bytes says: retention and trimming give memory back
# in whole segments, and unlike files they cost nothing but their bytes. Not much smaller either: the C
# library returns what is above 32 MiB to the system when it is freed, and may keep smaller pieces.
MEMORY_SEGMENT_BYTES_MAX = 64 * MIB
# How often retention is looked after because topics in memory have reached their bound.
MEMORY_LOOK_SECONDS = 0.2

# -- compaction

# Keys that one pass remembers, at 24 to 48 bytes each: 48 MiB at the most. More take several passes.
COMPACTION_KEYS_MAX = 1_000_000
# What a pass may read and write in a second, so that it leaves most of a disk to the broker.
COMPACTION_BYTES_PER_SECOND = 64 * MIB
# A pass syncs what it writes in steps of this size.
COMPACTION_SYNC_BYTES = 8 * MIB
# How long a partition is left alone after a pass over it has failed, such as for want of room.
COMPACTION_RETRY_SECONDS = 60.0

# -- topics

TOPIC_NAME_CHARS_MAX = 249  # Kafka's own rule: the folder name must fit a file system
# Names and ids of topics, as requests spell them, that are kept ready; each takes some 300 bytes.
TOPIC_KEYS_KEPT = 10_000
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_PER_CREATION_MAX = 10_000  # Kafka's own number for one request
PRODUCER_BATCHES_KEPT = 5  # what an idempotent client may have in flight
PRODUCERS_PER_PARTITION_MAX = 100_000
# No broker gives out as many: an id beyond was made up by a client, and is not counted on from.
PRODUCER_IDS_MAX = 2**62
# Half of what the field of a batch holds: damage that counts higher is not counted on from.
EPOCHS_MAX = 2**30

# -- quotas

QUOTAS_MAX = 10_000
# Client ids are of the clients' making: budgets of the least recent ones are forgotten.
QUOTA_BUDGETS_MAX = 20_000
# Longer rests would be taken for a broken connection by the clients, which ask again after a minute.
QUOTA_REST_SECONDS_MAX = 30.0

# -- consumer groups

# A member needs a connection of its own, so that more could not come.
GROUP_MEMBERS_MAX = CONNECTIONS_MAX
# Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms.
SESSION_TIMEOUT_MS_MIN = 6_000
SESSION_TIMEOUT_MS_MAX = 1_800_000
# A new member that waits in a rebalance cannot send heartbeats; a client that is still there asks
# again within this time (Kafka's own number).
NEW_MEMBER_SECONDS_MAX = 300.0
# Kafka gathers the first members of a group for 3 s (group.initial.rebalance.delay.ms). Here they
# start at once, except that members which have asked for an id already are waited for this long.
FIRST_MEMBERS_SECONDS = 0.1
# Kafka's group.consumer.heartbeat.interval.ms and group.consumer.session.timeout.ms, for members to
# which the server shares out the work. The fewer there are, the more often they are heard of, because
# that is when they learn of a change: a hundred heartbeats a second cost little.
CONSUMER_HEARTBEAT_SECONDS = 5.0
CONSUMER_HEARTBEAT_SECONDS_MIN = 1.0
CONSUMER_HEARTBEATS_PER_SECOND = 100
CONSUMER_SESSION_SECONDS = 45.0
# Those that wait for partitions which others have to let go of are heard of more often, so that no
# partition is without a reader for long.
CONSUMER_WAITING_HEARTBEAT_SECONDS = 0.5
# Kafka's group.share.record.lock.duration.ms, group.share.delivery.count.limit with its maximum, and
# group.share.partition.max.record.locks with its maximum.
SHARE_LOCK_SECONDS = 30.0
SHARE_DELIVERIES = 5
SHARE_DELIVERIES_MAX = 10
SHARE_LOCKS = 2_000
SHARE_LOCKS_MAX = 4_000
# Kafka's group.share.max.share.sessions: members that may fetch at the same time.
SHARE_SESSIONS_MAX = 2_000
# Groups with settings of their own; each costs some hundred bytes in the catalog.
GROUP_CONFIGS_MAX = 10_000
# A pattern of topic names, which is compiled on the loop: far more than people write.
TOPIC_REGEX_CHARS_MAX = 10_000
# What it is compiled to, which bounds the time that each letter of each topic's name can cost: a hundred
# names take 1,000 steps, `.{0,500}` twice takes 16,000 and kept the loop busy for minutes.
TOPIC_REGEX_STEPS_MAX = 2_000
# Patterns of which is remembered what they match, until a topic comes or goes.
TOPIC_REGEXES_KEPT = 1_000
# What a string of the older requests and answers can hold; Kafka takes no longer one in any.
NAME_BYTES_MAX = 32_767
# Kafka's offset.metadata.max.bytes, which counts characters.
OFFSET_METADATA_CHARS_MAX = 4096
# Kafka's offsets.retention.minutes: how long the offsets of a group without members are kept.
OFFSETS_RETENTION_MINUTES = 7 * 24 * 60
# Kafka's transaction.max.timeout.ms and transactional.id.expiration.ms.
TRANSACTION_TIMEOUT_MS_MAX = 15 * 60 * 1000
TRANSACTION_ID_EXPIRY_MS = 7 * 24 * 3600 * 1000
# How much of what was committed a power failure may take back. A sync for each commit was half of the
# time that a commit took: some of it waiting, some of it the work of the disk's driver.
OFFSETS_SYNC_SECONDS = 1.0
# Kafka's offsets.retention.check.interval.ms.
OFFSETS_CHECK_SECONDS = 600.0

# -- HTTP

# The largest request is a schema, which must fit a record of its topic (1 MiB); JSON may double it.
HTTP_BODY_BYTES_MAX = 4 * MIB
# A request must be whole within this time, and an idle connection is closed after it.
HTTP_REQUEST_SECONDS_MAX = 60.0
# Each may hold one request; descriptors are kept for partitions and Kafka's clients.
HTTP_CONNECTIONS_MAX = 256

# -- views

# Rows in one answer. Each is turned into JSON under the interpreter lock, a few milliseconds for 1,000.
VIEW_ROWS_DEFAULT = 100
VIEW_ROWS_MAX = 1_000
# A question that takes longer is given up: it holds one of the few threads that ask.
VIEW_READ_SECONDS_MAX = 5.0
VIEW_READ_THREADS = 2
# Connections that stay open for changes; the others are for those who ask and go.
VIEW_SUBSCRIPTIONS_MAX = 128
# How often the store is looked at while somebody waits for changes: one small query.
VIEW_LOOK_SECONDS = 0.25
# A sign of life on a silent stream, by which a reader that has gone is noticed.
VIEW_SIGN_SECONDS = 15.0

assert VIEW_SUBSCRIPTIONS_MAX < HTTP_CONNECTIONS_MAX
assert PARTITIONS_PER_TOPIC_MAX <= FETCH_SESSION_PARTITIONS_MAX, "any one topic fits a session"
assert FETCH_SESSION_PARTITIONS_MAX <= FETCH_SESSIONS_PARTITIONS_TOTAL
assert BATCH_BYTES_MAX < DECOMPRESSED_BYTES_MAX, "what is stored plain can be stored packed"
assert RECEIVE_BUFFER_BYTES_MIN < RECEIVE_BUFFER_BYTES_KEPT < LARGE_FRAME_BYTES_TOTAL
assert 2 * RECEIVE_PIECE_BYTES <= FRAME_PROGRESS_BYTES_MIN, "progress must be seen in time"
assert FRAME_BYTES_MAX < LARGE_FRAME_BYTES_TOTAL, "one frame must always be admitted"
assert DISK_RESERVE_BYTES + DISK_CHECK_BYTES < DISK_FREE_BYTES_MIN
