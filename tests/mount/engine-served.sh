#!/bin/sh
# tests/mount/engine-served.sh - layers that session one serves: policies, capture, a kill
. "$(dirname "$0")/../lib/common.sh"
need fuse

inputs() {
	mkdir -p "$1/src/dir/deep" "$1/src/gone" "$1/lib"
	for f in src/input src/dir/inner src/dir/deep/leaf src/gone/a src/gone/b lib/a lib/b src/old; do
		echo "input $f" > "$1/$f"
	done
	printf '#!/bin/sh\necho ran\n' > "$1/lib/tool"
	chmod 755 "$1/lib/tool"
	ln -s input "$1/src/link"
}
# Everything that a process may try with what it does not own; some of it works under `all`.
# shellcheck disable=SC2016
attack='
	cd "$1" || exit
	for f in src/input src/dir/inner lib/a lib/tool; do
		echo evil >> "$f"
		echo evil > "$f"
		chmod 777 "$f"
		touch -d 1999-01-01 "$f"
		truncate -s 3 "$f"
		truncate -s 100000 "$f"
		dd if=/dev/zero of="$f" bs=1 count=5 conv=notrunc
		"$FSCHECK" call OK map-shared "$f"
		ln "$f" "$f.link"
		mv "$f" "$f.moved"
		mv "$f.moved" "$f"
		cp /bin/true "$f.new"
		mv "$f.new" "$f"
	done
	rm -f src/link
	ln -s /etc/passwd src/link
	rm -rf src/gone
	mv src/dir src/elsewhere
	mkdir src/dir
	rm -f lib/b
	echo new > lib/new
'
# shellcheck disable=SC2016
work='
	cd "$1" || exit
	rm src/input
	echo new > src/input
	rm -r src/gone
	mkdir src/gone
	echo c > src/gone/c
	mv src/dir src/moved
	echo more >> src/moved/inner
	mkdir src/dir
	ln src/moved/inner src/dir/linked
	mv src/moved/deep src/dir/deeper
	rm lib/b
	mv lib/a lib/b
	chmod 400 lib/b
	chmod 755 src/old
	ln -s ../lib/b src/dir/sym
	mv src/link src/dir/link
	echo x > src/dir/.hidden
	: > src/dir/empty
	mkdir -m 700 src/dir/private
'

body() {
	inputs tree
	# Other bytes, for files that are changed everywhere: what the store has must stay.
	root=$(put tree)
	# shellcheck disable=SC2086
	mount_start $forced

	# The witness looks first, and last.
	witness=$(sandbox_new "$root" --id witness --output out/)
	trees_equal tree/src "$witness/src"

	for policy in outputs dirs all; do
		for how in "" "unshare -Ur"; do
			# shellcheck disable=SC2086
			[ -z "$how" ] || $how true 2> /dev/null || continue
			s=$(sandbox_new "$root" --id "$policy" --writable "$policy" --output out/ --output src/res)
			# shellcheck disable=SC2086
			FSCHECK=$FSCHECK $how sh -c "$attack" sh "$s" > attacked 2>&1 || :
			trees_equal tree/src "$witness/src"
			trees_equal tree/lib "$witness/lib"
			casbox sandbox remove "$policy"
			next=$(sandbox_new "$root" --id next --output out/ --output src/res)
			trees_equal tree/src "$next/src"
			trees_equal tree/lib "$next/lib"
			casbox sandbox remove next
		done
	done
	casbox fsck > fsck || fail "the store: $(cat fsck)"
	eq "the root in the store" "$root" "$(put tree)"

	# Policies: what may be made where.
	s=$(sandbox_new "$root" --id p-outputs --output out/ --output src/res --output src/old)
	"$FSCHECK" call OK mkdir "$s/src/res"
	"$FSCHECK" call EROFS mkdir "$s/src/dir/new"
	"$FSCHECK" call EROFS mkdir "$s/lib/new"
	"$FSCHECK" call EROFS unlink "$s/src/input"
	"$FSCHECK" call EROFS rename "$s/src/dir" "$s/src/res/dir"
	"$FSCHECK" call "EXDEV|EPERM" link "$s/src/input" "$s/src/res/link"
	"$FSCHECK" call "EBUSY|EROFS" rmdir "$s/out"
	"$FSCHECK" call "EBUSY|EROFS" rename "$s/out" "$s/src/res/out"
	"$FSCHECK" call EROFS rename "$s/src/res" "$s/lib/res"
	"$FSCHECK" call OK rename "$s/src/res" "$s/out/res"
	"$FSCHECK" call OK unlink "$s/src/old"
	"$FSCHECK" call OK mkdir "$s/src/old"
	echo out > "$s/src/old/file"
	casbox sandbox finish p-outputs > finished
	eq "outputs" "out
src/old
" "$(cut -f1 finished)
"
	eq "an output in place of an input" "file" "$(casbox ls "$(sed -n 's/^src.old\t//p' finished)" | sed 's/.* //')"
	s=$(sandbox_new "$root" --id p-dirs --writable dirs --output out/)
	"$FSCHECK" call OK mkdir "$s/lib/new"
	"$FSCHECK" call OK rename "$s/lib/new" "$s/src/dir/newer"
	"$FSCHECK" call EROFS unlink "$s/lib/a"
	"$FSCHECK" call EROFS rename "$s/src/dir" "$s/src/dir2"
	casbox sandbox finish p-dirs > finished

	# The same names and bytes as on a disk, and a kill in the middle of it.
	for kill in "" yes; do
		s=$(sandbox_new "$root" --id work --writable all --output src --output lib)
		rm -rf disk
		inputs disk
		chmod -R u+w disk
		if [ "$kill" ]; then
			# Inputs are nobody's to write to until somebody says so.
			chmod u+w "$s/src/dir/inner"
		fi
		sh -e -c "chmod u+w \"\$1/src/dir/inner\"; $work" sh "$s"
		sh -e -c "$work" sh disk
		diff -r --no-dereference disk/src "$s/src" || fail "differs from a disk"
		if [ "$kill" ]; then
			exec 5>> "$s/src/unlinked"
			rm "$s/src/unlinked"
			mount_kill
			exec 5>&-
			# shellcheck disable=SC2086
			mount_start $forced
		fi
		diff -r --no-dereference disk/src "$s/src" || fail "${kill:+after a kill, }src"
		diff -r --no-dereference disk/lib "$s/lib" || fail "${kill:+after a kill, }lib"
		eq "mode kept" "400 755 700" "$(stat -c %a "$s/lib/b" "$s/src/old" "$s/src/dir/private" | tr '\n' ' ' | sed 's/ $//')"
		eq "links" "$(stat -c %i "$s/src/moved/inner")" "$(stat -c %i "$s/src/dir/linked")"
		for dir in src src/dir src/moved lib; do
			"$FSCHECK" dirents "$s/$dir" || fail "what a listing of $dir says"
		done
		casbox sandbox finish work > finished
		for part in src lib; do
			rm -rf got
			casbox checkout "$(sed -n "s/^$part\t//p" finished)" got
			diff -r --no-dereference "disk/$part" got || fail "${kill:+after a kill, }captured $part"
		done
		casbox sandbox remove work
	done
	trees_equal tree/src "$witness/src"
	casbox sandbox remove witness
	mount_stop
}

if [ -n "${TEST_USER:-}" ]; then
	forced=
	body
	exit
fi
need root
forced='--engine fuse'
body
need fusermount3
again_as_user
