#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# debs.sh: the life of the packages for guests, in a Debian of its own packages
# alone (qp/debs_suite.py). Beside it are two versions of them, in first and
# second, the modules that dkms.sh built, in dkms, and packaging/debian, in
# tests. Prints TAP.
here=$(dirname -- "$0")
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
# shellcheck source=qp/tap.sh
. "$here/tap.sh"

# All files but those that dpkg and apt write for themselves, and the contents
# of settings and lists.
files() {
	find / -xdev ! -path '/tmp*' ! -path '/var/log/*' ! -path '/var/cache/*' ! -path '/var/lib/apt/*' \
		! -path '/var/lib/dpkg/*-old' ! -path '/var/lib/dpkg/lock*' -printf '%y %m %p %l\n' | sort
	find /etc /lib/modules/*/modules.* -type f -exec md5sum {} + | sort
}

install() { apt-get install -y "$here/$1"/*.deb; }

at() { # at VERSION: the three packages have it
	dpkg-query -W -f '${Package} ${Version}\n' 'qpair-*' && [ "$(dpkg-query -W -f '${Version}\n' 'qpair-*' | grep -cFx "$1")" = 3 ]
}

# As udev does, by the name that the device gives itself.
load() {
	cat /sys/bus/pci/devices/*/modalias >/tmp/aliases
	while read -r alias; do
		[ "$(modprobe -R "$alias" 2>/dev/null)" != qpair ] || modprobe "$alias" || return
	done </tmp/aliases
	[ "$(cat /sys/class/infiniband/*/node_type)" ] && modinfo -n qpair | grep /updates/
}

pair() { # pair PROGRAM WORDS...: server and client
	"$@" >/tmp/server 2>&1 &
	tries=0
	until "$@" 127.0.0.1; do
		tries=$((tries + 1))
		[ $tries -lt 20 ] && kill -0 $! || return
		sleep 0.5
	done
	wait $!
}

copied() { qpair copy /usr/bin/perl /tmp/perl && cmp /usr/bin/perl /tmp/perl && rm /tmp/perl; }

documented() {
	for page in qpair qpair-copy qpair-trace; do
		zcat "/usr/share/man/man1/$page.1.gz" | grep '^\.SH NAME' || return
	done
	bash -c '. /usr/share/bash-completion/completions/qpair; complete -p qpair'
}

listed() { ibv_devinfo -d qpair0 | grep PORT_ACTIVE; }

# The settings of a removed package stay until it is purged.
removed() {
	[ -e /etc/libibverbs.d/qpair.driver ] && [ ! -e /usr/bin/qpair ] && ! modprobe qpair && ibv_devinfo 2>&1 | grep 'No IB devices'
}

nothing() { ! dpkg-query -W -f '${Status}\n' 'qpair-*' | grep -v unknown && files >/tmp/after && diff /tmp/before /tmp/after; }

files >/tmp/before
check 'nothing is there' sh -c '! modprobe qpair && ! command -v qpair'
check 'install' install first
check 'versions' at 1.0
check 'the module loads by the name of the device' load
check 'ibv_devinfo' listed
check 'ibv_rc_pingpong' pair ibv_rc_pingpong -d qpair0 -n 200
check 'ib_write_bw' pair ib_write_bw -d qpair0 -F -n 200
check 'qpair info' qpair info
check 'qpair copy' copied
check 'manual and completions' documented
check 'upgrade' install second
check 'versions' at 1.1
check 'the module is loaded again' sh -c 'rmmod qpair && modprobe qpair'
check 'ibv_rc_pingpong' pair ibv_rc_pingpong -d qpair0 -n 200
check 'qpair info' qpair info
check 'the modules that DKMS built' sh -c "rmmod qpair && insmod $here/dkms/qpair.ko && insmod $here/dkms/qpair-stream.ko"
check 'qpair copy' copied
check 'remove' sh -c 'rmmod qpair_stream qpair && apt-get remove -y "qpair-*"'
check 'what is left' removed
check 'purge' apt-get purge -y 'qpair-*'
check 'nothing is left' nothing
# It installs the packages again.
check 'autopkgtest' autopkgtest --test-name=guest --ignore-restrictions=isolation-machine "$here"/first/*.deb "$here/tests" -- null
echo "1..$count"
