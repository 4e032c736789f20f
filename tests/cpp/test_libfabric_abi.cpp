// What the libfabric provider declares of libfabric's binary interface is what its header says;
// compiled only where that is installed, which no build needs.
#if __has_include(<rdma/fabric.h>)

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "shmem/nic/libfabric/abi.hpp"

namespace abi = railshmem::nic::libfabric::abi;

// A member lies where libfabric has it, and is as large.
#define SAME(ours, member, theirs, its_member)                                 \
  static_assert(offsetof(abi::ours, member) == offsetof(theirs, its_member) && \
                    sizeof(abi::ours::member) == sizeof(theirs::its_member),   \
                #ours "::" #member)
#define SAME_NAME(ours, member, theirs) SAME(ours, member, theirs, member)
#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(theirs), #ours)
#define SAME_VALUE(ours, theirs) static_assert(abi::ours == theirs, #ours)

SAME_VALUE(kVersion, FI_VERSION(1, 9));
SAME_VALUE(kRma, FI_RMA);
SAME_VALUE(kTagged, FI_TAGGED);
SAME_VALUE(kRead, FI_READ);
SAME_VALUE(kWrite, FI_WRITE);
SAME_VALUE(kRecv, FI_RECV);
SAME_VALUE(kSend, FI_SEND);
SAME_VALUE(kRemoteRead, FI_REMOTE_READ);
SAME_VALUE(kRemoteWrite, FI_REMOTE_WRITE);
SAME_VALUE(kCompletion, FI_COMPLETION);
SAME_VALUE(kDeliveryComplete, FI_DELIVERY_COMPLETE);
SAME_VALUE(kContext, FI_CONTEXT);
SAME_VALUE(kContext2, FI_CONTEXT2);
SAME_VALUE(kOrderWaw, FI_ORDER_WAW);
SAME_VALUE(kOrderRmaWaw, FI_ORDER_RMA_WAW);
SAME_VALUE(kMrLocal, FI_MR_LOCAL);
SAME_VALUE(kMrVirtAddr, FI_MR_VIRT_ADDR);
SAME_VALUE(kMrAllocated, FI_MR_ALLOCATED);
SAME_VALUE(kMrProvKey, FI_MR_PROV_KEY);
SAME_VALUE(kMrEndpoint, FI_MR_ENDPOINT);
SAME_VALUE(kNoAddress, FI_ADDR_UNSPEC);
static_assert(int{abi::kProgressAuto} == int{FI_PROGRESS_AUTO});
static_assert(int{abi::kProgressManual} == int{FI_PROGRESS_MANUAL});
static_assert(int{abi::kThreadSafe} == int{FI_THREAD_SAFE});
static_assert(int{abi::kThreadDomain} == int{FI_THREAD_DOMAIN});
static_assert(int{abi::kEndpointReliableDatagram} == int{FI_EP_RDM});
static_assert(uint32_t{abi::kSockaddr} == uint32_t{FI_SOCKADDR});
static_assert(uint32_t{abi::kSockaddrIn} == uint32_t{FI_SOCKADDR_IN});
static_assert(uint32_t{abi::kSockaddrIn6} == uint32_t{FI_SOCKADDR_IN6});
static_assert(int{abi::kCqTagged} == int{FI_CQ_FORMAT_TAGGED});
static_assert(int{abi::kEnable} == int{FI_ENABLE});
static_assert(int{abi::kGetWait} == int{FI_GETWAIT});
static_assert(int{abi::kWaitNone} == int{FI_WAIT_NONE} && int{abi::kWaitFd} == int{FI_WAIT_FD});
static_assert(abi::kErrorAvailable == int{FI_EAVAIL});
static_assert(abi::kErrorTruncated == int{FI_ETRUNC});
static_assert(abi::kErrorNoKey == int{FI_ENOKEY});

SAME_NAME(FabricOps, domain, fi_ops_fabric);
SAME_NAME(FabricOps, trywait, fi_ops_fabric);
SAME_NAME(TxAttr, op_flags, fi_tx_attr);
SAME_NAME(TxAttr, msg_order, fi_tx_attr);
SAME_NAME(TxAttr, inject_size, fi_tx_attr);
SAME_NAME(TxAttr, size, fi_tx_attr);
SAME_NAME(RxAttr, size, fi_rx_attr);
SAME_NAME(EpAttr, type, fi_ep_attr);
SAME_NAME(EpAttr, max_msg_size, fi_ep_attr);
SAME_NAME(EpAttr, max_order_waw_size, fi_ep_attr);
SAME_NAME(EpAttr, mem_tag_format, fi_ep_attr);
SAME_NAME(DomainAttr, name, fi_domain_attr);
SAME_NAME(DomainAttr, threading, fi_domain_attr);
SAME_NAME(DomainAttr, data_progress, fi_domain_attr);
SAME_NAME(DomainAttr, mr_mode, fi_domain_attr);
SAME_NAME(DomainAttr, mr_key_size, fi_domain_attr);
SAME_NAME(FabricAttr, name, fi_fabric_attr);
SAME_NAME(FabricAttr, prov_name, fi_fabric_attr);
SAME_NAME(Info, next, fi_info);
SAME_NAME(Info, caps, fi_info);
SAME_NAME(Info, mode, fi_info);
SAME_NAME(Info, addr_format, fi_info);
SAME_NAME(Info, src_addr, fi_info);
SAME_NAME(Info, tx_attr, fi_info);
SAME_NAME(Info, rx_attr, fi_info);
SAME_NAME(Info, ep_attr, fi_info);
SAME_NAME(Info, domain_attr, fi_info);
SAME_NAME(Info, fabric_attr, fi_info);

SAME_SIZE(Fid, fid);
SAME_NAME(Fid, ops, fid);
SAME_NAME(FidOps, close, fi_ops);
SAME_NAME(FidOps, bind, fi_ops);
SAME_NAME(FidOps, control, fi_ops);
SAME_NAME(FabricOps, domain, fi_ops_fabric);
SAME_NAME(Fabric, ops, fid_fabric);
SAME_NAME(DomainOps, av_open, fi_ops_domain);
SAME_NAME(DomainOps, cq_open, fi_ops_domain);
SAME_NAME(DomainOps, endpoint, fi_ops_domain);
SAME_NAME(MrOps, reg, fi_ops_mr);
SAME_NAME(Domain, ops, fid_domain);
SAME_NAME(Domain, mr, fid_domain);
SAME(Mr, descriptor, fid_mr, mem_desc);
SAME_NAME(Mr, key, fid_mr);
SAME_NAME(AvOps, insert, fi_ops_av);
SAME_NAME(AvOps, remove, fi_ops_av);
SAME_NAME(Av, ops, fid_av);
SAME_NAME(CqOps, read, fi_ops_cq);
SAME_NAME(CqOps, readerr, fi_ops_cq);
SAME_NAME(Cq, ops, fid_cq);
SAME_NAME(EpOps, cancel, fi_ops_ep);
SAME_NAME(CmOps, getname, fi_ops_cm);
SAME_NAME(RmaOps, readmsg, fi_ops_rma);
SAME_NAME(RmaOps, writemsg, fi_ops_rma);
SAME_NAME(TaggedOps, recvmsg, fi_ops_tagged);
SAME_NAME(TaggedOps, sendmsg, fi_ops_tagged);
SAME_NAME(Ep, ops, fid_ep);
SAME_NAME(Ep, cm, fid_ep);
SAME_NAME(Ep, rma, fid_ep);
SAME_NAME(Ep, tagged, fid_ep);

// These are ours when the call is made, so they must be whole.
SAME_SIZE(AvAttr, fi_av_attr);
SAME_NAME(AvAttr, count, fi_av_attr);
SAME_SIZE(CqAttr, fi_cq_attr);
SAME_NAME(CqAttr, size, fi_cq_attr);
SAME_NAME(CqAttr, format, fi_cq_attr);
SAME_SIZE(CqTaggedEntry, fi_cq_tagged_entry);
SAME_NAME(CqTaggedEntry, len, fi_cq_tagged_entry);
SAME_NAME(CqTaggedEntry, tag, fi_cq_tagged_entry);
static_assert(sizeof(abi::CqErrorEntry) >= sizeof(fi_cq_err_entry));
SAME_NAME(CqErrorEntry, len, fi_cq_err_entry);
SAME_NAME(CqErrorEntry, tag, fi_cq_err_entry);
SAME_NAME(CqErrorEntry, err, fi_cq_err_entry);
SAME_NAME(CqErrorEntry, err_data_size, fi_cq_err_entry);
SAME_SIZE(RmaIov, fi_rma_iov);
SAME_NAME(RmaIov, key, fi_rma_iov);
SAME_SIZE(RmaMessage, fi_msg_rma);
SAME_NAME(RmaMessage, addr, fi_msg_rma);
SAME_NAME(RmaMessage, context, fi_msg_rma);
SAME_SIZE(TaggedMessage, fi_msg_tagged);
SAME_NAME(TaggedMessage, tag, fi_msg_tagged);
SAME_NAME(TaggedMessage, ignore, fi_msg_tagged);
SAME_NAME(TaggedMessage, context, fi_msg_tagged);

#endif
