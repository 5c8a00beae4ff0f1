# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# SRP, of a disk in memory of the target core (rd_mcp).

events="fault link fatal reset unbind remove unplug"
io=/dev/sda tpg=none

is_connected() { [ -b $io ]; }
is_away() { ! is_connected; }

start() {
	load sd_mod ib_srpt ib_srp
	mount_configfs
	make_memory
	mkdir -p $target/srpt/discovery_auth || fail "no target of SRP"
	put 5555 $target/srpt/discovery_auth/rdma_cm_port
	gid=$(cat $sys/ports/1/gids/0)
	guid=${gid#*:*:*:*:}
	tpg=$target/srpt/$guid/$guid
	mkdir -p $tpg/lun/lun_0 $tpg/acls/$address/lun_0 || fail "no target on the port"
	ln -s $memory $tpg/lun/lun_0/memory || fail "no LUN"
	ln -s $tpg/lun/lun_0 $tpg/acls/$address/lun_0/memory || fail "no LUN for the initiator"
	put 1 $tpg/enable
	# That of the first device which the target has seen.
	id=$(cut -c3- /sys/module/ib_srpt/parameters/srpt_service_guid)
	put "id_ext=$id,ioc_guid=$id,dest=$address:5555" /sys/class/infiniband_srp/srp-$device-1/add_target
	expect "no disk" is_connected
}

stop() {
	for remote in /sys/class/srp_remote_ports/port-*/delete; do
		[ ! -e "$remote" ] || echo 1 >"$remote"
	done
	[ ! -d $tpg ] || echo 0 >$tpg/enable
	rm -f $tpg/acls/$address/lun_0/memory $tpg/lun/lun_0/memory
	remove_directories $tpg/acls/$address/lun_0 $tpg/acls/$address $tpg/lun/lun_0 $tpg ${tpg%/*} $target/srpt $memory ${memory%/*}
}

# Both sides end with the device.
recover() {
	if [ $what = fault ]; then
		no_io_has_failed
		end="the initiator has reconnected, and no I/O has failed"
		return
	fi
	expect "the disk stays" is_away
	wait $fio
	stop
	start
	end="the disk goes; set up again"
}
