// SPDX-License-Identifier: GPL-2.0
/*
 * Copies 1 MiB from one buffer to another for a while, and prints the bytes per second:
 * memcpy-rate [SECONDS]. It measures the C library's memcpy and a loop of 16-byte
 * vectors, since an emulator may be slow at one of them.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SIZE (1UL << 20)
#define AT_ONCE 16

typedef long long vector __attribute__((vector_size(16)));

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void by_library(void *to, const void *from)
{
	memcpy(to, from, SIZE);
}

static void by_vectors(void *to, const void *from)
{
	const vector *in = from;
	vector *out = to;

	for (unsigned long i = 0; i < SIZE / sizeof(vector); i += 4) {
		vector a = in[i], b = in[i + 1], c = in[i + 2], d = in[i + 3];

		out[i] = a;
		out[i + 1] = b;
		out[i + 2] = c;
		out[i + 3] = d;
		/* Keeps the compiler from replacing the loop by memcpy. */
		__asm__ volatile("" ::: "memory");
	}
}

static double rate(void (*copy)(void *, const void *), void *to, const void *from, double seconds)
{
	double begin = now(), took;
	unsigned long times = 0;

	do {
		for (int i = 0; i < AT_ONCE; i++) {
			copy(to, from);
			__asm__ volatile("" ::: "memory");
		}
		times += AT_ONCE;
		took = now() - begin;
	} while (took < seconds);
	return times * SIZE / took;
}

static unsigned char *buffer(int value)
{
	unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		perror("memcpy-rate: mmap");
		exit(1);
	}
	for (unsigned long i = 0; i < SIZE; i++)
		at[i] = value * i;
	return at;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1, library, vectors;
	unsigned char *from = buffer(7), *to = buffer(0);

	library = rate(by_library, to, from, seconds);
	if (memcmp(to, from, SIZE) != 0)
		goto differs;
	memset(to, 0, SIZE);
	vectors = rate(by_vectors, to, from, seconds);
	if (memcmp(to, from, SIZE) != 0)
		goto differs;
	printf("{\"library\": %.0f, \"vectors\": %.0f}\n", library, vectors);
	return 0;
differs:
	fprintf(stderr, "memcpy-rate: the copy differs\n");
	return 1;
}
