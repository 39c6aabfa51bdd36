// Directory: which sessions are up, by node and by the address that was dialled, for callers on any thread.
// Written by the loop; thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <stagewire/base/node_id.h>
#include <stagewire/node/options.h>

#include "session/session.h"

namespace stagewire {

class Directory {
 public:
  void add(const std::shared_ptr<Session>& session) {
    const std::lock_guard lock(mutex_);
    by_node_[session->peer()] = session;
  }
  void add(const std::string& address, const std::shared_ptr<Session>& session) {
    const std::lock_guard lock(mutex_);
    by_address_[address] = session;
  }
  void remove(const Session& session) {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_node_.find(session.peer());
        found != by_node_.end() && found->second.get() == &session) {
      by_node_.erase(found);
    }
    std::erase_if(by_address_, [&session](const auto& entry) { return entry.second.get() == &session; });
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    by_node_.clear();
    by_address_.clear();
  }

  /// The session to the source's lender, or nullptr: then the loop has to find one.
  std::shared_ptr<Session> find(const Source& source) const {
    const std::lock_guard lock(mutex_);
    if (!source.node.is_nil()) {
      const auto found = by_node_.find(source.node);
      return found == by_node_.end() ? nullptr : found->second;
    }
    if (source.addresses.empty()) return nullptr;
    const auto found = by_address_.find(source.addresses.front());
    return found == by_address_.end() ? nullptr : found->second;
  }
  bool has(const std::string& address) const {
    const std::lock_guard lock(mutex_);
    return by_address_.count(address) != 0;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<NodeId, std::shared_ptr<Session>> by_node_;
  std::unordered_map<std::string, std::shared_ptr<Session>> by_address_;
};

}  // namespace stagewire
