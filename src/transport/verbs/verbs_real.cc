// See verbs_real.h. Calls on the data path (ibv_post_send, ibv_poll_cq, ibv_req_notify_cq) are inline
// functions of the header that go through the context's table; all others are symbols.
#include "transport/verbs/verbs_real.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <memory>
#include <string>
#include <utility>

#include "base/fd.h"

// The header makes these names macros; the symbols behind them are meant here.
#undef ibv_reg_mr
#undef ibv_query_port

namespace stagewire {

namespace {

struct CloseLibrary {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

/// The symbols, typed as the header declares them. Default symbol versions are what a program linked today
/// would get.
struct Symbols {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_fork_init) fork_init = nullptr;
  decltype(&::ibv_is_fork_initialized) is_fork_initialized = nullptr;
};

/// Finds one symbol after the other and remembers the first that is missing.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}
  template <typename Function>
  void find(const char* name, Function& function) {
    void* symbol = ::dlsym(library_, name);
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    // POSIX promises that a function's address survives the way through void* (dlsym's rationale).
    std::memcpy(static_cast<void*>(&function), static_cast<const void*>(&symbol), sizeof function);
  }
  const std::string& missing() const noexcept { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

int errno_or_io() {
  return errno != 0 ? errno : EIO;
}
/// The library gives -1 and errno in some calls, the positive errno in others.
int positive(int result) {
  if (result == 0) return 0;
  return result > 0 ? result : errno_or_io();
}

void set_non_blocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

class RealVerbs final : public VerbsApi {
 public:
  RealVerbs(Library library, const Symbols& symbols) : library_(std::move(library)), call_(symbols) {}

  ibv_device** get_device_list() override { return call_.get_device_list(nullptr); }
  void free_device_list(ibv_device** list) override { call_.free_device_list(list); }
  int numa_node(ibv_device* device) override {
    std::array<char, 32> text{};
    const std::string path = std::string(device->ibdev_path) + "/device/numa_node";
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return -1;
    return static_cast<int>(std::strtol(text.data(), nullptr, 10));
  }

  ibv_context* open_device(ibv_device* device) override {
    errno = 0;
    ibv_context* context = call_.open_device(device);
    if (context == nullptr) {
      // The library does not always say why; a missing permission is the usual reason.
      if (errno == 0) errno = EACCES;
      return nullptr;
    }
    set_non_blocking(context->async_fd);
    // A forked child must not keep the device open.
    mark_close_on_fork(context->cmd_fd);
    mark_close_on_fork(context->async_fd);
    return context;
  }
  int close_device(ibv_context* context) override {
    unmark_close_on_fork(context->cmd_fd);
    unmark_close_on_fork(context->async_fd);
    return positive(call_.close_device(context));
  }
  int query_device(ibv_context* context, ibv_device_attr& attributes) override {
    return positive(call_.query_device(context, &attributes));
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr& attributes) override {
    // What the header's macro does: the context's own call fills the whole struct, the symbol only the part
    // that it had at first.
    attributes = {};
    const verbs_context* extended = verbs_get_ctx(context);
    if (extended != nullptr && extended->sz >= sizeof(*extended) - offsetof(verbs_context, query_port) &&
        extended->query_port != nullptr) {
      return positive(extended->query_port(context, port, &attributes, sizeof attributes));
    }
    return positive(call_.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes)));
  }
  int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index, ibv_gid_entry& entry) override {
    return positive(call_.query_gid_ex(context, port, index, &entry, 0, sizeof entry));
  }
  int next_async_event(ibv_context* context, ibv_async_event& event) override {
    errno = 0;
    if (call_.get_async_event(context, &event) != 0) return errno_or_io();
    // At once: destroying what an unacknowledged event is about would wait for ever.
    call_.ack_async_event(&event);
    return 0;
  }

  ibv_pd* alloc_pd(ibv_context* context) override { return call_.alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return positive(call_.dealloc_pd(pd)); }
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, unsigned access) override {
    // Optional flags, such as relaxed ordering, are dropped by this call where they are not supported.
    errno = 0;
    return call_.reg_mr_iova2(pd, address, length, reinterpret_cast<std::uintptr_t>(address), access);
  }
  int dereg_mr(ibv_mr* mr) override { return positive(call_.dereg_mr(mr)); }

  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    ibv_comp_channel* channel = call_.create_comp_channel(context);
    if (channel == nullptr) return nullptr;
    set_non_blocking(channel->fd);
    mark_close_on_fork(channel->fd);
    return channel;
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    unmark_close_on_fork(channel->fd);
    return positive(call_.destroy_comp_channel(channel));
  }
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) override {
    return call_.create_cq(context, entries, nullptr, channel, 0);
  }
  int destroy_cq(ibv_cq* cq) override { return positive(call_.destroy_cq(cq)); }
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) override {
    return ::ibv_poll_cq(cq, entries, completions);
  }
  int req_notify_cq(ibv_cq* cq) override { return positive(::ibv_req_notify_cq(cq, 0)); }
  int next_cq_event(ibv_comp_channel* channel) override {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    errno = 0;
    if (call_.get_cq_event(channel, &cq, &context) != 0) return errno_or_io();
    call_.ack_cq_events(cq, 1);
    return 0;
  }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) override {
    errno = 0;
    return call_.create_qp(pd, &attributes);
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) override {
    return positive(call_.modify_qp(qp, &attributes, mask));
  }
  int destroy_qp(ibv_qp* qp) override { return positive(call_.destroy_qp(qp)); }
  int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) override {
    return positive(::ibv_post_send(qp, first, bad));
  }

 private:
  Library library_;
  Symbols call_;
};

Error missing(const std::string& what) {
  return Error(ErrorKind::not_viable,
               "not viable, because " + what + ": apt-get install ibverbs-providers libibverbs1");
}

}  // namespace

Result<std::shared_ptr<VerbsApi>> open_real_verbs(const std::string& name) {
  // It stays in the process: providers that it loads are not made to be unloaded, and what it keeps would
  // leak.
  Library library(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!library) {
    const char* why = ::dlerror();
    return missing(name + " could not be opened (" + (why != nullptr ? why : "no reason given") + ")");
  }
  Symbols call;
  Finder finder(library.get());
  finder.find("ibv_get_device_list", call.get_device_list);
  finder.find("ibv_free_device_list", call.free_device_list);
  finder.find("ibv_open_device", call.open_device);
  finder.find("ibv_close_device", call.close_device);
  finder.find("ibv_query_device", call.query_device);
  finder.find("ibv_query_port", call.query_port);
  finder.find("_ibv_query_gid_ex", call.query_gid_ex);
  finder.find("ibv_get_async_event", call.get_async_event);
  finder.find("ibv_ack_async_event", call.ack_async_event);
  finder.find("ibv_alloc_pd", call.alloc_pd);
  finder.find("ibv_dealloc_pd", call.dealloc_pd);
  finder.find("ibv_reg_mr_iova2", call.reg_mr_iova2);
  finder.find("ibv_dereg_mr", call.dereg_mr);
  finder.find("ibv_create_comp_channel", call.create_comp_channel);
  finder.find("ibv_destroy_comp_channel", call.destroy_comp_channel);
  finder.find("ibv_create_cq", call.create_cq);
  finder.find("ibv_destroy_cq", call.destroy_cq);
  finder.find("ibv_get_cq_event", call.get_cq_event);
  finder.find("ibv_ack_cq_events", call.ack_cq_events);
  finder.find("ibv_create_qp", call.create_qp);
  finder.find("ibv_modify_qp", call.modify_qp);
  finder.find("ibv_destroy_qp", call.destroy_qp);
  finder.find("ibv_fork_init", call.fork_init);
  finder.find("ibv_is_fork_initialized", call.is_fork_initialized);
  if (!finder.missing().empty()) {
    return missing(name + " has no " + finder.missing() + " (it is older than rdma-core 32, which has it)");
  }
  // Since Linux 5.12 the kernel copies pinned pages for a forked child, and nothing has to be done.
  if (call.is_fork_initialized() == IBV_FORK_DISABLED) {
    if (const int failed = call.fork_init(); failed != 0) {
      return Error(ErrorKind::not_viable, std::string("not viable, because ibv_fork_init failed (") +
                                              std::strerror(failed) +
                                              "), and without it a fork would break registered memory");
    }
  }
  return std::shared_ptr<VerbsApi>(std::make_shared<RealVerbs>(std::move(library), call));
}

}  // namespace stagewire
