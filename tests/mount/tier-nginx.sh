#!/bin/sh
# a real server: nginx with DAV, plain and with TLS, HTTP/2 and a password from a file
. "$(dirname "$0")/../lib/common.sh"
PATH=$PATH:/usr/sbin
need root fuse nginx openssl
nginx -V 2>&1 | grep -q http_dav_module || skip "this nginx has no DAV"
nginx -V 2>&1 | grep -q http_v2_module || skip "this nginx has no HTTP/2"

mkdir -p "$T/www/cache" "$T/www/body"
chmod -R 777 "$T/www"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
	-addext subjectAltName=DNS:localhost -keyout "$T/key" -out "$T/cert" 2> /dev/null
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=client \
	-keyout "$T/client-key" -out "$T/client-cert" 2> /dev/null
printf 'me:%s\n' "$(openssl passwd -6 secret)" > "$T/users"
echo me:secret > "$T/me"
echo me:wrong > "$T/other"
chmod 644 "$T/users"

try_port() {
	port=$1
	cat > "$T/nginx.conf" << END
pid $T/nginx.pid;
error_log $T/nginx.log;
worker_processes 1;
events { }
http {
	access_log $T/access.log;
	client_body_temp_path $T/www/body;
	client_max_body_size 0;
	root $T/www;
	dav_methods PUT;
	create_full_put_path on;
	server { listen 127.0.0.1:$port; }
	server {
		listen 127.0.0.1:$((port + 1)) ssl http2;
		ssl_certificate $T/cert;
		ssl_certificate_key $T/key;
		auth_basic x;
		auth_basic_user_file $T/users;
	}
	server {
		listen 127.0.0.1:$((port + 2)) ssl;
		ssl_certificate $T/cert;
		ssl_certificate_key $T/key;
		ssl_verify_client on;
		ssl_client_certificate $T/client-cert;
	}
}
END
	nginx -c "$T/nginx.conf" 2> "$T/nginx.err"
}
tries=0
until try_port $((20000 + ($$ + tries * 977) % 10000)); do
	tries=$((tries + 1))
	[ "$tries" -lt 20 ] || fail "nginx does not start: $(cat "$T/nginx.err")"
done
trap 'kill "$(cat "$T/nginx.pid")" 2> /dev/null' EXIT

sample_tree "$T/tree"
head -c 3000000 /dev/urandom > "$T/tree/large"
URL=http://127.0.0.1:$port/cache
root=$(casbox --store "$T/far" --tier "$URL?write=yes" put "$T/tree") || fail "put"
mount_start --tier "$URL"
sandbox=$(sandbox_new "$root" --id one)
diff -r --no-dereference "$T/tree" "$sandbox" || fail "another tree"
mount_stop

SAFE="https://localhost:$((port + 1))/safe?write=yes&ca-file=$T/cert"
expect 0 casbox --store "$T/far" --tier "$SAFE&user-file=$T/me" push "$root"
expect 0 casbox --store "$T/second" --tier "$SAFE&user-file=$T/me" checkout "$root" "$T/laid"
diff -r --no-dereference "$T/tree" "$T/laid" || fail "another tree over TLS"
grep -q '"GET /safe/cas/.* HTTP/2' "$T/access.log" || fail "not over HTTP/2"

# Without the right password, or a certificate to trust: told, without the secret.
expect 1 casbox --store "$T/third" --tier "$SAFE&user-file=$T/other" cat "$root"
said "status 401"
! grep -q wrong "$T/err" || fail "the password is told"
expect 1 casbox --store "$T/third" --tier "https://localhost:$((port + 1))/safe" cat "$root"
said "certificate"

# A server that wants to know who we are.
WHO="https://localhost:$((port + 2))/safe?ca-file=$T/cert"
us="cert-file=$T/client-cert&key-file=$T/client-key"
expect 0 casbox --store "$T/fourth" --tier "$WHO&$us" checkout "$root" "$T/laid-4"
diff -r --no-dereference "$T/tree" "$T/laid-4" || fail "another tree with a certificate"
expect 1 casbox --store "$T/fifth" --tier "$WHO&tries=1" cat "$root"
said "status 400"
expect 1 casbox --store "$T/fifth" --tier "$WHO&tries=1&cert-file=$T/cert&key-file=$T/key" cat "$root"
said "status 400"
expect 1 casbox --store "$T/fifth" --tier "$WHO&cert-file=$T/client-cert" cat "$root"
said "go together"
expect 1 casbox --store "$T/fifth" --tier "$URL?$us" cat "$root"
said "is for https://"
