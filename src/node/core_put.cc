// The publishing calls: everything that costs time (encoding, waiting for memory, the gather pass) happens on
// the caller's thread; the loop only takes over the finished publication. See core.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/oneshot.h"
#include "node/core.h"
#include "node/on_loop.h"
#include "payload/codec.h"

namespace stagewire {

namespace {

Status check_key(const Key& key) {
  const std::pair<const char*, const std::string*> parts[] = {{"namespace", &key.name_space},
                                                              {"from_stage", &key.from_stage},
                                                              {"to_stage", &key.to_stage},
                                                              {"key", &key.key}};
  for (const auto& [name, text] : parts) {
    if (text->size() <= wire::kMaxName) continue;
    return Error(ErrorKind::invalid_argument, std::string(name) + " has " + std::to_string(text->size()) +
                                                  " bytes; at most " + std::to_string(wire::kMaxName) +
                                                  " are allowed");
  }
  if (key.key.empty()) return Error(ErrorKind::invalid_argument, "the key is empty");
  return {};
}

Status check_options(const PutOptions& options) {
  if (options.readers == 0)
    return Error(ErrorKind::invalid_argument, "readers is 0; a payload is published for at least 1");
  static constexpr std::chrono::hours kLongest{24 * 30};
  const auto valid = [](const std::optional<std::chrono::nanoseconds>& time) {
    return !time || (*time > std::chrono::nanoseconds(0) && *time <= kLongest);
  };
  if (!valid(options.ttl))
    return Error(ErrorKind::invalid_argument, "ttl is out of range: more than 0, at most 30 days");
  if (!valid(options.max_lifetime)) {
    return Error(ErrorKind::invalid_argument, "max_lifetime is out of range: more than 0, at most 30 days");
  }
  return {};
}

std::uint64_t packed_size(const EncodedPayload& layout) {
  std::uint64_t size = 0;
  for (const Segment& segment : layout.segments) size += segment.length;
  return size;
}

// Lays the segments out without gaps: an inline body travels in the grant and is never read in place.
void pack(EncodedPayload& layout) {
  layout.body_size = 0;
  for (Segment& segment : layout.segments) {
    segment.offset = layout.body_size;
    layout.body_size += segment.length;
  }
}

// Appends a range, merged with the one before if they touch.
void append_range(std::vector<RemoteRange>& ranges, RemoteRange next) {
  if (next.length == 0) return;
  if (!ranges.empty() && ranges.back().memory == next.memory &&
      ranges.back().offset + ranges.back().length == next.offset) {
    ranges.back().length += next.length;
  } else {
    ranges.push_back(next);
  }
}

}  // namespace

Error NodeCore::with_put(Error error, const Key& key) {
  error.with_operation("put").with_key(key.to_string());
  return error;
}

Result<Ticket> NodeCore::put(const Key& key, const Payload& payload, PutOptions options) {
  const auto attempt = [&]() -> Result<Ticket> {
    STAGEWIRE_TRY(check_usable());
    STAGEWIRE_TRY(check_key(key));
    STAGEWIRE_TRY(check_options(options));
    STAGEWIRE_ASSIGN(EncodedPayload layout, encode(payload));
    PublicationFacts facts;
    facts.key = key;
    facts.size = packed_size(layout);
    facts.body = std::make_shared<SourceBody>();
    if (facts.size <= config_.inline_limit) {
      facts.is_inline = true;
      pack(layout);
      facts.body->inline_bytes = inline_blocks_->take(layout.body_size);
      gather(payload, layout, facts.body->inline_bytes.data(), *engine_);
    } else {
      STAGEWIRE_ASSIGN(std::shared_ptr<Buffer> buffer, allocate_for_put(key, layout.body_size, options));
      gather(payload, layout, buffer->data(), *engine_);
      for (const Segment& segment : layout.segments) {
        append_range(facts.ranges, {.memory = publish_pool_->id(),
                                    .offset = buffer->offset() + segment.offset,
                                    .length = segment.length});
      }
      facts.body->buffers.push_back(std::move(buffer));
    }
    facts.header = std::move(layout.header);
    return publish(std::move(facts), options);
  };
  Result<Ticket> ticket = attempt();
  if (!ticket.ok()) return with_put(std::move(ticket).error(), key);
  return ticket;
}

Result<Ticket> NodeCore::put_in_place(const Key& key, const Payload& payload,
                                      std::vector<std::shared_ptr<Buffer>> buffers, PutOptions options) {
  for (const auto& buffer : buffers) {
    if (!buffer || !*buffer || buffer->pool() != publish_pool_) {
      return with_put(
          Error(ErrorKind::invalid_argument, "a buffer is empty or not of this node's publish pool"), key);
    }
  }
  auto body = std::make_shared<SourceBody>();
  body->buffers = std::move(buffers);
  const Locate locate = [this, &held = body->buffers](const std::byte* data,
                                                      std::uint64_t length) -> std::optional<RemoteRange> {
    const auto holder = std::find_if(held.begin(), held.end(), [data, length](const auto& buffer) {
      return data >= buffer->data() && length <= buffer->size() &&
             static_cast<std::uint64_t>(data - buffer->data()) <= buffer->size() - length;
    });
    if (holder == held.end()) return std::nullopt;
    return RemoteRange{.memory = publish_pool_->id(),
                       .offset = (*holder)->offset() + static_cast<std::uint64_t>(data - (*holder)->data()),
                       .length = length};
  };
  return publish_in_place(key, payload, body, locate, "buffers", std::move(options));
}

Result<Ticket> NodeCore::publish_in_place(const Key& key, const Payload& payload,
                                          std::shared_ptr<SourceBody> body, const Locate& locate,
                                          std::string_view where, PutOptions options) {
  const auto attempt = [&]() -> Result<Ticket> {
    STAGEWIRE_TRY(check_usable());
    STAGEWIRE_TRY(check_key(key));
    STAGEWIRE_TRY(check_options(options));
    STAGEWIRE_ASSIGN(EncodedPayload layout, encode(payload));
    PublicationFacts facts;
    facts.key = key;
    facts.size = packed_size(layout);
    facts.in_regions = !body->regions.empty();
    for (std::size_t i = 0; i < payload.tensors().size(); ++i) {
      const Tensor& tensor = payload.tensors()[i];
      const std::uint64_t length = layout.segments[i].length;
      if (length == 0) continue;
      if (!tensor.contiguous()) {
        return Error(ErrorKind::invalid_argument,
                     "tensor " + std::to_string(i) + " is not contiguous; put() copies such tensors");
      }
      const auto range = locate(static_cast<const std::byte*>(tensor.data), length);
      if (!range) {
        return Error(
            ErrorKind::invalid_argument,
            "tensor " + std::to_string(i) + " does not lie in any of the " + std::string(where) + " given");
      }
      append_range(facts.ranges, *range);
    }
    facts.header = std::move(layout.header);
    facts.body = std::move(body);
    return publish(std::move(facts), options);
  };
  Result<Ticket> ticket = attempt();
  if (!ticket.ok()) return with_put(std::move(ticket).error(), key);
  return ticket;
}

Result<std::shared_ptr<Buffer>> NodeCore::allocate_for_put(const Key& key, std::uint64_t size,
                                                           const PutOptions& options) {
  const Deadline deadline = options.deadline.value_or(Deadline::in(config_.put_wait));
  Oneshot<Result<Buffer>> oneshot = Oneshot<Result<Buffer>>::make();
  auto promise = std::make_shared<OneshotPromise<Result<Buffer>>>(std::move(oneshot.promise));
  const Pool::AllocationId id = publish_pool_->allocate_async(
      size, "put " + key.to_string(), [promise](Result<Buffer> buffer) { promise->set(std::move(buffer)); });
  const Status waited =
      oneshot.future.wait(deadline, std::chrono::nanoseconds(0),
                          options.interruptible ? OnSignal::give_up : OnSignal::keep_waiting);
  if (!waited.ok()) publish_pool_->cancel(id);  // its answer is in place when this returns
  std::optional<Result<Buffer>> buffer = oneshot.future.try_take();
  if (!waited.ok() && waited.error().kind() == ErrorKind::interrupted) return waited.error();
  if (!buffer) return Error(ErrorKind::internal, "the pool did not answer a cancelled allocation");
  if (!buffer->ok()) return std::move(*buffer).error();
  return std::make_shared<Buffer>(std::move(*buffer).value());
}

Result<Ticket> NodeCore::publish(PublicationFacts facts, const PutOptions& options) {
  if (facts.ranges.size() > wire::kMaxRanges) {
    return Error(ErrorKind::too_large, "the payload lies in " + std::to_string(facts.ranges.size()) +
                                           " separate ranges; at most " + std::to_string(wire::kMaxRanges) +
                                           " can be granted");
  }
  facts.generation = next_generation_.fetch_add(1, std::memory_order_relaxed);
  facts.readers = options.readers;
  facts.ttl = options.ttl.value_or(config_.ttl);
  facts.max_lifetime = options.max_lifetime.value_or(config_.max_lifetime);
  facts.body->released = options.released;
  Ticket ticket{.addresses = addresses(),
                .node = id_,
                .key = facts.key,
                .generation = facts.generation,
                .size = facts.size};
  puts_.add();
  put_bytes_.add(facts.size);
  const bool posted = mailbox_->post([this, facts = std::move(facts)]() mutable {
    if (facts.in_regions && !has_regions(facts.ranges)) {
      // The region was closed while this was on its way.
      facts.body->reason = EndReason::cancelled;
      return lender_->bury(facts.generation, EndReason::cancelled);
    }
    lender_->publish(std::move(facts), boottime_now());
    arm_lender_timer();
  });
  if (!posted) return Error(ErrorKind::closed, "the node is closed");
  return ticket;
}

bool NodeCore::withdraw(const Key& key, std::uint64_t generation) {
  if (!check_usable().ok()) return false;
  return on_loop<bool>([this, key, generation] {
           return lender_->withdraw(key, generation, EndReason::cancelled, boottime_now());
         })
      .value_or(false);
}

std::uint64_t NodeCore::withdraw_prefix(const std::string& name_space, const std::string& prefix) {
  if (!check_usable().ok()) return 0;
  return on_loop<std::uint64_t>([this, name_space, prefix] {
           return lender_->withdraw_prefix(name_space, prefix, EndReason::cancelled, boottime_now());
         })
      .value_or(0);
}

std::uint64_t NodeCore::withdraw_everywhere(const std::string& name_space, const std::string& key) {
  if (!check_usable().ok()) return 0;
  return on_loop<std::uint64_t>([this, name_space, key] {
           return lender_->withdraw_everywhere(name_space, key, EndReason::cancelled, boottime_now());
         })
      .value_or(0);
}

}  // namespace stagewire
