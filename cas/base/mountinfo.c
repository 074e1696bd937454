/* cas/base/mountinfo.c - what is mounted where, as the kernel lists it */
#include "cas/base/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"

#define READ_SZ (64 << 10)

int mountinfo_read(int fd, struct mountinfo *out)
{
	ssize_t got = 1;

	*out = (struct mountinfo){0};
	for (off_t at = 0; got > 0; at += got) {
		int ret = buf_reserve(&out->text, READ_SZ + 1);

		/* One read gives whole lines, up to a page or so of them. */
		got = ret < 0 ? ret : pread(fd, out->text.data + out->text.len, READ_SZ, at);
		if (got < 0 && ret == 0)
			got = -errno;
		if (got < 0) {
			mountinfo_fini(out);
			return (int)got;
		}
		out->text.len += (size_t)got;
		out->text.data[out->text.len] = '\0';
	}
	out->next = out->text.data;
	return 0;
}

int mountinfo_read_self(struct mountinfo *out)
{
	auto_close int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : mountinfo_read(fd, out);
}

void mountinfo_fini(struct mountinfo *m)
{
	buf_fini(&m->text);
	m->next = NULL;
}

/* Undo the \ooo in place. */
static void unescape(char *s)
{
	char *out = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

/* ID PARENT MAJOR:MINOR ROOT PATH OPTIONS [FIELD]... - TYPE SOURCE OPTIONS */
static bool parse(char *line, struct mountinfo_entry *out)
{
	char *type = strstr(line, " - ");
	char *field[5];
	char *save = NULL;
	unsigned maj;
	unsigned min;

	if (type == NULL)
		return false;
	type += 3;
	type[strcspn(type, " ")] = '\0';
	for (int i = 0; i < 5; i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
		if (field[i] == NULL)
			return false;
	}
	if (sscanf(field[2], "%u:%u", &maj, &min) != 2)
		return false;
	unescape(field[3]);
	unescape(field[4]);
	*out = (struct mountinfo_entry){.id = strtoull(field[0], NULL, 10),
					.dev = makedev(maj, min),
					.root = field[3],
					.path = field[4],
					.type = type};
	return true;
}

bool mountinfo_next(struct mountinfo *m, struct mountinfo_entry *out)
{
	while (m->next && *m->next) {
		char *line = m->next;
		size_t len = strcspn(line, "\n");

		m->next += len + (line[len] == '\n');
		line[len] = '\0';
		if (parse(line, out))
			return true;
	}
	return false;
}
