// SPDX-License-Identifier: GPL-2.0
/*
 * What exists as a macro or an inline function only, and so cannot be called
 * from Rust, of what an RDMA driver needs: protection and flags of a memory
 * area, nested netlink attributes, fields and events of network devices.
 * Nothing else.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <net/netlink.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>

/*
 * Device memory: not cached, not encrypted, not dumped, not grown, not
 * inherited by fork, never code.
 */
__rust_helper void
rust_helper_rdma_vma_make_doorbell(struct vm_area_struct *vma)
{
	vm_flags_mod(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY,
		     VM_MAYEXEC);
	vma->vm_page_prot = pgprot_decrypted(pgprot_noncached(vma->vm_page_prot));
}

/* The table of a driver's details in an answer of rdma netlink. */
__rust_helper struct nlattr *
rust_helper_rdma_details_begin(struct sk_buff *message)
{
	return nla_nest_start(message, RDMA_NLDEV_ATTR_DRIVER);
}

__rust_helper void
rust_helper_rdma_details_end(struct sk_buff *message, struct nlattr *begin, bool whole)
{
	if (whole)
		nla_nest_end(message, begin);
	else
		nla_nest_cancel(message, begin);
}

__rust_helper struct net_device *rust_helper_rdma_netdev_of(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

/* That of the port, or NULL. Under rtnl, which all that change it hold. */
__rust_helper struct net_device *
rust_helper_rdma_netdev_attached(struct ib_device *dev, u32 port)
{
	return rtnl_dereference(dev->port_data[port].netdev);
}

/*
 * Whether a port of the device with this address may belong to it. The address is the permanent one,
 * or that which was set if there is none: VLANs, bridges and the like copy it, and any user may set
 * it in a namespace of his own. So it is of the namespace that the device is in.
 */
__rust_helper bool
rust_helper_rdma_netdev_matches(struct ib_device *dev, struct net_device *netdev, const u8 *address)
{
	if (netdev->addr_len != ETH_ALEN || !net_eq(dev_net(netdev), rdma_dev_net(dev)))
		return false;
	if (is_vlan_dev(netdev) || netif_is_macvlan(netdev) || netif_is_bridge_master(netdev) ||
	    netif_is_lag_master(netdev))
		return false;
	if (is_zero_ether_addr(netdev->perm_addr))
		return ether_addr_equal_unaligned(netdev->dev_addr, address);
	return ether_addr_equal_unaligned(netdev->perm_addr, address);
}

/*
 * The device is in its namespace, perhaps a new one: gives the port the network device of that with
 * this address, with its GIDs. Takes rtnl.
 */
__rust_helper void
rust_helper_rdma_netdev_find(struct ib_device *dev, u32 port, const u8 *address)
{
	struct net_device *was, *netdev, *found = NULL;

	rtnl_lock();
	was = rust_helper_rdma_netdev_attached(dev, port);
	if (was && rust_helper_rdma_netdev_matches(dev, was, address)) {
		rtnl_unlock();
		return;
	}
	for_each_netdev(rdma_dev_net(dev), netdev) {
		if (rust_helper_rdma_netdev_matches(dev, netdev, address)) {
			found = netdev;
			break;
		}
	}
	if (was)
		roce_del_all_netdev_gids(dev, port, was);
	ib_device_set_netdev(dev, found, port);
	rtnl_unlock();
	if (found)
		rdma_roce_rescan_device(dev);
}

__rust_helper bool rust_helper_rdma_netdev_comes(unsigned long event)
{
	return event == NETDEV_REGISTER || event == NETDEV_UP;
}

__rust_helper bool rust_helper_rdma_netdev_goes(unsigned long event)
{
	return event == NETDEV_UNREGISTER;
}

/* Not by ib_device_get_netdev(), whose lock is not for every context. */
__rust_helper bool
rust_helper_rdma_port_carries(struct ib_device *dev, u32 port)
{
	struct net_device *netdev;
	bool carries;

	if (!rdma_protocol_roce(dev, port))
		return true;
	rcu_read_lock();
	netdev = rcu_dereference(dev->port_data[port].netdev);
	carries = netdev && ib_get_curr_port_state(netdev) == IB_PORT_ACTIVE;
	rcu_read_unlock();
	return carries;
}

/* The most payload of a packet that a frame of the port's network device holds. */
__rust_helper enum ib_mtu
rust_helper_rdma_port_mtu(struct ib_device *dev, u32 port)
{
	struct net_device *netdev;
	enum ib_mtu mtu = 0;

	rcu_read_lock();
	netdev = rcu_dereference(dev->port_data[port].netdev);
	if (netdev)
		mtu = iboe_get_mtu(READ_ONCE(netdev->mtu));
	rcu_read_unlock();
	return mtu ? mtu : IB_MTU_256;
}
