// The lender's side of a link: queue pairs that the peer reads through, and the keys of this node's memory.
// See verbs_link.h.
#include <algorithm>
#include <string>
#include <utility>

#include "transport/verbs/verbs_link.h"

namespace stagewire {

void VerbsLink::refuse(std::uint64_t request, const Error& why) {
  channel_.send(verbs_wire::encode(verbs_wire::Refused{request, why.kind(), why.message()}));
}

Status VerbsLink::on_connect(const verbs_wire::Connect& message) {
  if (served_.contains(message.request)) {
    return Error(ErrorKind::protocol,
                 "the peer asked twice for connection " + std::to_string(message.request));
  }
  const std::shared_ptr<VerbsDevice> device = host_.device;
  if (!device || !host_.problem.empty()) {
    refuse(message.request,
           Error(ErrorKind::not_viable,
                 !host_.problem.empty() ? host_.problem : std::string("there is no RDMA device in use")));
    return {};
  }
  if (const std::string why = mismatch_with(message.port); !why.empty()) {
    refuse(message.request, Error(ErrorKind::not_viable, "seen from the sender, " + why));
    return {};
  }
  std::size_t count = message.queues.size();
  for (const auto& [request, served] : served_) count += served.count;
  if (count > kMaxVerbsQueuesPerPeer) {
    refuse(message.request,
           Error(ErrorKind::busy, "one peer may have " + std::to_string(kMaxVerbsQueuesPerPeer) +
                                      " queue pairs here, and asked for " + std::to_string(count)));
    return {};
  }
  if (!device->reserve_queues(message.queues.size())) {
    refuse(message.request, Error(ErrorKind::busy,
                                  "the sender has as many queue pairs as it may have "
                                  "(rdma_max_queue_pairs is " +
                                      std::to_string(host_.options.max_queue_pairs) + ")"));
    return {};
  }
  served_[message.request].count = message.queues.size();
  device->helper().post(
      "answering a connection", [this, device, message, post = host_.post, alive = std::weak_ptr(alive_)] {
        auto made = std::make_shared<Result<Pairs>>(
            QueuePair::create_all(device, QueuePair::Role::answers, message.queues.size()));
        const auto depth = std::max<std::uint8_t>(std::min(device->responder_depth(), message.depth), 1);
        for (std::size_t i = 0; made->ok() && i < message.queues.size(); ++i) {
          const Status connected = (**made)[i]->connect(message.port, message.queues[i], depth);
          if (!connected.ok()) *made = connected.error();
        }
        post([this, device, request = message.request, made, alive] {
          const bool wanted = alive.lock() && served_.contains(request) && host_.device == device;
          if (!made->ok()) {
            if (wanted) {
              served_.erase(request);
              refuse(request, made->error());
            }
            return;
          }
          if (!wanted) return destroy(std::move(**made));
          Served& served = served_[request];
          served.pairs = std::move(**made);
          verbs_wire::Connected answer;
          answer.request = request;
          answer.port = device->port();
          answer.depth = device->responder_depth();
          for (const auto& pair : served.pairs) answer.queues.push_back(pair->local());
          channel_.send(verbs_wire::encode(answer));
        });
      });
  return {};
}

Status VerbsLink::on_drop(const verbs_wire::Drop& message) {
  const auto found = served_.find(message.request);
  // Dropped with the device already: the peer cannot know.
  if (found == served_.end()) return {};
  Pairs& pairs = found->second.pairs;
  const auto pair = std::find_if(pairs.begin(), pairs.end(),
                                 [&](const auto& each) { return each->local().qpn == message.qpn; });
  if (pair == pairs.end()) {
    return Error(ErrorKind::protocol, "the peer dropped queue pair " + std::to_string(message.qpn) +
                                          ", which is none of its connection " +
                                          std::to_string(message.request));
  }
  Pairs gone;
  gone.push_back(std::move(*pair));
  pairs.erase(pair);
  found->second.count = pairs.size();
  destroy(std::move(gone));
  if (pairs.empty()) served_.erase(found);
  return {};
}

Status VerbsLink::on_keys(const verbs_wire::Keys& message) {
  for (const std::uint32_t memory : message.memories) {
    if (keys_owed_.size() >= kMaxVerbsMemories && !keys_owed_.contains(memory)) {
      return Error(ErrorKind::protocol, "the peer asked for keys of too many memories at once");
    }
    if (!keys_owed_.insert(memory).second) continue;  // its answer is on the way
    host_.registrations->when_key_ready(
        memory, [this, memory, alive = std::weak_ptr(alive_)](const Result<verbs_wire::Key>& key) {
          if (!alive.lock() || closed_) return;
          keys_owed_.erase(memory);
          if (key.ok()) {
            channel_.send(verbs_wire::encode(*key));
          } else {
            channel_.send(
                verbs_wire::encode(verbs_wire::NoKey{memory, key.error().kind(), key.error().message()}));
          }
        });
  }
  return {};
}

}  // namespace stagewire
