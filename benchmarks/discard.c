/* A broker that throws records away and answers at once: what the client can do if a broker costs nothing.
 *
 * Where it is no faster than a real one the client is measured, and no broker could do better. Called by
 * discard.py as
 *
 *     discard PORT BEHIND [FOLDER]
 *
 * it listens on a port of loopback until it is killed. Everything but Produce goes to the real broker on the
 * port behind. So does the first Produce of a connection, whose answer is the pattern for all that follow; their
 * records are dropped by the kernel and never copied. They must be as librdkafka sends them: version 9 or newer,
 * one partition each.
 *
 * With a folder it is the least that can be called a durable broker: requests are received, written to a file of
 * their partition as they are, and answered after an fdatasync that all share which wait. It checks nothing, and
 * what it wrote cannot be read. The files go when the connection does.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LENGTH = 4, HEADER = 12, PRODUCE = 0, FLEXIBLE_FROM = 9 };
enum { FRAME_MAX = 4 << 20, ANSWER_MAX = 1024, START_MAX = 512 };
enum { PARTITIONS_MAX = 64, WAITING_MAX = 4096, ROOM_AHEAD = 64 << 20 };

static int behind;
static const char *folder;

static void give_up(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int without_delay(int socket) {
    int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return socket;
}

/* ---- frames ---- */

static int receive(int from, void *data, size_t size) {
    return size == 0 || recv(from, data, size, MSG_WAITALL) == (ssize_t)size;
}

static int drop(int from, size_t size) {
    while (size) {
        ssize_t count = recv(from, NULL, size, MSG_TRUNC);
        if (count <= 0) return 0;
        size -= (size_t)count;
    }
    return 1;
}

static int send_all(int to, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t count = send(to, data, size, MSG_NOSIGNAL);
        if (count <= 0) return 0;
        data += count, size -= (size_t)count;
    }
    return 1;
}

static size_t length_of(const uint8_t *frame) {
    uint32_t length;
    memcpy(&length, frame, sizeof length);
    return ntohl(length);
}

static int int16_at(const uint8_t *data) { return data[0] << 8 | data[1]; }

/* ---- one connection ---- */

struct partition {
    int file; /* 0 until it is first written to */
    off_t size, room;
    int dirty;
};

struct round {
    int count;
    uint8_t answers[WAITING_MAX][ANSWER_MAX];
};

struct link {
    int client, broker;
    uint8_t *frame, *answer;
    uint8_t pattern[ANSWER_MAX];
    size_t pattern_size;
    struct partition partitions[PARTITIONS_MAX];
    struct round *waiting, *syncing;
    pthread_mutex_t lock; /* of waiting, and of what is dirty */
    pthread_cond_t changed;
    int ended;
};

/* ---- what a durable broker cannot do without ---- */

static struct partition *partition_of(struct link *link, uint32_t number) {
    if (number >= PARTITIONS_MAX) give_up("partition");
    struct partition *partition = &link->partitions[number];
    if (!partition->file) partition->file = open(folder, O_TMPFILE | O_RDWR, 0600);
    if (partition->file < 0) give_up("open a file");
    return partition;
}

static void store(struct link *link, uint32_t number, size_t size) {
    struct partition *partition = partition_of(link, number);
    if (partition->size + (off_t)size > partition->room) {
        fallocate(partition->file, FALLOC_FL_KEEP_SIZE, partition->size, ROOM_AHEAD);
        partition->room = partition->size + ROOM_AHEAD;
    }
    if (pwrite(partition->file, link->frame, size, partition->size) != (ssize_t)size) give_up("write");
    partition->size += (off_t)size;
    pthread_mutex_lock(&link->lock);
    partition->dirty = 1;
    while (link->waiting->count == WAITING_MAX) pthread_cond_wait(&link->changed, &link->lock);
    memcpy(link->waiting->answers[link->waiting->count++], link->pattern, link->pattern_size);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

/* Group commit: one sync in flight, for all that wait when it starts. */
static int sync_round(struct link *link) {
    int dirty[PARTITIONS_MAX];
    pthread_mutex_lock(&link->lock);
    while (!link->waiting->count && !link->ended) pthread_cond_wait(&link->changed, &link->lock);
    struct round *round = link->waiting;
    link->waiting = link->syncing, link->syncing = round;
    for (int i = 0; i < PARTITIONS_MAX; i++) {
        dirty[i] = link->partitions[i].dirty;
        link->partitions[i].dirty = 0;
    }
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
    for (int i = 0; i < PARTITIONS_MAX; i++)
        if (dirty[i] && fdatasync(link->partitions[i].file)) give_up("sync");
    for (int i = 0; i < round->count; i++)
        if (!send_all(link->client, round->answers[i], link->pattern_size)) return 0;
    int went_on = round->count > 0;
    round->count = 0;
    return went_on;
}

static void *sync_rounds(void *link) {
    while (sync_round(link)) continue;
    return NULL;
}

/* ---- requests and answers ---- */

/* A request whose header has been received goes to the broker, and its answer to the client. */
static int pass_on(struct link *link, size_t size) {
    if (size > FRAME_MAX - LENGTH) return 0;
    if (!receive(link->client, link->frame + HEADER, size + LENGTH - HEADER)) return 0;
    if (!send_all(link->broker, link->frame, size + LENGTH)) return 0;
    if (!receive(link->broker, link->answer, LENGTH)) return 0;
    size_t answered = length_of(link->answer);
    if (answered > FRAME_MAX - LENGTH) return 0;
    if (!receive(link->broker, link->answer + LENGTH, answered)) return 0;
    if (int16_at(link->frame + 4) == PRODUCE && answered + LENGTH <= ANSWER_MAX) {
        memcpy(link->pattern, link->answer, answered + LENGTH);
        link->pattern_size = answered + LENGTH;
    }
    return send_all(link->client, link->answer, answered + LENGTH);
}

/* The pattern with the correlation id and the partition of this request. */
static int answer_produce(struct link *link, size_t size) {
    size_t rest = size + LENGTH - HEADER, start = rest < START_MAX ? rest : START_MAX;
    uint8_t *records = link->frame + HEADER + start;
    if (size > FRAME_MAX - LENGTH) return 0;
    if (!receive(link->client, link->frame + HEADER, start)) return 0;
    int arrived = folder ? receive(link->client, records, rest - start) : drop(link->client, rest - start);
    if (!arrived) return 0;
    const uint8_t *at = link->frame + HEADER;
    at += 2 + int16_at(at) + 1;     /* client id, tags */
    at += 1 + 2 + 4 + 1;            /* no transactional id, acks, timeout, one topic */
    size_t name = 1 + (*at - 1u);   /* with its length */
    at += name + 1;                 /* one partition */
    memcpy(link->pattern + LENGTH, link->frame + 8, 4);
    memcpy(link->pattern + LENGTH + 4 + 1 + 1 + name + 1, at, 4);
    if (!folder) return send_all(link->client, link->pattern, link->pattern_size);
    store(link, (uint32_t)length_of(at), size + LENGTH);
    return 1;
}

static int handle_one(struct link *link) {
    if (!receive(link->client, link->frame, HEADER)) return 0;
    size_t size = length_of(link->frame);
    int produce = int16_at(link->frame + 4) == PRODUCE;
    if (!produce || !link->pattern_size) return pass_on(link, size);
    return int16_at(link->frame + 6) >= FLEXIBLE_FROM && answer_produce(link, size);
}

static void *serve(void *client) {
    struct link link = {.client = (int)(intptr_t)client, .broker = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in address = loopback(behind);
    if (connect(without_delay(link.broker), (struct sockaddr *)&address, sizeof address))
        give_up("connect to the broker behind");
    link.frame = malloc(FRAME_MAX), link.answer = malloc(FRAME_MAX);
    link.waiting = calloc(1, sizeof *link.waiting), link.syncing = calloc(1, sizeof *link.syncing);
    pthread_mutex_init(&link.lock, NULL), pthread_cond_init(&link.changed, NULL);
    pthread_t syncing;
    if (pthread_create(&syncing, NULL, sync_rounds, &link)) give_up("start a thread");
    while (handle_one(&link)) continue;
    pthread_mutex_lock(&link.lock);
    link.ended = 1;
    pthread_cond_broadcast(&link.changed);
    pthread_mutex_unlock(&link.lock);
    pthread_join(syncing, NULL);
    for (int i = 0; i < PARTITIONS_MAX; i++)
        if (link.partitions[i].file) close(link.partitions[i].file);
    free(link.frame), free(link.answer), free(link.waiting), free(link.syncing);
    close(link.client), close(link.broker);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4) return fputs("discard: see the top of discard.c\n", stderr), 1;
    behind = atoi(arguments[2]), folder = arguments[3];
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in address = loopback(atoi(arguments[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address)) give_up("bind");
    if (listen(listener, 64)) give_up("listen");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        pthread_t thread;
        if (client < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)without_delay(client)))
            give_up("accept");
        pthread_detach(thread);
    }
}
