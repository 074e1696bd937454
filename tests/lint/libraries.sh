#!/bin/sh
# tests/lint/libraries.sh CASBOX - what only tiers need is loaded with the first of them
set -eu

# Each command is a process of its own; libcurl and gRPC core bring eighty libraries along.
loaded=$(LD_TRACE_LOADED_OBJECTS=1 "$1")
case $loaded in
*libcrypto*) ;;
*)
	echo "not a list of libraries: $loaded"
	exit 1
	;;
esac
if printf '%s\n' "$loaded" | grep -E '^[[:space:]]*lib(curl|grpc|gpr|ssl)[.-]'; then
	echo "loaded by each start of $1"
	exit 1
fi
