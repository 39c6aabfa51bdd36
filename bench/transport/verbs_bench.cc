// What a descriptor of a verbs read costs on the CPU: planning, posting and completing requests of 64 KiB
// pages over an adapter that does nothing. One thread; the poller sleeps.
#include <array>
#include <benchmark/benchmark.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include <stagewire/base/metrics.h>

#include "base/fd.h"
#include "transport/verbs/verbs_reads.h"

namespace stagewire {
namespace {

/// One device whose calls all succeed. Requests vanish; what was signalled is kept for the benchmark.
class NullVerbs final : public VerbsApi {
 public:
  std::vector<std::uint64_t> signalled;  ///< wr_id, in the order of posting

  ibv_device** get_device_list() override { return list_.data(); }
  void free_device_list(ibv_device**) override {}
  int numa_node(ibv_device*) override { return -1; }
  ibv_context* open_device(ibv_device* device) override {
    context_.device = device;
    context_.async_fd = never_.get();
    return &context_;
  }
  int close_device(ibv_context*) override { return 0; }
  int query_device(ibv_context*, ibv_device_attr& attributes) override {
    attributes = {};
    attributes.max_qp = attributes.max_cqe = 1 << 20;
    attributes.max_sge = 16;
    attributes.max_qp_rd_atom = attributes.max_qp_init_rd_atom = 16;
    return 0;
  }
  int query_port(ibv_context*, std::uint8_t, ibv_port_attr& attributes) override {
    attributes = {};
    attributes.max_msg_sz = 1U << 30U;
    return 0;
  }
  int query_gid(ibv_context*, std::uint8_t, std::uint32_t, ibv_gid_entry&) override { return ENODATA; }
  int next_async_event(ibv_context*, ibv_async_event&) override { return EAGAIN; }
  ibv_pd* alloc_pd(ibv_context*) override { return &pd_; }
  int dealloc_pd(ibv_pd*) override { return 0; }
  ibv_mr* reg_mr(ibv_pd*, void*, std::size_t, unsigned) override { return &mr_; }
  int dereg_mr(ibv_mr*) override { return 0; }
  ibv_comp_channel* create_comp_channel(ibv_context*) override {
    channel_.fd = never_.get();
    return &channel_;
  }
  int destroy_comp_channel(ibv_comp_channel*) override { return 0; }
  ibv_cq* create_cq(ibv_context*, int, ibv_comp_channel*) override { return &cq_; }
  int destroy_cq(ibv_cq*) override { return 0; }
  int poll_cq(ibv_cq*, int, ibv_wc*) override { return 0; }
  int req_notify_cq(ibv_cq*) override { return 0; }
  int next_cq_event(ibv_comp_channel*) override { return EAGAIN; }
  ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr&) override { return &qp_; }
  int modify_qp(ibv_qp*, ibv_qp_attr&, int) override { return 0; }
  int destroy_qp(ibv_qp*) override { return 0; }
  int post_send(ibv_qp*, ibv_send_wr* first, ibv_send_wr**) override {
    for (const ibv_send_wr* each = first; each != nullptr; each = each->next) {
      if ((each->send_flags & IBV_SEND_SIGNALED) != 0) signalled.push_back(each->wr_id);
    }
    return 0;
  }

 private:
  Fd never_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  ibv_device device_ = [] {
    ibv_device device{};
    std::strcpy(device.name, "null0");
    return device;
  }();
  std::array<ibv_device*, 2> list_{&device_, nullptr};
  ibv_context context_{};
  ibv_pd pd_{};
  ibv_mr mr_{};
  ibv_comp_channel channel_{};
  ibv_cq cq_{};
  ibv_qp qp_{};
};

constexpr std::uint64_t kPage = 64 << 10;

/// `pages` pages in reverse order on the remote side, so that none is coalesced.
struct Pages {
  explicit Pages(std::uint64_t pages)
      : memory{0x10000000, 2 * pages * kPage, 2 * pages * kPage, {1}}, bytes(pages * kPage) {
    for (std::uint64_t i = 0; i < pages; ++i) {
      from.push_back({1, 2 * (pages - 1 - i) * kPage, kPage});
      to.push_back({bytes.data() + i * kPage, kPage});
    }
    local.push_back({reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(), 7});
  }
  ReadPlan plan() const {
    const auto find = [](const void* context, std::uint32_t) {
      return static_cast<const RemoteMemory*>(context);
    };
    return *plan_read(from, to, find, &memory, local, {1U << 20U, 16});
  }
  RemoteMemory memory;
  std::vector<std::byte> bytes;
  std::vector<RemoteRange> from;
  std::vector<LocalRange> to;
  std::vector<LocalMemory> local;
};

void per_descriptor(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["per_descriptor"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void plan(benchmark::State& state) {
  const Pages pages(static_cast<std::uint64_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(pages.plan());
  per_descriptor(state);
}
BENCHMARK(plan)->Arg(256)->Arg(4096);

void plan_post_complete(benchmark::State& state) {
  const Pages pages(static_cast<std::uint64_t>(state.range(0)));
  auto api = std::make_shared<NullVerbs>();
  auto log = Logger::create("bench", LogLevel::off);
  Metrics metrics;
  VerbsOptions options;
  options.send_queue_depth = 4096;
  options.window = 1ULL << 40U;
  options.spin = std::chrono::microseconds(0);
  DeviceChoice choice;
  choice.device = "null0";
  auto device = VerbsDevice::open(api, choice, options, log, [](const ibv_async_event&) {}).value();
  auto table = std::make_shared<ReadTable>();
  auto reads = std::make_shared<VerbsReads>(device, table, std::make_shared<VerbsCounters>(metrics), "peer",
                                            VerbsReads::Events{[](auto) {}, [](auto, auto) {}});
  device->reserve_queues(1);
  reads->add_queue(std::move(*QueuePair::create(device, QueuePair::Role::reads)));
  for (auto _ : state) {
    bool ended = false;
    const ReadId id = table->add([&ended](const Status&) { ended = true; });
    reads->begin(id);
    reads->run(id, pages.plan(), nullptr);
    while (!ended) {
      for (const std::uint64_t wr_id : std::exchange(api->signalled, {})) {
        ibv_wc completion{};
        completion.wr_id = wr_id;
        reads->on_completions({&completion, 1});
      }
    }
  }
  per_descriptor(state);
  for (auto& pair : reads->take_all()) pair.reset();
  device->close();
}
BENCHMARK(plan_post_complete)->Arg(256)->Arg(4096);

}  // namespace
}  // namespace stagewire

BENCHMARK_MAIN();
