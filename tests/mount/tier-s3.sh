#!/bin/sh
# a bucket: every request signed as a service checks it, large blobs in parts
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start
echo "AKIDEXAMPLE wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY eu-test-1" > "$T/http/s3"
cat > "$T/credentials" << END
[default]
aws_access_key_id = AKIDEXAMPLE
aws_secret_access_key=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
END
host=${URL%/cache}
S3="s3://bucket/pre/fix?endpoint=$host&region=eu-test-1&part-size=100000&tries=1"
with="&credentials-file=$T/credentials"

mkdir "$T/tree"
echo small > "$T/tree/small"
seq 60000 > "$T/tree/large"
expect 0 casbox --store "$T/far" --tier "$S3$with&write=yes" put "$T/tree"
eq "warnings" "" "$(cat "$T/err")"
root=$(cat "$T/out")
eq "parts" 4 "$(grep -c 'partNumber=' "$T/http/log")"
eq "refused" "" "$(grep REFUSED "$T/http/log" || :)"
large=$(casbox put "$T/tree/large")
cmp "$T/http/data/bucket/pre/fix/cas/${large%/*}" "$T/tree/large" || fail "not put together"
rm -rf "$STORE"

mount_start --tier "$S3$with"
sandbox=$(sandbox_new "$root" --id one)
diff -r "$T/tree" "$sandbox" || fail "another tree"
mount_stop
eq "refused" "" "$(grep REFUSED "$T/http/log" || :)"

# Unsigned, or with another secret: no, and no secret in what is said.
expect 1 casbox --store "$T/other" --tier "$S3" cat "$root"
said "status 403"
sed 's/KEY$/XXXXXX/' "$T/credentials" > "$T/wrong"
expect 1 casbox --store "$T/other" --tier "$S3&credentials-file=$T/wrong" cat "$root"
said "status 403"
! grep -q 'XXXXXX\|wJalr' "$T/err" || fail "the secret is told"
grep -q "REFUSED another signature" "$T/http/log" || fail "it was not the signature"

# Sent elsewhere, a signed request does not go there, and with it no token of the session.
echo "aws_session_token = sEsSiOn" | cat "$T/credentials" - > "$T/session"
fault moved 1
: > "$T/http/log"
expect 1 casbox --store "$T/moved" --tier "$S3&credentials-file=$T/session" cat "$large"
said "status 307"
eq "requests" 1 "$(grep -c "cas/${large%/*}" "$T/http/log")"
expect 0 casbox --store "$T/moved" --tier "$S3&credentials-file=$T/session" cat "$large"

# A part that fails takes the upload back.
echo 'KEY SECRET other' > "$T/http/s3"
expect 0 casbox --store "$T/other" --tier "$S3$with&write=yes" put "$T/tree/large"
said "not sent"
