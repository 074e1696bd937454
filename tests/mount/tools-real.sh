#!/bin/sh
# tests/mount/tools-real.sh - everyday tools leave the same in a sandbox as on a disk (C37)
#
# TEST_LONG=1 has all engines, and what takes minutes or a network: npm install of a real
# package, a virtual environment with pip, and make -j of the C projects named in TEST_SOURCES.
. "$(dirname "$0")/../lib/common.sh"
need fuse git sqlite3 python3 make cc
[ -n "${TEST_USER:-}" ] || need overlay

export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
	GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'

# What a tree holds, times aside: one line an entry, with the sum of what files hold.
list() {
	(cd "$1" && find . \( -type d -o -type l -o -type p \) -printf '%y %m %p %l\n' && find . -type f \
		-printf '%y %m %n %p ' -exec sha256sum {} \; | sed 's/  [^ ]*$//') | sort
}

copy() {
	cp -r "$1" "$2"
	chmod -R u+w "$2"
}

use_git() {
	git init -q -b main repo
	copy "$1/c" repo/
	(
		cd repo
		git add -A
		git commit -qm one
		for i in $(seq "$(full_or 5 20)"); do
			echo "$i" >> "c/file$i.c"
			git commit -qam "change $i"
		done
		git mv c/file1.c c/moved.c
		git checkout -q -b other HEAD~3
		git checkout -q main 2> /dev/null || git checkout -qf main
		git stash -q 2> /dev/null || :
		git gc -q
		git fsck --full --strict 2> /dev/null
	)
	git clone -q repo clone
	git clone -q --no-local --bare repo bare.git
	(cd clone && git log --format=%H && git status --porcelain && git archive HEAD | sha256sum) > git.log
	git -C bare.git fsck 2> /dev/null
	rm -rf repo/.git clone/.git bare.git
}

# Two writers and a reader at once, over the shared memory of a log that is written ahead.
use_sqlite() {
	sqlite3 data.db 'pragma journal_mode = wal; create table t (id integer primary key, who, n);' > /dev/null
	writers=
	for who in a b; do
		for n in $(seq "$(full_or 10 40)"); do echo "insert into t (who, n) values ('$who', $n);"; done |
			sqlite3 -cmd '.timeout 20000' -cmd 'pragma synchronous = off' data.db &
		writers="$writers $!"
	done
	for _ in 1 2 3; do sqlite3 -cmd '.timeout 20000' data.db 'select count(*) from t' > /dev/null; done
	for writer in $writers; do wait "$writer"; done
	sqlite3 data.db 'delete from t where n % 2; vacuum; pragma wal_checkpoint(truncate);' > /dev/null
	sqlite3 data.db 'pragma integrity_check; select who, n from t order by who, n' > sqlite.log
	rm -f data.db*
}

use_tar() {
	mkdir odd
	copy "$1/c/file1.c" odd/a
	ln odd/a odd/linked
	ln -s ../nowhere odd/dangling
	mkfifo odd/fifo
	truncate -s 5M odd/sparse
	printf end >> odd/sparse
	chmod 640 odd/a
	touch -d '2001-02-03 04:05:06' odd/a odd/sparse
	tar -cSf odd.tar odd
	mkdir untarred
	tar -xf odd.tar -C untarred
	(cd untarred && find odd -printf '%y %m %n %s %l %p\n' -type f -printf '%T@\n' | grep -v '^d' | sort) > tar.log
	rm odd.tar
}

use_rsync() {
	command -v rsync > /dev/null || return 0
	rsync -aHS "$1/c/" odd synced/
	rsync -aHS --itemize-changes --delete "$1/c/" odd synced/ > rsync.log
	rm synced/file2.c
	rsync -aHS --itemize-changes --delete "$1/c/" odd synced/ | sed 's/^\([^ ]*\).* /\1 /' >> rsync.log
}

use_make() {
	copy "$1/c" make
	make -s -C make -j4
	make/program > make.log
	make -C make -j4 | sed "s|$PWD||" >> make.log
	rm -f make/*.d
}

use_venv() {
	python3 -m venv --without-pip venv 2> /dev/null || return 0
	venv/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)' > venv.log
	find venv -type f -exec sed -i "s|$PWD|HERE|g" {} +
	find venv -name __pycache__ -prune -exec rm -rf {} +
}

use_deb() {
	command -v dpkg-deb > /dev/null || return 0
	mkdir -p pkg/DEBIAN pkg/usr/share/thing
	copy "$1/c" pkg/usr/share/thing/
	ln -s thing/c pkg/usr/share/link
	printf 'Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: d\n' > pkg/DEBIAN/control
	SOURCE_DATE_EPOCH=1700000000 dpkg-deb --root-owner-group -b pkg thing.deb > /dev/null
	dpkg-deb -x thing.deb extracted
	rm thing.deb
}

use_long() {
	[ -n "${TEST_LONG:-}" ] || return 0
	if command -v npm > /dev/null; then
		mkdir npm
		# Its own log and times aside.
		(cd npm && npm init -y && npm install --no-audit --no-fund express@4.19.2) > npm.out 2>&1 ||
			fail "npm: $(cat npm.out)"
		(cd npm && node -e 'require("express")(); console.log("loaded")') > npm.log
		rm npm.out npm/node_modules/.package-lock.json
	fi
	python3 -m venv full && full/bin/pip --version | sed 's/ from.*//' > pip.log
	rm -rf full
	for source in ${TEST_SOURCES:-}; do
		name=$(basename "$source")
		cp -r "$source" "project-$name"
		(cd "project-$name" && { [ ! -x configure ] || ./configure > /dev/null 2>&1; } && make -j4 > /dev/null 2>&1 &&
			echo "built $name") >> long.log
		find "project-$name" -name '*.o' | wc -l >> long.log
		rm -rf "project-$name"
	done
}

# In the directory that is current, with inputs below $1.
use_all() {
	for tool in git sqlite tar rsync make venv deb long; do
		echo "--- $tool in $PWD"
		"use_$tool" "$1"
	done
}

body() {
	mkdir -p tree/src/c
	for i in $(seq 24); do
		printf 'int f%d(int x) { return x + %d; }\n' "$i" "$i" > "tree/src/c/file$i.c"
	done
	{
		echo '#include <stdio.h>'
		for i in $(seq 24); do echo "int f$i(int);"; done
		echo 'int main(void) { int x = 0;'
		for i in $(seq 24); do echo "x = f$i(x);"; done
		echo 'printf("%d ", x); return 0; }'
	} > tree/src/c/main.c
	cat > tree/src/c/Makefile <<-'END'
		CFLAGS = -MMD -ffile-prefix-map=$(CURDIR)=.
		OBJS = $(patsubst %.c,%.o,$(wildcard *.c))
		program: main.o lib.a
		 	$(CC) -o $@ $^
		lib.a: $(filter-out main.o,$(OBJS))
		 	$(AR) rcsD $@ $(sort $^)
		-include $(wildcard *.d)
	END
	sed -i 's/^ \t/\t/' tree/src/c/Makefile

	# As inputs have them. (Whether rsync finds a time changed depends on the second, too.)
	chmod 444 tree/src/c/*
	find tree -exec touch -d 2000-01-01T00:00:00Z {} +
	mkdir reference
	cd reference
	use_all "$T/tree/src"
	cd ..
	list reference > reference.list
	[ -n "${TEST_LONG:-}" ] || ENGINES="beside served-root"
	mount_start
	each_engine tree in_sandbox
	mount_stop
}

# shellcheck disable=SC2317
in_sandbox() {
	cd "$3"
	use_all "$2/src"
	cd "$T"
	list "$3" > "$T/$1.list"
	diff reference.list "$T/$1.list" > difference || fail "on $1: $(head -n 5 difference)"
}

if [ -n "${TEST_USER:-}" ]; then
	ENGINES="bind beside root"
	body
	exit
fi
each_user body
# And written through a mount of fusermount3's.
if [ -n "${TEST_LONG:-}" ] && [ -z "${TEST_PLAIN:-}" ]; then again_as_user; fi
