// Plans of reads into given destinations. Stateless; any thread.
#include "payload/scatter.h"

#include <algorithm>
#include <optional>
#include <string>

namespace stagewire {
namespace {

std::string size_text(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

Error too_small(const std::string& what, std::uint64_t size, std::uint64_t needed) {
  return Error(ErrorKind::too_large,
               what + " has " + size_text(size) + ", but the payload needs " + size_text(needed));
}

Error too_big(const std::string& what, std::uint64_t size, std::uint64_t needed) {
  return Error(ErrorKind::invalid_argument,
               what + " has " + size_text(size) + ", but the payload has only " + size_text(needed) +
                   " for it; pass exactly as many, so that no byte stays undefined unnoticed");
}

/// Refuses null and overlapping destinations: two reads into the same bytes would leave a mix.
Status check_destinations(std::span<const Destination> destinations) {
  bool ascending = true;
  const std::byte* end = nullptr;
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const Destination& d = destinations[i];
    if (d.empty()) continue;
    if (d.data() == nullptr) {
      return Error(ErrorKind::invalid_argument, "destination " + std::to_string(i) + " is null");
    }
    if (end != nullptr && std::less<>{}(d.data(), end)) ascending = false;
    end = d.data() + d.size();
  }
  if (ascending) return {};
  std::vector<Destination> sorted;
  sorted.reserve(destinations.size());
  std::copy_if(destinations.begin(), destinations.end(), std::back_inserter(sorted),
               [](const Destination& d) { return !d.empty(); });
  std::sort(sorted.begin(), sorted.end(),
            [](const Destination& a, const Destination& b) { return std::less<>{}(a.data(), b.data()); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (std::less<>{}(sorted[i].data(), sorted[i - 1].data() + sorted[i - 1].size())) {
      return Error(ErrorKind::invalid_argument, "two destinations overlap: one of " +
                                                    size_text(sorted[i - 1].size()) + " and one of " +
                                                    size_text(sorted[i].size()) + " share memory");
    }
  }
  return {};
}

/// Joins neighbours while a plan is built.
class Builder {
 public:
  void from(std::uint64_t offset, std::uint64_t length) {
    if (length == 0) return;
    plan_.bytes += length;
    if (!plan_.from.empty() && plan_.from.back().offset + plan_.from.back().length == offset) {
      plan_.from.back().length += length;
    } else {
      plan_.from.push_back({offset, length});
    }
  }
  void to(Destination range) {
    if (range.empty()) return;
    if (!plan_.to.empty() && plan_.to.back().data() + plan_.to.back().size() == range.data()) {
      plan_.to.back() = Destination(plan_.to.back().data(), plan_.to.back().size() + range.size());
    } else {
      plan_.to.push_back(range);
    }
  }
  ScatterPlan take() noexcept { return std::move(plan_); }

 private:
  ScatterPlan plan_;
};

}  // namespace

Result<ScatterPlan> scatter_body(std::uint64_t body_size, Destination block) {
  if (block.size() < body_size) return too_small("the destination", block.size(), body_size);
  const Destination used = block.first(body_size);
  STAGEWIRE_TRY(check_destinations(std::span(&used, 1)));
  Builder builder;
  builder.from(0, body_size);
  builder.to(used);
  return builder.take();
}

Result<ScatterPlan> scatter_tensors(std::span<const Segment> segments,
                                    std::span<const Destination> destinations) {
  if (segments.size() != destinations.size()) {
    return Error(ErrorKind::invalid_argument, std::to_string(destinations.size()) +
                                                  " destinations for the payload's " +
                                                  std::to_string(segments.size()) +
                                                  " tensors; expected one for each, in the tensors' order");
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::uint64_t size = destinations[i].size();
    const std::uint64_t needed = segments[i].length;
    if (size == needed) continue;
    const std::string what = "destination " + std::to_string(i);
    return size < needed ? too_small(what, size, needed) : too_big(what, size, needed);
  }
  return scatter_ranges(segments, destinations);
}

Result<ScatterPlan> scatter_ranges(std::span<const Segment> segments, std::span<const Destination> ranges) {
  STAGEWIRE_TRY(check_destinations(ranges));
  // Neither sum overflows: segments come from a checked layout, ranges lie in one address space side by side.
  std::uint64_t needed = 0;
  for (const Segment& segment : segments) needed += segment.length;
  std::uint64_t size = 0;
  for (const Destination& range : ranges) size += range.size();
  const std::string what = "the list of " + std::to_string(ranges.size()) + " destination ranges";
  if (size < needed) return too_small(what, size, needed);
  if (size > needed) return too_big(what, size, needed);
  Builder builder;
  for (const Segment& segment : segments) builder.from(segment.offset, segment.length);
  for (const Destination& range : ranges) builder.to(range);
  return builder.take();
}

}  // namespace stagewire
