# tools/completion/casbox.bash - completion of casbox for bash
#
# Commands and options are asked of the program itself, so that they are never old ones.

_casbox() {
	local program=${COMP_WORDS[0]} cur=${COMP_WORDS[COMP_CWORD]} command= sub= i word
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		--)
			# What comes now is a command of its own.
			COMPREPLY=($(compgen -c -f -- "$cur"))
			return
			;;
		--*)
			# Its value is no command; bash takes the "=" for a word.
			if [ -z "$command" ] && [ "${COMP_WORDS[i + 1]}" = = ]; then
				((i += 2))
			elif [ -z "$command" ] && "$program" run --help 2> /dev/null | grep -q -e " $word [A-Z]"; then
				((i++))
			fi
			;;
		-*) ;;
		*)
			if [ -z "$command" ]; then
				command=$word
			elif [ "$command" = sandbox ] && [ -z "$sub" ]; then
				sub=$word
			fi
			;;
		esac
	done
	case $cur in
	-*)
		# shellcheck disable=SC2086
		COMPREPLY=($(compgen -W "$("$program" $command $sub --help 2> /dev/null |
			sed -n 's/^  \(-., \)* *\(--[a-z-]*\).*/\2/p')" -- "$cur"))
		return
		;;
	esac
	if [ -z "$command" ]; then
		COMPREPLY=($(compgen -W "$("$program" --help 2> /dev/null |
			sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')" -- "$cur"))
	elif [ "$command" = sandbox ] && [ -z "$sub" ]; then
		COMPREPLY=($(compgen -W "create finish show list remove" -- "$cur"))
	else
		case ${COMP_WORDS[COMP_CWORD - 1]} in
		-w | --writable) COMPREPLY=($(compgen -W "outputs dirs all" -- "$cur")) ;;
		--trace) COMPREPLY=($(compgen -W "off names reads exact" -- "$cur")) ;;
		--durability) COMPREPLY=($(compgen -W "none batch full" -- "$cur")) ;;
		--log-level) COMPREPLY=($(compgen -W "error warn info debug" -- "$cur")) ;;
		*) COMPREPLY=($(compgen -f -- "$cur")) ;;
		esac
	fi
}
complete -o filenames -F _casbox casbox
