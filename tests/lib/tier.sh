# tests/lib/tier.sh - what cases with a tier over HTTP start from, after common.sh
#
# tests/lib/httpd.c serves $T/http; its root is $URL. The tests' own store is $STORE, the
# one that fills the server is $T/far.

FAR=$T/far

# Start the server; it ends with the case.
http_start() {
	need "${HTTPD:?is the server}"
	mkdir -p "$T/http"
	rm -f "$T/http/port" "$T/http/stdin"
	mkfifo "$T/http/stdin"
	"$HTTPD" "$T/http" < "$T/http/stdin" > "$T/http/out" 2>&1 &
	HTTP_PID=$!
	exec 9> "$T/http/stdin"
	await test -s "$T/http/port"
	URL=${TIER_SCHEME:-http}://127.0.0.1:$(cat "$T/http/port")/cache
	mkdir -p "$T/http/data/cache/cas" "$T/http/data/cache/ac"
}

# far_put PATH: put it at the server alone; its digest.
far_put() {
	far_digest=$("$CASBOX" --store "$FAR" put "$1")
	for blob in "$FAR"/cas/*/*; do
		[ -e "$T/http/data/cache/cas/${blob##*/}" ] ||
			cp "$blob" "$T/http/data/cache/cas/${blob##*/}"
	done
	echo "$far_digest"
}

# fault KIND [TIMES]: what goes wrong from now on.
fault() {
	rm -f "$T/http/fault"
	[ "$1" = none ] || {
		echo "$@" > "$T/http/fault.new"
		mv "$T/http/fault.new" "$T/http/fault"
	}
}

# gets [DIGEST]: how many were asked for, of this blob or of all.
gets() {
	wanted=${1:-}
	grep -c "^GET /cache/cas/${wanted%/*}" "$T/http/log" || :
}
