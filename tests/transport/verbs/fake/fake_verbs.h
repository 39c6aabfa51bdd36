// RDMA adapters that a test makes up: VerbsApi over memory of this process. All devices share one network,
// with those of other processes, too, if they are joined by a fabric (fake_fabric.h).
// Requests are carried out by one thread of the fake, in an order drawn from a seed, or when the test says
// so; completions can be held back, failed one by one, or never come. Misuse (posting beyond the depth,
// overrunning a completion queue, using what was destroyed) ends the program with a line that says what.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "transport/verbs/device_facts.h"
#include "transport/verbs/verbs_api.h"

namespace stagewire::testing_support {

/// A device as the test describes it, with one port.
struct FakeDevice {
  std::string name = "fake0";
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint16_t lid = 0;
  int numa = -1;
  int max_rd_atomic = 16;
  int max_init_rd_atomic = 16;
  int max_sge = 8;
  int max_cqe = 1 << 16;
  std::uint64_t max_mr_size = 1ULL << 40U;
  std::uint32_t max_msg_sz = 1U << 30U;
  ibv_mtu mtu = IBV_MTU_4096;
  std::vector<std::pair<std::uint32_t, Gid>> gids;  ///< type (IBV_GID_TYPE_…), value; by index
};
/// RoCE v2 over the IPv4 address 10.9.0.`last`, after a link-local one.
FakeDevice fake_roce(const std::string& name, std::uint8_t last);
Gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d);

class FakeFabric;

class FakeVerbs final : public VerbsApi {
 public:
  /// With a fabric, reads from queue pairs of other processes go piece by piece, and step() counts those.
  explicit FakeVerbs(std::vector<FakeDevice> devices, std::uint64_t seed = 1,
                     std::shared_ptr<FakeFabric> fabric = nullptr);
  ~FakeVerbs() override;

  // --- What tests do.

  /// Requests stay where they are until step() or release().
  void hold();
  void release();
  /// Carries out `count` requests while held. False if there are not that many within a minute.
  bool step(std::size_t count);
  /// Waits until `count` requests wait to be carried out.
  bool wait_for_requests(std::size_t count);
  /// The next request that is carried out fails with `status` instead; planned failures are used in order.
  void fail_next(ibv_wc_status status);
  /// Completions are made but not delivered; then all are, those of other queue pairs in reverse.
  void hold_completions();
  void release_completions();
  /// Requests of a queue pair that goes to ERR are not flushed before release_flushes(). They are still on
  /// the wire until then: at their release each writes its bytes, late, and only then completes as flushed.
  void hold_flushes();
  void release_flushes();
  /// Waits until a queue pair with requests has gone to ERR while flushes are held.
  bool wait_for_held_flush();
  std::size_t late_writes() const;

  /// The next `count` registrations fail with `error_number`.
  void fail_registrations(int error_number, std::size_t count);
  void fail_deregistrations(int error_number, std::size_t count);
  /// The next `count` calls of create_qp fail.
  void fail_queue_pairs(int error_number, std::size_t count);
  /// Calls of modify_qp towards `state` fail.
  void fail_modify(ibv_qp_state state, int error_number);
  void fail_destroy(int error_number, std::size_t count);
  /// Waits until the failures that fail_destroy() planned have happened.
  bool wait_for_failed_destroys();
  /// Calls of modify_qp towards `state`, or of reg_mr, do not return before open_gates().
  void shut_modify(ibv_qp_state state);
  void shut_registrations();
  void open_gates();
  /// Waits until so many queue pairs exist, on all devices together.
  bool wait_for_queue_pairs(std::size_t count);
  /// Waits until a call waits at a gate.
  bool wait_at_gate();

  void set_port_state(const std::string& device, ibv_port_state state);
  void set_gid(const std::string& device, std::uint32_t index, const Gid& gid);
  void raise_event(const std::string& device, ibv_event_type type);
  /// The descriptor of events hangs up, as when the kernel takes a device away.
  void hang_up_events(const std::string& device);
  void remove_device(const std::string& device);
  void restore_device(const std::string& device);

  /// Names of the calls that asked for relaxed ordering, remote write and so on: the access of each live
  /// registration.
  std::vector<unsigned> registration_access() const;
  /// What modify_qp was given on the way to RTR and RTS, newest last.
  std::vector<ibv_qp_attr> attributes(ibv_qp_state state) const;
  std::size_t posted_chains() const;
  std::size_t signalled() const;
  std::size_t posted() const;
  /// Objects that were not destroyed: "2 queue pairs, 1 registration"; empty: none.
  std::string leaks() const;

  // --- VerbsApi.

  ibv_device** get_device_list() override;
  void free_device_list(ibv_device** list) override;
  int numa_node(ibv_device* device) override;
  ibv_context* open_device(ibv_device* device) override;
  int close_device(ibv_context* context) override;
  int query_device(ibv_context* context, ibv_device_attr& attributes) override;
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr& attributes) override;
  int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index, ibv_gid_entry& entry) override;
  int next_async_event(ibv_context* context, ibv_async_event& event) override;
  ibv_pd* alloc_pd(ibv_context* context) override;
  int dealloc_pd(ibv_pd* pd) override;
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, unsigned access) override;
  int dereg_mr(ibv_mr* mr) override;
  ibv_comp_channel* create_comp_channel(ibv_context* context) override;
  int destroy_comp_channel(ibv_comp_channel* channel) override;
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) override;
  int destroy_cq(ibv_cq* cq) override;
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) override;
  int req_notify_cq(ibv_cq* cq) override;
  int next_cq_event(ibv_comp_channel* channel) override;
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) override;
  int destroy_qp(ibv_qp* qp) override;
  int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) override;

 private:
  struct Device {
    FakeDevice facts;
    ibv_device raw{};
    bool present = true;
  };
  struct Context {
    ibv_context raw{};
    Device* device = nullptr;
    Fd events_fd;  // the library's end
    Fd events_in;
    std::deque<ibv_async_event> events;
  };
  struct Channel {
    ibv_comp_channel raw{};
    Fd fd;
  };
  struct Cq {
    ibv_cq raw{};
    Channel* channel = nullptr;
    std::size_t capacity = 0;
    std::deque<ibv_wc> entries;
    bool armed = false;
  };
  struct Mr {
    ibv_mr raw{};
    unsigned access = 0;
  };
  struct Request {
    ibv_send_wr wr{};
    std::vector<ibv_sge> pieces;
    std::uint64_t number = 0;  // of the queue pair's requests
    std::uint64_t done = 0;    // bytes that have come from another process
    std::uint64_t length() const {
      std::uint64_t sum = 0;
      for (const ibv_sge& piece : pieces) sum += piece.length;
      return sum;
    }
  };
  struct Qp {
    ibv_qp raw{};
    Device* device = nullptr;
    Cq* cq = nullptr;
    unsigned access = 0;
    std::uint32_t max_send = 0;
    std::uint32_t max_sge = 0;
    std::uint32_t peer_qpn = 0;
    std::uint32_t rq_psn = 0;
    std::uint32_t sq_psn = 0;
    Gid peer_gid{};
    std::uint16_t peer_lid = 0;
    bool global = false;
    std::deque<Request> requests;
    std::uint64_t posted = 0;
    std::uint64_t reclaimed = 0;                                    // requests whose slots are free again
    std::deque<std::pair<std::uint64_t, std::uint64_t>> delivered;  // wr_id, number: for reclaiming at poll
  };
  using Lock = std::unique_lock<std::mutex>;

  template <typename T, typename Raw>
  static T& of(std::map<const Raw*, std::unique_ptr<T>>& table, const Raw* raw, const char* what);
  void run();
  /// Carries out one request of some queue pair, or a piece of one. False if there is none.
  bool carry_out_one(Lock& lock);
  void carry_out(Qp& qp, const Request& request);
  void finish(Qp& qp, const Request& request, ibv_wc_status status);
  ibv_wc_status transfer(Qp& qp, const Request& request, bool late);
  void complete(Qp& qp, const Request& request, ibv_wc_status status);
  void deliver(Cq& cq, const ibv_wc& completion);
  void flush(Qp& qp);
  void to_error(Qp& qp);
  Mr* find_key(const ibv_pd* pd, std::uint32_t key, std::uint64_t address, std::uint64_t length,
               unsigned access);
  // With other processes (fake_far.cc).
  bool is_far(const Qp& qp) const;
  /// Lets go of the lock meanwhile: what is asked of this process's objects is done at once.
  void carry_out_piece(Lock& lock, const Qp& qp);
  ibv_wc_status write_piece(const Qp& qp, const Request& request, std::span<const std::byte> bytes);
  std::uint32_t number_for(std::uint32_t& next);
  void announce(const Qp& qp);
  void announce_all(const Device& device);
  void announce(const Mr& mr);
  void withdraw(const Qp& qp);
  void withdraw(const Mr& mr);
  Qp* queue_pair_numbered(std::uint32_t number) const;
  Device* device_named(const std::string& name);
  std::size_t waiting() const;
  void pass_gate(Lock& lock, const bool& shut);
  template <typename Condition>
  bool wait_until(Lock& lock, Condition condition);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<const ibv_context*, std::unique_ptr<Context>> contexts_;
  std::map<const ibv_pd*, std::unique_ptr<ibv_pd>> pds_;
  std::map<const ibv_comp_channel*, std::unique_ptr<Channel>> channels_;
  std::map<const ibv_cq*, std::unique_ptr<Cq>> cqs_;
  std::map<const ibv_mr*, std::unique_ptr<Mr>> mrs_;
  std::map<const ibv_qp*, std::unique_ptr<Qp>> qps_;
  const std::shared_ptr<FakeFabric> fabric_;  // null: none
  std::mt19937_64 random_;
  std::uint32_t next_key_ = 0x100;
  std::uint32_t next_qpn_ = 0x11;
  bool held_ = false;
  bool completions_held_ = false;
  bool flushes_held_ = false;
  std::size_t late_writes_ = 0;
  std::vector<std::pair<Cq*, ibv_wc>> withheld_;
  std::deque<ibv_wc_status> failures_;
  std::pair<int, std::size_t> fail_registrations_{0, 0};
  std::pair<int, std::size_t> fail_deregistrations_{0, 0};
  std::pair<int, std::size_t> fail_queue_pairs_{0, 0};
  std::pair<int, std::size_t> fail_destroy_{0, 0};
  std::map<int, int> fail_modify_;
  std::map<int, bool> shut_modify_;
  bool shut_registrations_ = false;
  std::size_t at_gate_ = 0;
  std::vector<ibv_qp_attr> to_rtr_;
  std::vector<ibv_qp_attr> to_rts_;
  std::size_t chains_ = 0;
  std::size_t signalled_ = 0;
  std::size_t posted_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

/// Ends the program: the code under test used the API in a way that an adapter would not forgive.
[[noreturn]] void misuse(const std::string& what);

}  // namespace stagewire::testing_support
