// The calls of libibverbs that stagewire makes, as an interface: RealVerbs fills it from the library opened
// at run time, a test double from memory. The types are libibverbs' own. Stateless as far as callers know;
// every method may be called on any thread that the library's man pages allow, which for the calls here is
// any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>

namespace stagewire {

/// One opening of the library. Methods that give a pointer give nullptr and set errno on failure; methods
/// that give an int give 0 or the positive errno, whatever the library's own habit is.
class VerbsApi {
 public:
  VerbsApi() = default;
  virtual ~VerbsApi() = default;
  VerbsApi(const VerbsApi&) = delete;
  VerbsApi& operator=(const VerbsApi&) = delete;

  // Devices. The list is ended by a null pointer; its devices stay valid while one of them is open.
  virtual ibv_device** get_device_list() = 0;
  virtual void free_device_list(ibv_device** list) = 0;
  /// The NUMA node next to the device; -1 where the system does not say.
  virtual int numa_node(ibv_device* device) = 0;
  virtual ibv_context* open_device(ibv_device* device) = 0;
  virtual int close_device(ibv_context* context) = 0;
  virtual int query_device(ibv_context* context, ibv_device_attr& attributes) = 0;
  virtual int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr& attributes) = 0;
  /// ENODATA where the table has no entry at this index.
  virtual int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index,
                        ibv_gid_entry& entry) = 0;
  /// Fetches the next event; EAGAIN when there is none (context->async_fd is non-blocking). It is
  /// acknowledged by the time this returns.
  virtual int next_async_event(ibv_context* context, ibv_async_event& event) = 0;

  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;
  /// Registration of host memory. Device memory has its place here as a second method (ibv_reg_dmabuf_mr, by
  /// a dma-buf descriptor), chosen by the pool's MemoryKind; no pool of such a kind exists yet.
  virtual ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, unsigned access) = 0;
  virtual int dereg_mr(ibv_mr* mr) = 0;

  virtual ibv_comp_channel* create_comp_channel(ibv_context* context) = 0;
  virtual int destroy_comp_channel(ibv_comp_channel* channel) = 0;
  virtual ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) = 0;
  virtual int destroy_cq(ibv_cq* cq) = 0;
  /// How many completions were written to `completions`; negative on failure.
  virtual int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) = 0;
  virtual int req_notify_cq(ibv_cq* cq) = 0;
  /// Takes the channel's next event and acknowledges it; EAGAIN when there is none (channel->fd is
  /// non-blocking).
  virtual int next_cq_event(ibv_comp_channel* channel) = 0;

  virtual ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) = 0;
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) = 0;
  virtual int destroy_qp(ibv_qp* qp) = 0;
  /// On failure `bad` is the first request that was not posted.
  virtual int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) = 0;
};

}  // namespace stagewire
