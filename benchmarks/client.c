/* The load of the comparison with Kafka: librdkafka without an interpreter in the way.
 *
 * One Python thread sends 1.65 million records a second at most, whatever the broker does; this
 * client sends 5 to 6 million, and then the broker shows. Called by client.py as
 *
 *     client produce|consume|single|end-to-end BOOTSTRAP TOPIC PARTITIONS RECORDS SIZE WARM-UP RATE
 *     client commits BOOTSTRAP TOPIC CONSUMERS COMMITS IN-FLIGHT WARM-UP UNUSED
 *
 * it prints its numbers as one line of JSON, or a reason on standard error and exits with 1.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* The part of librdkafka's stable interface that is used. It is written down here because the
 * library comes with the Python package, which has no header. */
typedef struct rd_kafka rd_kafka_t;
typedef struct rd_kafka_topic rd_kafka_topic_t;
typedef struct rd_kafka_conf rd_kafka_conf_t;
typedef struct rd_kafka_queue rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
} rd_kafka_topic_partition_t; /* more fields follow: only used through pointers */
typedef struct rd_kafka_topic_partition_list rd_kafka_topic_partition_list_t;
typedef void delivery_report(rd_kafka_t *, const rd_kafka_message_t *, void *);
enum { PRODUCER, CONSUMER };
enum { COPY = 0x2, DELIVERY_EVENTS = 0x1, ANY_PARTITION = -1, QUEUE_FULL = -184 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, delivery_report *);
void rd_kafka_conf_set_events(rd_kafka_conf_t *, int);
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_metadata(rd_kafka_t *, int, rd_kafka_topic_t *, const void **, int);
void rd_kafka_metadata_destroy(const void *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
int rd_kafka_last_error(void);
const char *rd_kafka_err2str(int);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_outq_len(rd_kafka_t *);
int rd_kafka_flush(rd_kafka_t *, int);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(
    rd_kafka_topic_partition_list_t *, const char *, int32_t);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *, int);
void rd_kafka_message_destroy(rd_kafka_message_t *);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
typedef struct rd_kafka_event rd_kafka_event_t;
int rd_kafka_commit_queue(rd_kafka_t *, const rd_kafka_topic_partition_list_t *, rd_kafka_queue_t *,
                          void (*)(void), void *);
rd_kafka_queue_t *rd_kafka_queue_get_main(rd_kafka_t *);
rd_kafka_event_t *rd_kafka_queue_poll(rd_kafka_queue_t *, int);
size_t rd_kafka_event_message_count(rd_kafka_event_t *);
int rd_kafka_event_error(rd_kafka_event_t *);
void rd_kafka_event_destroy(rd_kafka_event_t *);

#define STALL_MS 30000
#define BATCH 10000
#define AT_ONCE 1000
#define COORDINATOR_LOADS 14

static const char *bootstrap, *topic;
static int partitions, rate;
static long records, warm_up;
static size_t size;
static char *value;
static long answered;
static int first_error;

static void give_up(const char *operation, const char *reason) {
    fprintf(stderr, "%s: %s\n", operation, reason);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void print_rate(double started) {
    double seconds = now() - started;
    printf("{\"seconds\": %.6f, \"rate\": %.1f}\n", seconds, (double)records / seconds);
}

/* ---- clients ---- */

static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err && !first_error) first_error = message->err;
}

/* Settings are pairs of name and value, and a null. */
static rd_kafka_conf_t *configured(const char *const *settings) {
    char problem[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, problem, sizeof problem))
        give_up("configure", problem);
    for (; *settings; settings += 2)
        if (rd_kafka_conf_set(conf, settings[0], settings[1], problem, sizeof problem))
            give_up("configure", problem);
    return conf;
}

static rd_kafka_t *new_client(int type, rd_kafka_conf_t *conf) {
    char problem[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, problem, sizeof problem);
    if (!client) give_up("create a client", problem);
    return client;
}

/* Keeps the first error of a record. */
static rd_kafka_t *new_producer(const char *const *settings) {
    rd_kafka_conf_t *conf = configured(settings);
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    return new_client(PRODUCER, conf);
}

/* Connects and learns the leaders, before any clock starts. */
static rd_kafka_topic_t *known_topic(rd_kafka_t *client) {
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    const void *metadata;
    int error = rd_kafka_metadata(client, 0, handle, &metadata, STALL_MS);
    if (error) give_up("get metadata", rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return handle;
}

static int send_value(rd_kafka_topic_t *to, int partition) {
    if (!rd_kafka_produce(to, partition, COPY, value, size, NULL, 0, NULL)) return 1;
    if (rd_kafka_last_error() != QUEUE_FULL)
        give_up("produce", rd_kafka_err2str(rd_kafka_last_error()));
    return 0;
}

static void finish(rd_kafka_t *producer) {
    if (rd_kafka_flush(producer, STALL_MS)) give_up("flush", "records are left without an answer");
    if (first_error) give_up("deliver", rd_kafka_err2str(first_error));
}

/* Assigned to the start of every partition, so that no group has to be formed. */
static rd_kafka_t *new_consumer(const char *const *settings) {
    rd_kafka_t *consumer = new_client(CONSUMER, configured(settings));
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(partitions);
    for (int number = 0; number < partitions; number++)
        rd_kafka_topic_partition_list_add(all, topic, number)->offset = 0;
    int error = rd_kafka_assign(consumer, all);
    if (error) give_up("assign", rd_kafka_err2str(error));
    return consumer;
}

/* ---- workloads ---- */

/* Hand records over, AT_ONCE or fewer, to each partition in turn; how many the client's queue took.
 * They are not copied: the value stays where and as it is. */
static int send_some(rd_kafka_topic_t *to, long left) {
    static int partition;
    rd_kafka_message_t some[AT_ONCE];
    int count = left < AT_ONCE ? (int)left : AT_ONCE;
    for (int i = 0; i < count; i++) some[i] = (rd_kafka_message_t){.payload = value, .len = size};
    int taken = rd_kafka_produce_batch(to, partition, 0, some, count);
    for (int i = 0; taken < count && i < count; i++)
        if (some[i].err && some[i].err != QUEUE_FULL) give_up("produce", rd_kafka_err2str(some[i].err));
    partition = (partition + 1) % partitions;
    return taken;
}

/* Wait for the answer to a batch, which is one for all of its records, and count them. */
static void take_answers(rd_kafka_queue_t *answers) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, STALL_MS);
    if (!event) give_up("produce", "no answer for 30 s");
    if (rd_kafka_event_error(event)) give_up("deliver", rd_kafka_err2str(rd_kafka_event_error(event)));
    answered += (long)rd_kafka_event_message_count(event);
    rd_kafka_event_destroy(event);
}

/* As many records as the client can send: acks=all, linger 5 ms; until the last is answered.
 *
 * The client is on the broker's machine, so that what it spends on itself hides the broker. Hence no
 * copies, no partitioner that reads the clock for every record, and answers by the batch: that is
 * also one thread which makes records and lets go of them, where two waited for the allocator. */
static void produce(void) {
    const char *settings[] = {"acks", "all", "linger.ms", "5", NULL};
    rd_kafka_conf_t *conf = configured(settings);
    rd_kafka_conf_set_events(conf, DELIVERY_EVENTS);
    rd_kafka_t *producer = new_client(PRODUCER, conf);
    rd_kafka_topic_t *to = known_topic(producer);
    rd_kafka_queue_t *answers = rd_kafka_queue_get_main(producer);
    double started = now();
    for (long left = records; answered < records;) {
        int taken = left ? send_some(to, left) : 0;
        left -= taken;
        if (taken < AT_ONCE) take_answers(answers); /* the queue is full, or this was the rest */
    }
    print_rate(started);
}

/* All threads that are started from here on stay on the core that this one runs on. */
static void stay_on_one_core(void) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    if (sched_setaffinity(0, sizeof core, &core)) give_up("stay on one core", "the system refuses");
}

/* The topic from its start as fast as the client can, timed from the first record. librdkafka's
 * default queues hide the broker (100 B records come at a fifth of the speed from any broker).
 *
 * On one core, and so in one cache: on two its thread that fetches outruns the one that takes the
 * records, the queue between them grows to a million, and what is measured is cold memory. */
static void consume(void) {
    stay_on_one_core();
    const char *settings[] = {
        "group.id", "benchmark", "enable.auto.commit", "false", "auto.offset.reset", "error",
        "queued.min.messages", "1000000", "queued.max.messages.kbytes", "1048576",
        "fetch.queue.backoff.ms", "1", NULL};
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(new_consumer(settings));
    rd_kafka_message_t *messages[BATCH];
    double started = 0;
    for (long seen = 0; seen < records;) {
        /* Never more than are left: it would wait for them. */
        long most = !seen ? 1 : records - seen < BATCH ? records - seen : BATCH;
        ssize_t count = rd_kafka_consume_batch_queue(queue, STALL_MS, messages, (size_t)most);
        if (count <= 0) give_up("consume", "no record for 30 s");
        if (!seen) started = now();
        seen += count;
        for (ssize_t i = 0; i < count; i++) {
            if (messages[i]->err) give_up("consume", rd_kafka_err2str(messages[i]->err));
            rd_kafka_message_destroy(messages[i]);
        }
    }
    print_rate(started);
}

/* One record per request: each is sent by itself, to each partition in turn, with 64 unanswered at a time,
 * which the library keeps to. It is handed all it can take and tells only of failures: a thread that is
 * told of every answer interrupts the one that sends, and then it is the client that is measured. */
static void single(void) {
    const char *settings[] = {
        "acks", "all", "linger.ms", "0", "batch.num.messages", "1", "enable.idempotence", "false",
        "max.in.flight.requests.per.connection", "64", "socket.nagle.disable", "true",
        "delivery.report.only.error", "true", NULL};
    rd_kafka_t *producer = new_producer(settings);
    rd_kafka_topic_t *to = known_topic(producer);
    double started = now();
    for (long sent = 0; sent < records; sent++)
        while (!send_value(to, (int)(sent % partitions))) rd_kafka_poll(producer, 1);
    while (rd_kafka_outq_len(producer)) rd_kafka_poll(producer, 1);
    finish(producer);
    print_rate(started);
}

struct reader {
    rd_kafka_t *consumer;
    double *delays; /* milliseconds, in order of arrival */
};

static void *read_all(void *argument) {
    struct reader *reader = argument;
    for (long seen = 0; seen < records; seen++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader->consumer, STALL_MS);
        double arrived = now(), sent;
        if (!message) give_up("consume", "no record for 30 s");
        if (message->err) give_up("consume", rd_kafka_err2str(message->err));
        memcpy(&sent, message->payload, sizeof sent);
        reader->delays[seen] = (arrived - sent) * 1e3;
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Records at a steady rate, one by one: from before they are sent until the consumer has them. */
static void end_to_end(void) {
    const char *sending[] = {"acks", "all", "linger.ms", "0", "socket.nagle.disable", "true",
                             "delivery.report.only.error", "true", NULL};
    const char *reading[] = {"group.id", "benchmark", "enable.auto.commit", "false",
                             "auto.offset.reset", "error", "socket.nagle.disable", "true", NULL};
    rd_kafka_t *producer = new_producer(sending);
    rd_kafka_topic_t *to = known_topic(producer);
    struct reader reader = {new_consumer(reading), calloc((size_t)records, sizeof(double))};
    pthread_t thread;
    pthread_create(&thread, NULL, read_all, &reader);
    usleep(300000); /* the consumer connects; what is slow after that is the warm-up's part */
    double started = now();
    for (long sent = 0; sent < records; sent++) {
        double wait = started + (double)sent / rate - now();
        if (wait > 0) usleep((useconds_t)(wait * 1e6));
        double stamp = now();
        memcpy(value, &stamp, sizeof stamp);
        if (!send_value(to, ANY_PARTITION)) give_up("produce", "the client's queue is full");
        rd_kafka_poll(producer, 0);
    }
    finish(producer);
    pthread_join(thread, NULL);
    /* Order of arrival is order of sending but for what crosses between partitions. */
    double *measured = reader.delays + warm_up;
    size_t count = (size_t)(records - warm_up);
    qsort(measured, count, sizeof(double), ascending);
    printf("{\"p50\": %.4f, \"p99\": %.4f, \"p999\": %.4f, \"max\": %.4f}\n", measured[count / 2],
           measured[count * 99 / 100], measured[count * 999 / 1000], measured[count - 1]);
}

/* Commits of a position, by several consumers each in a group of its own, which take turns; so many
 * (the size) are unanswered at a time. The first ones find the coordinator and do not count. */
static void commits(void) {
    rd_kafka_t *consumers[64];
    if (partitions < 1 || partitions > 64) give_up("commit", "takes 1 to 64 consumers");
    for (int number = 0; number < partitions; number++) {
        char group[64];
        snprintf(group, sizeof group, "benchmark-%s-%d", topic, number);
        const char *settings[] = {"group.id", group, "enable.auto.commit", "false",
                                  "socket.nagle.disable", "true", NULL};
        consumers[number] = new_client(CONSUMER, configured(settings));
        known_topic(consumers[number]);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(consumers[0]);
    double started = now();
    for (long sent = 0, done = 0; done < warm_up + records; done++) {
        for (; sent < warm_up + records && sent - done < (long)size; sent++) {
            rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
            rd_kafka_topic_partition_list_add(offsets, topic, 0)->offset = sent;
            int error = rd_kafka_commit_queue(consumers[sent % partitions], offsets, queue, NULL, NULL);
            if (error) give_up("commit", rd_kafka_err2str(error));
            rd_kafka_topic_partition_list_destroy(offsets);
        }
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, STALL_MS);
        if (!event) give_up("commit", "no answer for 30 s");
        int failed = rd_kafka_event_error(event);
        rd_kafka_event_destroy(event);
        if (failed == COORDINATOR_LOADS && done < warm_up) { /* a broker that has just started */
            usleep(100000);
            sent--, done--;
            continue;
        }
        if (failed) give_up("commit", rd_kafka_err2str(failed));
        if (done == warm_up) started = now();
    }
    print_rate(started);
}

static const struct {
    const char *name;
    void (*run)(void);
} workloads[] = {
    {"produce", produce}, {"consume", consume},       {"single", single},
    {"commits", commits}, {"end-to-end", end_to_end},
};

int main(int count, char **arguments) {
    if (count != 9) give_up("client", "takes 8 arguments: see the top of client.c");
    bootstrap = arguments[2];
    topic = arguments[3];
    partitions = atoi(arguments[4]);
    records = atol(arguments[5]);
    size = (size_t)atol(arguments[6]);
    warm_up = atol(arguments[7]);
    rate = atoi(arguments[8]);
    value = calloc(1, size);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (!strcmp(workloads[i].name, arguments[1])) {
            workloads[i].run();
            fflush(stdout);
            _exit(0); /* the client's threads need no orderly end, and closing takes a second */
        }
    give_up("client", "no such workload");
}
