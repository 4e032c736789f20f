// What the verbs provider believes of libibverbs' memory layout, against the library's own header,
// where that is installed.
#if __has_include(<infiniband/verbs.h>)

#include <infiniband/verbs.h>

#include <cstddef>

#include "shmem/nic/verbs/abi.hpp"

namespace {

using namespace railshmem::nic::verbs;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs))
#define SAME_PLACE(ours, field, theirs, their_field)                      \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field) && \
                sizeof(ours::field) == sizeof(theirs::their_field))
#define SAME_VALUE(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))

SAME_SIZE(Gid, ibv_gid);
SAME_SIZE(ScatterGather, ibv_sge);
SAME_PLACE(ScatterGather, address, ibv_sge, addr);
SAME_PLACE(ScatterGather, length, ibv_sge, length);
SAME_PLACE(ScatterGather, lkey, ibv_sge, lkey);

SAME_SIZE(SendRequest, ibv_send_wr);
SAME_PLACE(SendRequest, id, ibv_send_wr, wr_id);
SAME_PLACE(SendRequest, next, ibv_send_wr, next);
SAME_PLACE(SendRequest, pieces, ibv_send_wr, sg_list);
SAME_PLACE(SendRequest, n_pieces, ibv_send_wr, num_sge);
SAME_PLACE(SendRequest, opcode, ibv_send_wr, opcode);
SAME_PLACE(SendRequest, flags, ibv_send_wr, send_flags);
SAME_PLACE(SendRequest, imm, ibv_send_wr, imm_data);
SAME_PLACE(SendRequest, rdma.address, ibv_send_wr, wr.rdma.remote_addr);
SAME_PLACE(SendRequest, rdma.rkey, ibv_send_wr, wr.rdma.rkey);
SAME_PLACE(SendRequest, atomic.address, ibv_send_wr, wr.atomic.remote_addr);
SAME_PLACE(SendRequest, atomic.compare_add, ibv_send_wr, wr.atomic.compare_add);
SAME_PLACE(SendRequest, atomic.swap, ibv_send_wr, wr.atomic.swap);
SAME_PLACE(SendRequest, atomic.rkey, ibv_send_wr, wr.atomic.rkey);
SAME_VALUE(WireOpcode::write, IBV_WR_RDMA_WRITE);
SAME_VALUE(WireOpcode::write_imm, IBV_WR_RDMA_WRITE_WITH_IMM);
SAME_VALUE(WireOpcode::send_imm, IBV_WR_SEND_WITH_IMM);
SAME_VALUE(WireOpcode::read, IBV_WR_RDMA_READ);
SAME_VALUE(WireOpcode::compare_swap, IBV_WR_ATOMIC_CMP_AND_SWP);
SAME_VALUE(WireOpcode::fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD);
SAME_VALUE(kSendFence, IBV_SEND_FENCE);
SAME_VALUE(kSendSignaled, IBV_SEND_SIGNALED);
SAME_VALUE(kSendInline, IBV_SEND_INLINE);

SAME_SIZE(ReceiveRequest, ibv_recv_wr);
SAME_PLACE(ReceiveRequest, n_pieces, ibv_recv_wr, num_sge);

SAME_SIZE(WorkCompletion, ibv_wc);
SAME_PLACE(WorkCompletion, status, ibv_wc, status);
SAME_PLACE(WorkCompletion, bytes, ibv_wc, byte_len);
SAME_PLACE(WorkCompletion, imm, ibv_wc, imm_data);
SAME_VALUE(WorkStatus::success, IBV_WC_SUCCESS);
SAME_VALUE(WorkStatus::local_length, IBV_WC_LOC_LEN_ERR);
SAME_VALUE(WorkStatus::local_queue_pair, IBV_WC_LOC_QP_OP_ERR);
SAME_VALUE(WorkStatus::local_protection, IBV_WC_LOC_PROT_ERR);
SAME_VALUE(WorkStatus::flushed, IBV_WC_WR_FLUSH_ERR);
SAME_VALUE(WorkStatus::bad_response, IBV_WC_BAD_RESP_ERR);
SAME_VALUE(WorkStatus::local_access, IBV_WC_LOC_ACCESS_ERR);
SAME_VALUE(WorkStatus::remote_invalid_request, IBV_WC_REM_INV_REQ_ERR);
SAME_VALUE(WorkStatus::remote_access, IBV_WC_REM_ACCESS_ERR);
SAME_VALUE(WorkStatus::remote_operation, IBV_WC_REM_OP_ERR);
SAME_VALUE(WorkStatus::retries_exceeded, IBV_WC_RETRY_EXC_ERR);
SAME_VALUE(WorkStatus::receiver_not_ready, IBV_WC_RNR_RETRY_EXC_ERR);
SAME_VALUE(WorkStatus::remote_abort, IBV_WC_REM_ABORT_ERR);
SAME_VALUE(WorkStatus::fatal, IBV_WC_FATAL_ERR);
SAME_VALUE(WorkStatus::response_timeout, IBV_WC_RESP_TIMEOUT_ERR);
SAME_VALUE(WorkStatus::general, IBV_WC_GENERAL_ERR);

SAME_SIZE(ContextOps, ibv_context_ops);
SAME_PLACE(ContextOps, poll_cq, ibv_context_ops, poll_cq);
SAME_PLACE(ContextOps, post_send, ibv_context_ops, post_send);
SAME_PLACE(ContextOps, post_recv, ibv_context_ops, post_recv);
SAME_PLACE(Device, node_type, ibv_device, node_type);
SAME_PLACE(Device, transport, ibv_device, transport_type);
SAME_VALUE(kTransportInfiniband, IBV_TRANSPORT_IB);
SAME_PLACE(Context, device, ibv_context, device);
SAME_PLACE(Context, ops, ibv_context, ops);
SAME_PLACE(Context, async_fd, ibv_context, async_fd);
SAME_PLACE(CompletionQueue, context, ibv_cq, context);
SAME_PLACE(QueuePair, context, ibv_qp, context);
SAME_PLACE(QueuePair, number, ibv_qp, qp_num);
SAME_SIZE(MemoryRegion, ibv_mr);
SAME_PLACE(MemoryRegion, lkey, ibv_mr, lkey);
SAME_PLACE(MemoryRegion, rkey, ibv_mr, rkey);
SAME_VALUE(kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE);
SAME_VALUE(kAccessRemoteWriteFlag, IBV_ACCESS_REMOTE_WRITE);
SAME_VALUE(kAccessRemoteReadFlag, IBV_ACCESS_REMOTE_READ);
SAME_VALUE(kAccessRemoteAtomicFlag, IBV_ACCESS_REMOTE_ATOMIC);
SAME_VALUE(kAccessRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING);

SAME_SIZE(DeviceAttributes, ibv_device_attr);
SAME_PLACE(DeviceAttributes, max_region, ibv_device_attr, max_mr_size);
SAME_PLACE(DeviceAttributes, max_requests, ibv_device_attr, max_qp_wr);
SAME_PLACE(DeviceAttributes, max_completions, ibv_device_attr, max_cqe);
SAME_PLACE(DeviceAttributes, max_reads_answered, ibv_device_attr, max_qp_rd_atom);
SAME_PLACE(DeviceAttributes, max_reads_asked, ibv_device_attr, max_qp_init_rd_atom);
SAME_PLACE(DeviceAttributes, atomics, ibv_device_attr, atomic_cap);
SAME_PLACE(DeviceAttributes, ports, ibv_device_attr, phys_port_cnt);
SAME_SIZE(PortAttributes, ibv_port_attr);
SAME_PLACE(PortAttributes, state, ibv_port_attr, state);
SAME_PLACE(PortAttributes, active_mtu, ibv_port_attr, active_mtu);
SAME_PLACE(PortAttributes, gids, ibv_port_attr, gid_tbl_len);
SAME_PLACE(PortAttributes, max_message, ibv_port_attr, max_msg_sz);
SAME_PLACE(PortAttributes, lid, ibv_port_attr, lid);
SAME_PLACE(PortAttributes, link, ibv_port_attr, link_layer);
SAME_VALUE(kPortActive, IBV_PORT_ACTIVE);
SAME_VALUE(kLinkEthernet, IBV_LINK_LAYER_ETHERNET);

SAME_SIZE(QueueCapacity, ibv_qp_cap);
SAME_PLACE(QueueCapacity, inline_bytes, ibv_qp_cap, max_inline_data);
SAME_SIZE(QueuePairMaking, ibv_qp_init_attr);
SAME_PLACE(QueuePairMaking, send_completions, ibv_qp_init_attr, send_cq);
SAME_PLACE(QueuePairMaking, receive_completions, ibv_qp_init_attr, recv_cq);
SAME_PLACE(QueuePairMaking, capacity, ibv_qp_init_attr, cap);
SAME_PLACE(QueuePairMaking, kind, ibv_qp_init_attr, qp_type);
SAME_PLACE(QueuePairMaking, signal_all, ibv_qp_init_attr, sq_sig_all);
SAME_VALUE(kReliableConnection, IBV_QPT_RC);
SAME_VALUE(QueueState::init, IBV_QPS_INIT);
SAME_VALUE(QueueState::receive, IBV_QPS_RTR);
SAME_VALUE(QueueState::send, IBV_QPS_RTS);
SAME_VALUE(QueueState::error, IBV_QPS_ERR);

SAME_SIZE(AddressHandle, ibv_ah_attr);
SAME_PLACE(AddressHandle, peer, ibv_ah_attr, grh.dgid);
SAME_PLACE(AddressHandle, gid_index, ibv_ah_attr, grh.sgid_index);
SAME_PLACE(AddressHandle, hop_limit, ibv_ah_attr, grh.hop_limit);
SAME_PLACE(AddressHandle, traffic_class, ibv_ah_attr, grh.traffic_class);
SAME_PLACE(AddressHandle, lid, ibv_ah_attr, dlid);
SAME_PLACE(AddressHandle, service_level, ibv_ah_attr, sl);
SAME_PLACE(AddressHandle, has_gid, ibv_ah_attr, is_global);
SAME_PLACE(AddressHandle, port, ibv_ah_attr, port_num);
SAME_SIZE(QueuePairAttributes, ibv_qp_attr);
SAME_PLACE(QueuePairAttributes, state, ibv_qp_attr, qp_state);
SAME_PLACE(QueuePairAttributes, mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(QueuePairAttributes, receive_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(QueuePairAttributes, send_psn, ibv_qp_attr, sq_psn);
SAME_PLACE(QueuePairAttributes, peer, ibv_qp_attr, dest_qp_num);
SAME_PLACE(QueuePairAttributes, access, ibv_qp_attr, qp_access_flags);
SAME_PLACE(QueuePairAttributes, path, ibv_qp_attr, ah_attr);
SAME_PLACE(QueuePairAttributes, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(QueuePairAttributes, reads_asked, ibv_qp_attr, max_rd_atomic);
SAME_PLACE(QueuePairAttributes, reads_answered, ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(QueuePairAttributes, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(QueuePairAttributes, port, ibv_qp_attr, port_num);
SAME_PLACE(QueuePairAttributes, timeout, ibv_qp_attr, timeout);
SAME_PLACE(QueuePairAttributes, retries, ibv_qp_attr, retry_cnt);
SAME_PLACE(QueuePairAttributes, rnr_retries, ibv_qp_attr, rnr_retry);
SAME_VALUE(kSetState, IBV_QP_STATE);
SAME_VALUE(kSetAccess, IBV_QP_ACCESS_FLAGS);
SAME_VALUE(kSetPkey, IBV_QP_PKEY_INDEX);
SAME_VALUE(kSetPort, IBV_QP_PORT);
SAME_VALUE(kSetPath, IBV_QP_AV);
SAME_VALUE(kSetMtu, IBV_QP_PATH_MTU);
SAME_VALUE(kSetTimeout, IBV_QP_TIMEOUT);
SAME_VALUE(kSetRetries, IBV_QP_RETRY_CNT);
SAME_VALUE(kSetRnrRetries, IBV_QP_RNR_RETRY);
SAME_VALUE(kSetReceivePsn, IBV_QP_RQ_PSN);
SAME_VALUE(kSetReadsAsked, IBV_QP_MAX_QP_RD_ATOMIC);
SAME_VALUE(kSetMinRnrTimer, IBV_QP_MIN_RNR_TIMER);
SAME_VALUE(kSetSendPsn, IBV_QP_SQ_PSN);
SAME_VALUE(kSetReadsAnswered, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_VALUE(kSetPeer, IBV_QP_DEST_QPN);

SAME_SIZE(Event, ibv_async_event);
SAME_PLACE(Event, port, ibv_async_event, element.port_num);
SAME_PLACE(Event, kind, ibv_async_event, event_type);
SAME_VALUE(EventKind::queue_error, IBV_EVENT_CQ_ERR);
SAME_VALUE(EventKind::pair_fatal, IBV_EVENT_QP_FATAL);
SAME_VALUE(EventKind::pair_request_error, IBV_EVENT_QP_REQ_ERR);
SAME_VALUE(EventKind::pair_access_error, IBV_EVENT_QP_ACCESS_ERR);
SAME_VALUE(EventKind::device_fatal, IBV_EVENT_DEVICE_FATAL);
SAME_VALUE(EventKind::port_error, IBV_EVENT_PORT_ERR);

}  // namespace

#endif
