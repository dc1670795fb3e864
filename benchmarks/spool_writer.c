/* Writes jobs into a spool as slurmctld does, at a rate, and removes each after a while.
 *
 * usage: spool_writer CORPUS SPOOL FIRST COUNT RATE REMOVE_AFTER_MS
 *
 * CORPUS holds records, used one after another and again from the first: two lengths of 4 bytes, then environment and
 * script. RATE 0 is as fast as it goes; REMOVE_AFTER_MS 0 leaves the jobs there.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *spool;

static double now(void)
{
	struct timespec moment;
	clock_gettime(CLOCK_MONOTONIC, &moment);
	return moment.tv_sec + moment.tv_nsec / 1e9;
}

static void sleep_until(double moment)
{
	double left = moment - now();
	if (left > 0)
		usleep(left * 1e6);
}

static void path_of(char *path, long job, const char *file)
{
	snprintf(path, 4096, "%s/hash.%ld/job.%ld%s", spool, job % 10, job, file);
}

static void write_file(long job, const char *file, mode_t mode, const char *content, size_t first, size_t size)
{
	char path[4096];
	path_of(path, job, file);
	int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (descriptor < 0 || (first && write(descriptor, content, first) < 0) ||
	    write(descriptor, content + first, size - first) < 0) {
		perror(path);
		exit(1);
	}
	close(descriptor);
}

static void remove_job(long job)
{
	char path[4096];
	path_of(path, job, "/environment");
	unlink(path);
	path_of(path, job, "/script");
	unlink(path);
	path_of(path, job, "");
	rmdir(path);
}

int main(int count, char **arguments)
{
	if (count != 7)
		return 2;
	int corpus = open(arguments[1], O_RDONLY);
	struct stat status;
	if (corpus < 0 || fstat(corpus, &status))
		return 2;
	const char *records = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, corpus, 0), *record = records;
	spool = arguments[2];
	long first = atol(arguments[3]), jobs = atol(arguments[4]), removed = 0;
	double rate = atof(arguments[5]), stay = atof(arguments[6]) / 1e3, began = now();
	double *made = malloc(jobs * sizeof *made);
	for (long number = 0; number < jobs; number++) {
		char path[4096];
		uint32_t sizes[2];
		if (rate)
			sleep_until(began + number / rate);
		if (record >= records + status.st_size)
			record = records;
		memcpy(sizes, record, sizeof sizes);
		record += sizeof sizes;
		path_of(path, first + number, "");
		if (mkdir(path, 0700)) {
			perror(path);
			return 1;
		}
		write_file(first + number, "/environment", 0600, record, 4, sizes[0]);
		write_file(first + number, "/script", 0700, record + sizes[0], 0, sizes[1]);
		record += sizes[0] + sizes[1];
		made[number] = now();
		while (stay && removed < number && made[removed] + stay < made[number])
			remove_job(first + removed++);
	}
	printf("%.3f\n", now() - began);
	for (; stay && removed < jobs; removed++) {
		sleep_until(made[removed] + stay);
		remove_job(first + removed);
	}
	return 0;
}
