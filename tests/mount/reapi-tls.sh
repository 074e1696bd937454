#!/bin/sh
# a REAPI tier over TLS: authorities and tokens come from files, and neither is optional
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
command -v openssl > /dev/null || exit 77

mkdir "$T/http"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
	-keyout "$T/http/key" -out "$T/http/cert" -subj /CN=localhost \
	-addext subjectAltName=IP:127.0.0.1,DNS:localhost 2> "$T/err"
http_start
# No other server may have that port with it, and answer calls that are not for it.
mkdir "$T/other"
expect 1 "$HTTPD" "$T/other" "$(cat "$T/http/port")"
URL=grpcs://${URL#*://}
trusted="$URL?ca-file=$T/http/cert&tries=1"
echo hello > "$T/file"
blob=$(far_put "$T/file")

eq "what is read" hello "$(casbox --tier "$trusted" cat "$blob")"
expect 1 casbox --store "$T/two" --tier "$URL?tries=1" cat "$blob"
said "certificate verify failed"
expect 1 casbox --store "$T/two" --tier "grpc://${URL#*://}?tries=1" cat "$blob"
said "UNAVAILABLE"

# A token, renewed; no message repeats it.
echo "Bearer sesame" > "$T/http/auth"
expect 1 casbox --store "$T/two" --tier "$trusted" cat "$blob"
said "UNAUTHENTICATED"
echo humbug > "$T/token"
expect 1 casbox --store "$T/two" --tier "$trusted&token-file=$T/token" cat "$blob"
said "UNAUTHENTICATED"
grep -q humbug "$T/out" "$T/err" && fail "the token is in a message"
echo sesame > "$T/token"
eq "with the token" hello "$(casbox --store "$T/two" --tier "$trusted&token-file=$T/token" cat "$blob")"
# gRPC can be told to print what it sends.
GRPC_TRACE=all GRPC_VERBOSITY=debug casbox --store "$T/three" \
	--tier "$trusted&token-file=$T/token" cat "$blob" > "$T/out" 2> "$T/err"
eq "with traces" hello "$(cat "$T/out")"
grep -q sesame "$T/out" "$T/err" && fail "the token is in a trace"

# A server that wants to know who we are.
exec 9>&-
wait "$HTTP_PID" || :
rm "$T/http/auth"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
	-keyout "$T/client-key" -out "$T/http/clients" -subj /CN=client 2> "$T/err"
http_start
trusted="grpcs://${URL#*://}?ca-file=$T/http/cert&tries=1"
eq "with a certificate" hello "$(casbox --store "$T/four" \
	--tier "$trusted&cert-file=$T/http/clients&key-file=$T/client-key" cat "$blob")"
expect 1 casbox --store "$T/five" --tier "$trusted" cat "$blob"
expect 1 casbox --store "$T/five" \
	--tier "$trusted&cert-file=$T/http/cert&key-file=$T/http/key" cat "$blob"
said "UNAVAILABLE"
