#!/bin/sh
# tests/lint/libraries.sh CASBOX [static] - what a start of the program does not load
set -eu

# Each command is a process of its own; libcurl and gRPC core bring eighty libraries along,
# and of the others each costs 0.05 to 0.8 ms.
loaded=$(LD_TRACE_LOADED_OBJECTS=1 "$1")
case $loaded in
*libfuse3*) ;;
*)
	echo "not a list of libraries: $loaded"
	exit 1
	;;
esac
never='curl|grpc|gpr|ssl'
[ "${2-}" != static ] || never="$never|crypto|sqlite3|lmdb|jansson|protobuf-c|zstd"
if printf '%s\n' "$loaded" | grep -E "^[[:space:]]*lib($never)[.-]"; then
	echo "loaded by each start of $1"
	exit 1
fi
