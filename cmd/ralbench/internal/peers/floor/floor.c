// The least work of a limiter by key, without a language runtime: hash the key, find its entry in an
// open table, compare the text beside the word, read the processor's counter, and advance the word by
// one compare-and-swap. A refusal only looks. Each line of input, "callers nanoseconds refuse", is
// answered by "calls passed nanoseconds processor-nanoseconds".
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 256, BATCH = 64, LENGTH = 20, MAX_CALLERS = 1024 };

struct entry { _Atomic uint64_t word; char text[LENGTH]; };

static struct { uint64_t hash; struct entry *entry; } table[SLOTS];
static struct entry hot = { 0, "tok_0123456789abcdef" };
static char keys[BATCH][LENGTH]; // each call has a text of its own
static struct caller { pthread_t thread; long calls, passed; } callers[MAX_CALLERS];
static atomic_int stop;

static uint64_t clock_ns(clockid_t id) {
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
static uint64_t counter(void) { return __rdtsc(); }
#else
static uint64_t counter(void) { return clock_ns(CLOCK_MONOTONIC); }
#endif

static uint64_t hash(const char *key) {
	uint64_t a, b;
	uint32_t c;
	memcpy(&a, key, 8);
	memcpy(&b, key + 8, 8);
	memcpy(&c, key + 16, 4);
	a = (a ^ 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
	b = (b ^ a >> 29 ^ c) * 0x94D049BB133111EB;
	return b ^ b >> 32;
}

static struct entry *find(const char *key) {
	uint64_t h = hash(key), i = h % SLOTS;
	for (; table[i].entry != NULL; i = (i + 1) % SLOTS)
		if (table[i].hash == h && memcmp(table[i].entry->text, key, LENGTH) == 0)
			return table[i].entry;
	abort(); // every key is known
}

// A word is the instant at which the key's bucket has drained. A call adds 1, and the bucket has room for 2^62.
static int choke(const char *key) {
	struct entry *e = find(key);
	uint64_t now = counter(), old = atomic_load_explicit(&e->word, memory_order_acquire);
	do
		if (old > now && old - now > UINT64_C(1) << 62)
			return 0;
	while (!atomic_compare_exchange_weak(&e->word, &old, (old > now ? old : now) + 1));
	return 1;
}

static void *call(void *argument) {
	struct caller *c = argument;
	long calls = 0, passed = 0;
	do { // at least a batch, as a short pass may end before a caller begins
		for (int i = 0; i < BATCH; i++)
			passed += choke(keys[i]);
		calls += BATCH;
	} while (!atomic_load_explicit(&stop, memory_order_relaxed));
	c->calls = calls;
	c->passed = passed;
	return NULL;
}

int main(void) {
	uint64_t h = hash(hot.text);
	int n, refuse;
	long long duration;
	table[h % SLOTS].hash = h;
	table[h % SLOTS].entry = &hot;
	for (int i = 0; i < BATCH; i++)
		memcpy(keys[i], hot.text, LENGTH);
	while (scanf("%d %lld %d", &n, &duration, &refuse) == 3 && n > 0 && n <= MAX_CALLERS) {
		struct timespec pause = { duration / 1000000000, duration % 1000000000 };
		long calls = 0, passed = 0;
		atomic_store(&hot.word, refuse ? UINT64_MAX : 0);
		atomic_store(&stop, 0);
		uint64_t begin = clock_ns(CLOCK_MONOTONIC), used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		for (int i = 0; i < n; i++)
			if (pthread_create(&callers[i].thread, NULL, call, &callers[i]) != 0)
				return 1;
		nanosleep(&pause, NULL);
		atomic_store(&stop, 1);
		for (int i = 0; i < n; i++) {
			pthread_join(callers[i].thread, NULL);
			calls += callers[i].calls;
			passed += callers[i].passed;
		}
		printf("%ld %ld %llu %llu\n", calls, passed, (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - begin),
			(unsigned long long)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used));
		fflush(stdout);
	}
	return 0;
}
