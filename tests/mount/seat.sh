#!/bin/sh
# Whoever asks for one thing after the other is served on his processor, by one thread, as long as
# he does; within what the daemon was given, and where there is more than one.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount python3 taskset

config() {
	sed -n "s/^$1 = //p" "$MNT/.casbox/config"
}

# daemon_tids NAME: its threads of that name.
daemon_tids() {
	for task in /proc/"$DAEMON"/task/*; do
		if [ "$(cat "$task/comm")" = "$1" ]; then basename "$task"; fi
	done
}

allowed() {
	sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$DAEMON/task/$1/status"
}

# Runs on processor $1 and looks for names in directory $2 until the thread $3 of the daemon sits there.
cat > "$T/ask.py" << 'END'
import os, sys, time

cpu, path, status = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.sched_setaffinity(0, {cpu})
end = time.monotonic() + 30
nr = 0
while time.monotonic() < end:
    for _ in range(500):
        nr += 1
        try:
            os.stat(f"{path}/no-{os.getpid()}-{nr}")
            sys.exit("a name that nobody made is there")
        except FileNotFoundError:
            pass
    for line in open(status):
        if line.startswith("Cpus_allowed_list:") and line.split()[1] == str(cpu):
            sys.exit(0)
sys.exit("nobody followed")
END

# Looks for many names in directory $1, from another processor than the first.
cat > "$T/ask-other.py" << 'END'
import os, sys

path = sys.argv[1]
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
for nr in range(3000):
    try:
        os.stat(f"{path}/no-{nr}")
        sys.exit(0)
    except FileNotFoundError:
        pass
sys.exit(1)
END

sits_anywhere() {
	[ "$(allowed "$1")" = "$anywhere" ]
}

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	cpus=$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
	anywhere=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
	[ "${cpus#* }" != "$cpus" ] || skip "one processor"

	mount_start --without seat_heeds,push
	eq seat yes "$(config seat)"
	path=$(sandbox_new "$root" --id one)
	waiter=$(daemon_tids waiter-one)
	for cpu in $cpus; do
		python3 "$T/ask.py" "$cpu" "$path" "/proc/$DAEMON/task/$waiter/status"
		await sits_anywhere "$waiter"
	done
	for tid in $(daemon_tids session-one); do
		eq "processors of one who serves" "$anywhere" "$(allowed "$tid")"
	done
	# Ended, everything is served by many again; and asked for in the middle, it ends at once.
	python3 "$T/ask.py" "${cpus%% *}" "$path" "/proc/$DAEMON/task/$waiter/status"
	trees_equal "$T/tree" "$path"
	casbox sandbox remove one
	mount_stop

	# What others told the daemon holds.
	mount_start --without seat_heeds
	taskset -a -p -c "${cpus%% *}" "$DAEMON" > "$T/taskset"
	path=$(sandbox_new "$root" --id one)
	anywhere=${cpus%% *}
	waiter=$(daemon_tids waiter-one)
	expect 1 python3 "$T/ask-other.py" "$path"
	for task in /proc/"$DAEMON"/task/*; do
		eq "processors of ${task##*/}" "$anywhere" "$(allowed "${task##*/}")"
	done
	mount_stop
}

alone_on_one() {
	mkdir -p "$MNT"
	cpu=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
	taskset -c "$cpu" "$CASBOX" mount "$MNT"
	eq "seat on one processor" "no (one processor)" "$(config seat)"
	casbox umount "$MNT"
	mount_start --without seat
	eq "seat when told so" "no (forced off)" "$(config seat)"
	eq "threads for it" "" "$(daemon_tids waiter-one)$(daemon_tids usher-one)"
	mount_stop
}

body
alone_on_one
