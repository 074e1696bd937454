#!/bin/sh
# tests/mount/mapped-last-byte.sh - C09: no SIGBUS after a listing, a chmod or a rename
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

cat > with-git <<'END'
set -eu
mkdir "$1/repo"
cd "$1/repo"
git init -q .
git config user.name n
git config user.email e@example.org
for i in $(seq 40); do
	seq "$i" 900 > "file-$i"
done
git add .
git commit -q -m first
chmod 755 file-1
echo more >> file-2
git add -u
git commit -q -m second
git repack -adq
[ -z "$(git status --porcelain)" ]
[ "$(git log --oneline | wc -l)" -eq 2 ]
git fsck --no-progress --strict
git checkout -q HEAD~1
[ "$(wc -l < file-2)" -eq 899 ]
cd ..
rm -rf repo
END

on_engine() {
	"$FSSTRESS" mapped-output "$3" || fail "$1: mapped outputs"
	for f in one ten pages; do
		"$FSSTRESS" mapped-input "$2/src/$f" || fail "$1: mapped inputs"
	done
	command -v git > /dev/null || return 0
	sh -x with-git "$3" > "$T/git-said" 2>&1 || fail "$1: git: $(tail -n 5 "$T/git-said")"
}

body() {
	mkdir -p "$T/tree/src"
	for i in 1:one 10:ten 12289:pages; do
		head -c "${i%:*}" /dev/zero | tr '\0' x > "$T/tree/src/${i#*:}"
	done
	root=$(put "$T/tree")
	mount_start
	each_engine "$T/tree" on_engine
	for f in one ten pages; do
		"$FSSTRESS" mapped-input "$MNT/cas/directory/$(dashed "$root")/src/$f"
	done
	mount_stop
}
each_user body
