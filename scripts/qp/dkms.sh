#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# dkms.sh: the life of qpair-dkms, in a Debian with compilers, and headers and
# source of a kernel (qp/debs_suite.py). Beside it are two versions of it, in
# first and second; the modules that it built are left in dkms. Prints TAP.
here=$(dirname -- "$0")
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
# shellcheck source=qp/tap.sh
. "$here/tap.sh"

release=$(basename /lib/modules/*)
# The next kernel, and one that cannot be served.
next=${release}a
unfit=${release}b
archive=$(echo /usr/src/linux-source-*.tar.xz)
source=$(basename "$archive" .tar.xz)

pack() { # pack NAME PACKAGE: a package of the files in /root/NAME, with the version of another
	mkdir -p "/root/$1/DEBIAN"
	dpkg-query -W -f "Package: $1\n"'Version: ${Version}\nArchitecture: ${Architecture}\nMaintainer: ${Maintainer}\nDescription: test\n' "$2" >"/root/$1/DEBIAN/control"
	dpkg-deb -Znone --build "/root/$1"
}

# The package of the kernel's source, which is removed.
take_source() {
	mkdir -p "/root/$source/usr/src"
	cp "$archive" "/root/$source/usr/src"
	pack "$source" "$source" && dpkg -P "$source"
}

headers() { # headers RELEASE FOLDER: a package of headers for a release
	name=linux-headers-$1
	mkdir -p "/root/$name/DEBIAN" "/root/$name/usr/src" "/root/$name/usr/lib/modules/$1"
	mv "$2" "/root/$name/usr/src/$name"
	ln -s "/usr/src/$name" "/root/$name/usr/lib/modules/$1/build"
	sed "s/$release/$1/" "/var/lib/dpkg/info/linux-headers-$release.postinst" >"/root/$name/DEBIAN/postinst"
	chmod 755 "/root/$name/DEBIAN/postinst"
	pack "$name" "linux-headers-$release" && dpkg -i "/root/$name.deb"
}

without_rust() {
	cp -a "/usr/src/linux-headers-$release" /root/headers
	sed -i 's/^CONFIG_RUST=y//' /root/headers/.config
	headers "$1" /root/headers
}

# Its headers have the metadata, so that no other tree is made.
next_kernel() {
	cp -a "/var/cache/qpair/$release/tree" /root/headers
	sed -i "s/$release/$1/" /root/headers/include/config/kernel.release /root/headers/include/generated/utsrelease.h
	sed -i "s,^\(export KBUILD_OUTPUT = \).*,\1/usr/src/linux-headers-$1," /root/headers/Makefile
	headers "$1" /root/headers
}

# Without the package of the kernel they are not compressed.
module() { echo "/lib/modules/$2/updates/dkms/$1.ko"; } # module NAME RELEASE

built() { # built VERSION RELEASE...: both modules, for these kernels alone
	version=$1
	shift
	[ "$(dkms status -m qpair | grep -c ': installed')" = $# ] || return
	for kernel; do
		for name in qpair qpair-stream; do
			modinfo -F vermagic "$(module "$name" "$kernel")" | grep "^$kernel " || return
		done
		dkms status -m qpair -v "$version" -k "$kernel" | grep ': installed' || return
	done
}

skipped() { # skipped WORDS COMMAND...: the command ends with 0, and a message that has the words
	words=$1
	shift
	"$@" >/root/said 2>&1 && cat /root/said && grep -F "$words" /root/said
}

copied() { mkdir "$here/dkms" && cp "$(module qpair "$release")" "$(module qpair-stream "$release")" "$here/dkms"; }

named() { find / -xdev -path /mnt -prune -o -name '*qpair*' -print | sort; }

gone() { named | diff /root/before -; }

named >/root/before
check 'take the source away' take_source
check 'install without the source' skipped "remedy: apt install $source=" dpkg -i "$here"/first/*.deb
check 'nothing is built' built 1.0
check 'with the source' dpkg -i "/root/$source.deb"
check 'the modules' built 1.0 "$release"
check 'copy' copied
check 'a kernel without CONFIG_RUST' skipped 'it has no CONFIG_RUST' without_rust "$unfit"
check 'the next kernel' next_kernel "$next"
check 'its modules' built 1.0 "$release" "$next"
# A tree that was made needs no source.
check 'take the source away' dpkg -P "$source"
check 'upgrade' dpkg -i "$here"/second/*.deb
check 'its modules' built 1.1 "$release" "$next"
check 'remove' dpkg -r qpair-dkms
check 'purge' dpkg -P qpair-dkms
check 'nothing is left' gone
echo "1..$count"
