// What a get hands over: inline bodies, views, received buffers and the caller's own memory. See reader.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fault_points.h"
#include "node/reader.h"
#include "payload/scatter.h"

namespace stagewire {

namespace {

// Ends the lease of a view when the last tensor that refers to it is gone, on whatever thread that happens.
struct ViewLease {
  std::shared_ptr<const void> mapping;
  std::shared_ptr<LifelineEnd> lifeline;  // open as long as any view of this lender's memory lives
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<std::atomic<std::uint64_t>> views;
  Reader* reader = nullptr;  // touched on the loop alone, which the mailbox guards
  NodeId lender;
  std::uint64_t claim = 0;
  std::uint64_t lease = 0;

  ViewLease() = default;
  ~ViewLease() {
    views->fetch_sub(1, std::memory_order_relaxed);
    mailbox->post([r = reader, to = lender, c = claim, l = lease] { r->on_view_released(to, c, l); });
  }
  ViewLease(const ViewLease&) = delete;
  ViewLease& operator=(const ViewLease&) = delete;
};

Tensor tensor_of(const Segment& segment, const std::byte* data, bool read_only,
                 const std::shared_ptr<const void>& hold) {
  Tensor tensor;
  tensor.dtype = segment.dtype;
  tensor.shape = segment.shape;
  tensor.data = data;
  tensor.read_only = read_only;
  tensor.hold = hold;
  return tensor;
}

}  // namespace

void Reader::deliver_inline(const GetPtr& get) {
  const std::string& packed = get->grant.inline_body;
  const auto* from = reinterpret_cast<const std::byte*>(packed.data());
  if (get->options.placement == Placement::into) {
    if (Status planned = plan_into(get); !planned.ok()) {
      get->stage = GetStage::granted;  // granted: the lease has to be given back
      return fail(get, std::move(planned).error());
    }
    for (const LocalRange& range : get->to) {
      std::memcpy(range.data, from, range.length);
      from += range.length;
    }
    return deliver(get, nullptr, get->options.into_hold, false);
  }
  // Private memory with the alignment of a receive buffer; small, so not worth a place in the pool.
  struct Deleter {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t(kBufferAlignment));
    }
  };
  const std::size_t size = std::max<std::size_t>(get->decoded.body_size, 1);
  std::shared_ptr<std::byte> body(
      static_cast<std::byte*>(::operator new[](size, std::align_val_t(kBufferAlignment))), Deleter());
  for (const Segment& segment : get->decoded.segments) {
    if (segment.length == 0) continue;
    std::memcpy(body.get() + segment.offset, from, segment.length);
    from += segment.length;
  }
  if (get->options.placement == Placement::view && !packed.empty())
    get->placement_note = "copied: a payload of up to inline_limit bytes comes inside the grant";
  std::byte* data = body.get();
  deliver(get, data, std::move(body), false);
}

bool Reader::try_view(const GetPtr& get, Peer& peer, const Route& route) {
  if ((get->grant.flags & wire::Grant::kCopyOnly) != 0) {
    get->placement_note =
        "copied: this reader already holds its share of the sender's memory as views (view_share_percent)";
    return false;
  }
  Result<Link::View> view = route.link->view(get->grant.ranges);
  if (!view.ok()) {
    get->placement_note = "copied: " + view.error().to_string();
    return false;
  }
  // A segment can be handed out if it lies within one range; the ranges are the packed bytes in order.
  std::vector<const std::byte*> addresses;
  addresses.reserve(get->decoded.segments.size());
  std::size_t range = 0;
  std::uint64_t used = 0;
  for (const Segment& segment : get->decoded.segments) {
    while (segment.length != 0 && used == get->grant.ranges[range].length) {
      ++range;
      used = 0;
    }
    if (segment.length != 0 && segment.length > get->grant.ranges[range].length - used) {
      get->placement_note =
          "copied: a tensor of this payload is spread over several ranges of the sender's memory";
      return false;
    }
    addresses.push_back(segment.length == 0 ? nullptr : view->data[range] + used);
    used += segment.length;
  }

  auto lease = std::make_shared<ViewLease>();
  views_->fetch_add(1, std::memory_order_relaxed);
  lease->views = views_;
  lease->mapping = std::move(view->hold);
  lease->lifeline = peer.lifeline;
  lease->mailbox = mailbox_;
  lease->reader = this;
  lease->lender = get->peer;
  lease->claim = get->claim;
  lease->lease = get->grant.lease;
  std::vector<Tensor> tensors;
  tensors.reserve(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    tensors.push_back(tensor_of(get->decoded.segments[i], addresses[i], true, lease));
  }
  succeed(get, Payload(std::move(get->decoded.root), std::move(tensors)), true);
  return true;
}

Status Reader::plan_into(const GetPtr& get) {
  const auto& into = get->options.into;
  for (const DestinationRange& range : into) {
    if (!range.kind.is_host())
      return Error(ErrorKind::not_viable,
                   "destinations in " + to_string(range.kind) + " memory are not supported");
  }
  get->to.clear();
  if (into.size() == 1) {
    if (into.front().size < get->decoded.body_size || into.front().data == nullptr) {
      return Error(ErrorKind::too_large, "the payload needs " + std::to_string(get->decoded.body_size) +
                                             " bytes, the destination has " +
                                             std::to_string(into.front().size));
    }
    for (const Segment& segment : get->decoded.segments) {
      if (segment.length == 0) continue;
      get->to.push_back(
          {.data = into.front().data + segment.offset, .length = segment.length, .kind = into.front().kind});
    }
    return {};
  }
  std::vector<Destination> ranges;
  ranges.reserve(into.size());
  for (const DestinationRange& range : into) ranges.emplace_back(range.data, range.size);
  STAGEWIRE_ASSIGN(const ScatterPlan plan, scatter_ranges(get->decoded.segments, ranges));
  for (const Destination& range : plan.to) {
    get->to.push_back({.data = range.data(), .length = range.size(), .kind = into.front().kind});
  }
  return {};
}

void Reader::deliver(const GetPtr& get, std::byte* body, const std::shared_ptr<const void>& hold,
                     bool read_only) {
  const bool one_block = body != nullptr || get->options.into.size() == 1;
  if (body == nullptr && one_block) body = get->options.into.front().data;
  std::vector<Tensor> tensors;
  tensors.reserve(get->decoded.segments.size());
  // In several ranges a tensor may be cut anywhere: only one that lies in one piece gets an address.
  std::size_t range = 0;
  std::uint64_t used = 0;
  for (const Segment& segment : get->decoded.segments) {
    const std::byte* data = nullptr;
    if (one_block) {
      data = body + segment.offset;
    } else {
      std::uint64_t left = segment.length;
      while (left != 0) {
        if (used == get->options.into[range].size) {
          ++range;
          used = 0;
          continue;
        }
        const std::uint64_t piece = std::min(left, get->options.into[range].size - used);
        if (piece == segment.length) data = get->options.into[range].data + used;
        used += piece;
        left -= piece;
      }
    }
    tensors.push_back(tensor_of(segment, data, read_only, hold));
  }
  succeed(get, Payload(std::move(get->decoded.root), std::move(tensors)), false);
}

void Reader::succeed(const GetPtr& get, Payload payload, bool view) {
  Got got;
  got.payload = std::move(payload);
  got.generation = get->grant.generation;
  got.size = get->grant.body_size;
  got.transport = get->transport;
  got.view = view;
  got.placement_note = std::move(get->placement_note);
  get->buffer.reset();
  const NodeId lender = get->peer;
  const wire::Consumed consumed{.claim = get->claim, .lease = get->grant.lease};
  if (view) return finish(get, std::move(got));  // the view's release says consumed
  // Queued before the caller knows: its next claim leaves at once and takes this along, where both would be a
  // packet each.
  book_.close_with(lender, consumed.claim, consumed);
  output_.send_to_lender_lazily(lender, consumed);
  finish(get, std::move(got));
  see_to_last_words(lender);
}

void Reader::on_view_released(const NodeId& lender, std::uint64_t claim, std::uint64_t lease) {
  loop_.reach(fault_point::kViewReleased);
  if (!book_.known(lender, claim)) return;  // the lender has died; there is nobody to tell
  const wire::Consumed consumed{.claim = claim, .lease = lease};
  book_.close_with(lender, claim, consumed);
  output_.send_to_lender_lazily(lender, consumed);
  see_to_last_words(lender);
}

}  // namespace stagewire
