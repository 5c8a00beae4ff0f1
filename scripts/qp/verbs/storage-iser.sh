# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# iSER, of a disk in memory of the target core (rd_mcp). iscsid makes the session. Its
# files in sysfs are below the PCI device: without them iscsiadm cannot end it.

events="fault link fatal reset unbind"
io=/dev/sda name=iqn.2026-11.test:memory
portal=$target/iscsi/$name/tpgt_1/np/$address:3260 tpg=$target/iscsi/$name/tpgt_1
iscsid=''

is_connected() { [ -b $io ]; }
is_logged_out() { [ -z "$(ls /sys/class/iscsi_session)" ]; }
has_no_session() { [ ! -d $tpg ] || [ -z "$(tr -d '\0' <$tpg/dynamic_sessions)" ]; }
node() { iscsiadm -m node -T $name -p "$address:3260" "$@" >"$said" 2>&1; }

export_disk() {
	make_memory
	mkdir -p $tpg/lun/lun_0 || fail "no target of iSCSI"
	ln -s $memory $tpg/lun/lun_0/memory || fail "no LUN"
	# Any initiator may write.
	for attribute in authentication=0 generate_node_acls=1 demo_mode_write_protect=0; do
		put ${attribute#*=} $tpg/attrib/${attribute%=*}
	done
	listen
	put 1 $tpg/enable
}
listen() {
	mkdir $portal || fail "no portal"
	put 1 $portal/iser
}

start() {
	load sd_mod ib_isert ib_iser
	mount_configfs
	export_disk
	mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi
	echo InitiatorName=iqn.2026-11.test:initiator >/etc/iscsi/initiatorname.iscsi
	: >/etc/iscsi/iscsid.conf
	# It ends its group of processes too.
	setsid iscsid -f >"$folder/iscsid" 2>&1 &
	iscsid=$!
	until_it 10 node -I iser -o new || fail "no node"
	node --login || fail "no session"
	expect "no disk" is_connected
}

stop() {
	if [ -n "$iscsid" ]; then
		is_logged_out || { iscsiadm -m session --logout >"$said" 2>&1 && until_it 60 is_logged_out; } || { cat "$said" >&2; status=1; }
		kill $iscsid
		# Linux crashes if the portal group goes while a session of a lost device still closes.
		until_it 100 has_no_session || status=1
	fi
	rm -rf /etc/iscsi /run/lock/iscsi /var/lib/iscsi
	[ ! -d $tpg ] || echo 0 >$tpg/enable
	rm -f $tpg/lun/lun_0/memory
	remove_directories $portal $tpg/lun/lun_0 $tpg ${tpg%/*} $target/iscsi $memory ${memory%/*}
}

# The portal ends with the device that has its address.
recover() {
	if [ $what != fault ]; then
		rmdir $portal
		listen
	fi
	no_io_has_failed
	end="the session has reconnected, and no I/O has failed"
}
