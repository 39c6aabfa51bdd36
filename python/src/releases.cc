// See releases.h. The queue is a lock-free stack, so that a fork while another thread is adding to it leaves
// a child that can go on.
#include "releases.h"

#include <atomic>
#include <cstdint>

#include "process.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

struct Held {
  std::vector<nb::object> objects;
  Held* next = nullptr;
};

struct Queue {
  std::atomic<Held*> head{nullptr};
  std::atomic<std::uint32_t> wakes{0};
};

Queue& queue() {
  static Queue the_queue;
  return the_queue;
}

void enqueue(Held* held) noexcept {
  Queue& q = queue();
  held->next = q.head.load(std::memory_order_relaxed);
  while (
      !q.head.compare_exchange_weak(held->next, held, std::memory_order_release, std::memory_order_relaxed)) {
  }
  wake_reaper();
}

}  // namespace

std::shared_ptr<const void> hold_objects(std::vector<nb::object> objects) {
  auto held = std::make_unique<Held>();
  held->objects = std::move(objects);
  return std::shared_ptr<Held>(held.release(), [](Held* done) { enqueue(done); });
}

void drain_releases() {
  Queue& q = queue();
  if (q.head.load(std::memory_order_relaxed) == nullptr) return;
  Held* held = q.head.exchange(nullptr, std::memory_order_acquire);
  while (held != nullptr) {
    const std::unique_ptr<Held> owned(held);
    held = held->next;
  }
}

bool reap_once() {
  Queue& q = queue();
  const std::uint32_t seen = q.wakes.load(std::memory_order_acquire);
  drain_releases();
  if (process_ending()) return false;
  {
    const Unlocked unlocked;
    q.wakes.wait(seen, std::memory_order_acquire);
  }
  drain_releases();
  return !process_ending();
}

void wake_reaper() noexcept {
  queue().wakes.fetch_add(1, std::memory_order_release);
  queue().wakes.notify_one();
}

}  // namespace stagewire::python
