# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034 # used by the scripts that source this
#
# Code shared by the scripts beside it.

# Not that of busybox, which needs a socket of packets to set an address.
ip=/usr/bin/ip
[ -x $ip ] || ip=/usr/sbin/ip

# until_it SECONDS COMMAND...: repeats a command until it succeeds, or until the
# time is over, which is a failure.
until_it() {
	tries=$(($1 * 20))
	shift
	until "$@"; do
		[ $tries -gt 0 ] || return
		tries=$((tries - 1))
		usleep 50000
	done
}

listens() { grep -qi ":$(printf %04X "$1") [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }

# is_active DEVICE: its port is.
is_active() { [ "$(cat "/sys/class/infiniband/$1/ports/1/state" 2>/dev/null)" = "4: ACTIVE" ]; }
# of_qemu DEVICE PROPERTY: a property that a device has in QEMU, as JSON.
of_qemu() { qmp qom-get "path=/machine/peripheral/$1" "property=$2" 2>/dev/null | sed -n 's/^{"return": *\(.*\)}.*/\1/p'; }
# unplug DEVICE: QEMU unplugs it, and plugs one with the same properties in.
unplug() {
	id=$1 kept='' sys_of=/sys/class/infiniband/$1
	for property in mac netdev faults eqs max-frmrs iothread; do
		value=$(of_qemu "$id" $property)
		case $value in
		'' | null | '""') ;;
		# The path of the object, of which it is the last part.
		*/*) kept="$kept $property=$(basename "${value%\"}")" ;;
		*) kept="$kept $property:=$value" ;;
		esac
	done
	qmp device_del "id=$id" && until_it 60 test ! -e "$sys_of" || return
	# shellcheck disable=SC2086 # words
	until_it 10 qmp device_add driver=qpair "id=$id" bus=port0 $kept
}
# lose PCI EVENT [DEVICE]: the device of the folder PCI is reset, unbound and bound
# again, removed and found again, or unplugged and plugged in again.
lose() {
	case $2 in
	unplug) unplug "$3" ;;
	reset) echo 1 >"$1/reset" ;;
	unbind) echo "${1##*/}" >/sys/bus/pci/drivers/qpair/unbind && echo "${1##*/}" >/sys/bus/pci/drivers/qpair/bind ;;
	remove) echo 1 >"$1/remove" && echo 1 >/sys/bus/pci/rescan ;;
	*) false ;;
	esac
}
# gid_of DEVICE ADDRESS: the file of the GID that is an IPv4 address.
gid_of() {
	# shellcheck disable=SC2046,SC2183 # four numbers
	hex=$(printf '%02x%02x:%02x%02x' $(echo "$2" | tr . ' '))
	grep -l "ffff:$hex" "/sys/class/infiniband/$1"/ports/1/gids/* 2>/dev/null
}
# has_gid DEVICE [ADDRESS]: the address, by default that of `roce`, is a GID of the device.
has_gid() { gid_of "$1" "${2:-198.51.100.1}" >/dev/null; }
