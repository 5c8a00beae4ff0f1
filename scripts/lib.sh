# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034 # used by the scripts that source this
#
# Code shared by scripts/root and scripts/in-root. These two run on a bare host,
# so they are plain sh and need only Debian's essential packages. All other
# scripts run inside the root, which has Python (scripts/qp).

# `top` is the checkout of these scripts, `here` its scripts directory.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
top=$(dirname -- "$here")
# By the XDG standard, a relative XDG_CACHE_HOME is ignored.
case ${XDG_CACHE_HOME:-} in
/*) cache=$XDG_CACHE_HOME/qpair ;;
*) cache=$HOME/.cache/qpair ;;
esac

say() { printf '%s\n' "qpair: $*" >&2; }

# die CAUSE [REMEDY]
die() {
	say "error: $1"
	[ $# -lt 2 ] || say "remedy: $2"
	exit 125
}

# Version of the way in which scripts/root creates a root of the same packages.
root_recipe=3

# The name of this checkout's root: a hash of its inputs, so that an edit of the
# package list creates a new root, and checkouts with the same list share one.
root_key() {
	{ echo "$root_recipe"; grep -v -e '^#' -e '^$' "$here/packages"; } |
		sha256sum | cut -c 1-16
}

root_path() {
	if [ -n "${QPAIR_ROOT:-}" ]; then
		printf '%s\n' "$QPAIR_ROOT"
	else
		printf '%s\n' "$cache/root/$(root_key)"
	fi
}

# explain LOG: prints the likely cause of a failed step, according to its log.
explain() {
	if grep -qi 'no space left on device' "$1"; then
		say "cause: the disk is full ($(df -Ph "$cache" | awk 'NR == 2 { print $4 " left on " $6 }'))"
		say "remedy: free some space (8 GB in all for make test; scripts/cache lists its entries), or set XDG_CACHE_HOME to a larger disk, and run again"
	elif grep -qiE 'could not resolve|temporary failure resolving|could not connect|unable to connect|connection (timed out|refused|reset)|failed to fetch|network is unreachable|hash sum mismatch|unexpected size|403 |404 |502 |503 ' "$1"; then
		say "cause: a download from the package archive failed"
		say "remedy: check the network and the proxy settings (http_proxy, /etc/apt), then run again"
	elif grep -qiE 'unable to locate package|has no installation candidate' "$1"; then
		say "cause: the archive lacks a package of scripts/packages"
		say "remedy: use a complete mirror of Debian 13 with its backports in /etc/apt"
	elif grep -qiE 'not signed|NO_PUBKEY|signature verification failed' "$1"; then
		say "cause: the archive's key is not known on this host"
		say "remedy: apt-get install debian-archive-keyring (12u2 or newer), then run again"
	elif grep -qiE 'operation not permitted|permission denied' "$1"; then
		say "cause: this user may not create the build root"
		say "remedy: run as root, or allow user namespaces (apt-get install uidmap)"
	fi
}

# step NAME LOG COMMAND...: runs COMMAND with its output in LOG, reports
# progress every 20 seconds, and the time taken; on failure prints the log's
# end.
step() {
	step_name=$1 step_log=$2
	shift 2
	say "$step_name ..."
	step_start=$(date +%s)
	(
		trap 'kill "$sleep_pid" 2>/dev/null; exit 0' TERM
		while :; do
			sleep 20 & sleep_pid=$!
			wait "$sleep_pid"
			say "$step_name: $(($(date +%s) - step_start)) s, $(tail -n 1 "$step_log" | tr -d '\r' | cut -c 1-100)"
		done
	) &
	ticker=$!
	step_rc=0
	"$@" >"$step_log" 2>&1 </dev/null || step_rc=$?
	kill "$ticker" 2>/dev/null
	wait "$ticker" 2>/dev/null || :
	if [ "$step_rc" -ne 0 ]; then
		say "$step_name: failed; the end of $step_log:"
		tail -n 25 "$step_log" >&2
		explain "$step_log"
		exit 125
	fi
	say "$step_name: done in $(($(date +%s) - step_start)) s"
}
