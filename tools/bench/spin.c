// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a loop of a known number of instructions and prints the nanoseconds that it took.
 * Under -icount both are equal, unless another task ran on the processor too.
 */

#include <stdio.h>
#include <time.h>

#define TURNS 10000000UL
#define PER_TURN 2

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void)
{
	unsigned long turns = TURNS;
	double begin = now();

	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(turns));
	printf("{\"nanoseconds\": %.0f, \"instructions\": %lu}\n", now() - begin, TURNS * PER_TURN);
	return 0;
}
