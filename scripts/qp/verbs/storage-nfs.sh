# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# NFS v4.2 over RDMA, of a file system in memory. What exportfs and mountd would
# answer is written to the caches of nfsd before it asks.

events="fault link fatal reset unbind remove unplug"
nfsd=/proc/fs/nfsd caches=/proc/net/rpc never=2147483647 anonymous=65534
export=$folder/export mounted_at=$folder/mounted
io=$mounted_at/file copy=$export/file
# NFSEXP_FSID, _NOSUBTREECHECK, _ASYNC, _INSECURE_PORT
flags=$((0x2000 | 0x400 | 0x10 | 0x2))

start() {
	load rpcrdma nfsd nfsv4
	mkdir "$export" "$mounted_at"
	mount_at "$export" -t tmpfs none
	mount_at $nfsd -t nfsd none
	put -3 $nfsd/versions
	put 10 $nfsd/nfsv4leasetime
	put 10 $nfsd/nfsv4gracetime
	put "rdma 20049" $nfsd/portlist
	put "nfsd $address $never storage" $caches/auth.unix.ip/channel
	put "storage $export $never $flags $anonymous $anonymous 0" $caches/nfsd.export/channel
	put "storage 1 \\x00000000 $never $export" $caches/nfsd.fh/channel
	put 4 $nfsd/threads
	mount_at "$mounted_at" -t nfs4 -o "vers=4.2,proto=rdma,port=20049,addr=$address,clientaddr=$address,sec=sys" "$address:/"
	echo "nfsd opens no file in its grace period of 10 s"
	dd if=/dev/zero of="$io" bs=1M count=8 2>"$said" || fail "no file"
}

# The client first: it waits for its server.
stop() {
	wait
	! is_mounted "$mounted_at" || until_it 10 umount "$mounted_at" 2>"$said"
	[ ! -e $nfsd/threads ] || echo 0 >$nfsd/threads
}

# Without a device the client waits for the answer to the end of its connection, which `ib_cm` asks
# for during 80 s.
recover() {
	no_io_has_failed
	end="the mount has connected again, and no I/O has failed"
}
