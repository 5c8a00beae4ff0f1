# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# NFS over RDMA, of a file system in memory. Version 4.2 needs no program: what exportfs
# and mountd would answer is written to the caches of nfsd before it asks. Version 3
# asks mountd for the file system, and nfsd registers its lock manager at rpcbind.

events="fault link fatal reset unbind remove unplug"
nfsd=/proc/fs/nfsd caches=/proc/net/rpc never=2147483647 anonymous=65534
export=$folder/export mounted_at=$folder/mounted
io=$mounted_at/file copy=$export/file
# NFSEXP_FSID, _NOSUBTREECHECK, _ASYNC, _INSECURE_PORT
flags=$((0x2000 | 0x400 | 0x10 | 0x2))

mountd_port=20048 state=/var/lib/nfs

start_mountd() {
	for file in netconfig protocols rpc services; do cp /programs/etc/$file /etc/ || fail "no $file"; done
	# rpcbind runs as this user.
	grep -q ^_rpc: /etc/passwd || echo _rpc:x:100:$anonymous::/run/rpcbind:/bin/false >>/etc/passwd
	mkdir -p /run/rpcbind $state
	touch /etc/exports $state/etab $state/rmtab
	ln -sfn /run /var/run
	rpcbind -w || fail "rpcbind, status $?"
	exportfs -o fsid=0,rw,async,insecure,no_root_squash,no_subtree_check "$address:$export" >"$said" 2>&1 || fail "no export"
	rpc.mountd -p $mountd_port -N 4 >"$said" 2>&1 || fail "rpc.mountd, status $?"
}
has_no_mountd() { ! pidof rpc.mountd rpcbind >"$said"; }
stop_mountd() {
	killall rpc.mountd rpcbind 2>"$said"
	until_it 10 has_no_mountd || status=1
	rm -rf $state /run/rpcbind
}
export_3() {
	start_mountd
	put -4 $nfsd/versions
}
mount_3() {
	mount_at "$mounted_at" -t nfs \
		-o "vers=3,proto=rdma,port=20049,mountproto=tcp,mountaddr=$address,mountport=$mountd_port,nolock,addr=$address,sec=sys" "$address:$export"
}
export_4() {
	put -3 $nfsd/versions
	put "nfsd $address $never storage" $caches/auth.unix.ip/channel
	put "storage $export $never $flags $anonymous $anonymous 0" $caches/nfsd.export/channel
	put "storage 1 \\x00000000 $never $export" $caches/nfsd.fh/channel
}
mount_4() {
	mount_at "$mounted_at" -t nfs4 -o "vers=$version,proto=rdma,port=20049,addr=$address,clientaddr=$address,sec=sys" "$address:/"
	echo "nfsd opens no file in its grace period of 10 s"
}

start() {
	load rpcrdma nfsd nfsv${version%.*}
	mkdir "$export" "$mounted_at"
	mount_at "$export" -t tmpfs none
	mount_at $nfsd -t nfsd none
	put 10 $nfsd/nfsv4leasetime
	put 10 $nfsd/nfsv4gracetime
	export_${version%.*}
	put "rdma 20049" $nfsd/portlist
	put 4 $nfsd/threads
	mount_${version%.*}
	dd if=/dev/zero of="$io" bs=1M count=8 2>"$said" || fail "no file"
}

# The client first: it waits for its server.
stop() {
	wait
	! is_mounted "$mounted_at" || until_it 10 umount "$mounted_at" 2>"$said"
	[ ! -e $nfsd/threads ] || echo 0 >$nfsd/threads
	[ "$version" != 3 ] || stop_mountd
}

# Without a device the client waits for the answer to the end of its connection, which `ib_cm` asks
# for during 80 s.
recover() {
	no_io_has_failed
	end="the mount has connected again, and no I/O has failed"
}
