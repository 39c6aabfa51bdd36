// See device_poller.h.
#include "transport/verbs/device_poller.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "memory/thread_start.h"

namespace stagewire {

namespace {
using Clock = std::chrono::steady_clock;
constexpr int kBatch = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

Result<std::unique_ptr<DevicePoller>> DevicePoller::start(std::shared_ptr<VerbsApi> api, ibv_context* context,
                                                          ibv_cq* cq, ibv_comp_channel* channel,
                                                          std::chrono::microseconds spin, OnEvent on_event,
                                                          std::shared_ptr<Logger> log) {
  std::unique_ptr<DevicePoller> poller(
      new DevicePoller(std::move(api), context, cq, channel, spin, std::move(on_event), std::move(log)));
  poller->wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller->wake_) return Error::from_errno(errno, "eventfd");
  STAGEWIRE_ASSIGN(poller->thread_, start_thread("sw-verbs-poll", [raw = poller.get()] { raw->run(); }));
  return poller;
}

DevicePoller::DevicePoller(std::shared_ptr<VerbsApi> api, ibv_context* context, ibv_cq* cq,
                           ibv_comp_channel* channel, std::chrono::microseconds spin, OnEvent on_event,
                           std::shared_ptr<Logger> log)
    : api_(std::move(api)),
      context_(context),
      cq_(cq),
      channel_(channel),
      spin_(spin),
      on_event_(std::move(on_event)),
      log_(std::move(log)) {}

DevicePoller::~DevicePoller() {
  stop();
}

void DevicePoller::add(std::uint32_t queue, std::shared_ptr<CompletionSink> sink) {
  const std::lock_guard lock(mutex_);
  sinks_[queue] = std::move(sink);
}

void DevicePoller::remove(std::uint32_t queue) {
  std::shared_ptr<CompletionSink> last;  // goes after the lock
  const std::lock_guard lock(mutex_);
  const auto found = sinks_.find(queue);
  if (found == sinks_.end()) return;
  last = std::move(found->second);
  sinks_.erase(found);
}

void DevicePoller::stop() {
  if (fork_guard_.forked()) {
    thread_.detach();  // the thread is the parent's; here is only its number
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one));
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<CompletionSink> DevicePoller::sink_of(std::uint32_t queue) {
  const std::lock_guard lock(mutex_);
  const auto found = sinks_.find(queue);
  return found == sinks_.end() ? nullptr : found->second;
}

bool DevicePoller::poll_once() {
  std::array<ibv_wc, kBatch> completions;
  const int got = api_->poll_cq(cq_, kBatch, completions.data());
  if (got < 0 && !std::exchange(broken_, true)) {
    log_->error("the completion queue of " + std::string(context_->device->name) +
                " cannot be polled any more; its reads end at their deadlines");
  }
  if (got <= 0) return false;
  // Runs of the same queue go to their owner together.
  const auto count = static_cast<std::size_t>(got);
  for (std::size_t first = 0; first < count;) {
    const auto queue = static_cast<std::uint32_t>(completions[first].wr_id >> kQueueShift);
    std::size_t end = first + 1;
    while (end < count && completions[end].wr_id >> kQueueShift == queue) ++end;
    if (const auto sink = sink_of(queue)) sink->on_completions({&completions[first], end - first});
    first = end;
  }
  return true;
}

void DevicePoller::sleep() {
  // poll() passes over negative descriptors.
  std::array<pollfd, 3> entries{{{wake_.get(), POLLIN, 0},
                                 {channel_ended_ ? -1 : channel_->fd, POLLIN, 0},
                                 {events_ended_ ? -1 : context_->async_fd, POLLIN, 0}}};
  if (::poll(entries.data(), entries.size(), -1) < 0) return;
  if (entries[0].revents != 0) {
    std::uint64_t count = 0;
    static_cast<void>(::read(wake_.get(), &count, sizeof count));
  }
  if (entries[1].revents != 0) {
    while (api_->next_cq_event(channel_) == 0) {
    }
  }
  if (entries[2].revents != 0) {
    ibv_async_event event{};
    while (api_->next_async_event(context_, event) == 0) on_event_(event);
  }
  // A device that was taken away leaves both in error for ever, which must not keep this thread busy.
  constexpr short kEnded = POLLERR | POLLHUP | POLLNVAL;
  if ((entries[1].revents & kEnded) != 0) channel_ended_ = true;
  if ((entries[2].revents & kEnded) == 0) return;
  events_ended_ = true;
  ibv_async_event gone{};
  gone.event_type = IBV_EVENT_DEVICE_FATAL;
  on_event_(gone);
}

void DevicePoller::run() {
  Clock::time_point last = Clock::now();
  for (;;) {
    if (poll_once()) {
      last = Clock::now();
      continue;
    }
    if (Clock::now() - last < spin_) {
      relax();
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    // Armed before the last look, so that a completion is either seen by it or announced by the channel.
    static_cast<void>(api_->req_notify_cq(cq_));
    if (!poll_once()) sleep();
    last = Clock::now();
  }
}

}  // namespace stagewire
