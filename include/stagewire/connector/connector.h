// Connector: what a model runner calls. put / get / cleanup / health over edges and keys, with the rules of
// vLLM-Omni's OmniConnectorBase: run-time faults are "no" plus a logged reason, never an exception; a plain
// get never waits. A thin layer over a Node, which several connectors of a process share, each in its own
// namespace. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>
#include <stagewire/node/node.h>

namespace stagewire {

enum class ConnectorRole : std::uint8_t { sender, receiver, dual };
/// Errors: config, listing the roles.
Result<ConnectorRole> parse_connector_role(std::string_view text);

struct ConnectorOptions {
  ConnectorRole role = ConnectorRole::sender;
  /// Where a sender listens. "", "auto", "*", "0.0.0.0" and "::" mean this host's outward address (loopback
  /// where TCP is not allowed).
  std::string host = "auto";
  std::uint16_t port = 0;   ///< 0: any free one
  std::string sender_host;  ///< a receiver's sender, where no metadata names one
  std::uint16_t sender_port = 0;
  /// Keys of different namespaces do not meet. Empty: the port, the sender's own or the one that was dialled.
  std::string name_space;
  std::chrono::nanoseconds put_wait = std::chrono::milliseconds(100);  ///< for pool memory
  std::optional<std::chrono::nanoseconds> ttl;                         ///< of what is put; empty: the node's
};

/// What travels with a request so that its receiver finds the payload: all of it, or the address alone.
struct ConnectorMetadata {
  std::string source_host;
  std::uint16_t source_port = 0;
  std::optional<std::string> ticket;       ///< Ticket::to_text(); makes the look-up unnecessary
  std::optional<std::uint64_t> data_size;  ///< tensor bytes, for information
};

struct ConnectorPut {
  bool ok = false;
  std::uint64_t size = 0;  ///< tensor bytes
  std::optional<ConnectorMetadata> metadata;
};

struct ConnectorHealth {
  bool healthy = false;
  std::string problem;  ///< why not
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t puts = 0;
  std::uint64_t gets = 0;
  std::uint64_t bytes_put = 0;
  std::uint64_t bytes_got = 0;
  std::uint64_t put_failures = 0;
  std::uint64_t get_failures = 0;
  std::uint64_t timeouts = 0;
  std::string last_error;
  NodeStats node;
};

class Connector : public std::enable_shared_from_this<Connector> {
 public:
  /// Receives each logged reason: level ("warning", "error", "debug") and text. Any thread; must not block.
  using LogSink = std::function<void(std::string_view level, const std::string& text)>;

  /// Errors: config, io (the port is in use), auth_failed.
  static Result<std::shared_ptr<Connector>> create(std::shared_ptr<Node> node, ConnectorOptions options,
                                                   LogSink log);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// Copies and publishes. Waits at most put_wait for memory.
  ConnectorPut put(const std::string& from_stage, const std::string& to_stage, const std::string& key,
                   const Payload& payload);
  /// The payload if it is published now; otherwise nothing, at once. Never waits for a connection: starts one
  /// and says nothing.
  std::optional<Got> get(const std::string& from_stage, const std::string& to_stage, const std::string& key,
                         const std::optional<ConnectorMetadata>& metadata,
                         Placement placement = Placement::copy);
  /// Waits until the deadline for the payload.
  std::optional<Got> get_with_deadline(const std::string& from_stage, const std::string& to_stage,
                                       const std::string& key,
                                       const std::optional<ConnectorMetadata>& metadata, Deadline deadline,
                                       Placement placement = Placement::copy, bool interruptible = false);
  /// The sender that later gets without metadata ask. `sender_rank` is the caller's business: the port is
  /// taken as given.
  void update_sender_info(const std::string& host, std::uint16_t port);

  /// Withdraws a key: of one edge if both stages are given, else of every edge. A key in the form
  /// "key@from_to" names its edge itself. True if something was withdrawn.
  bool cleanup(const std::string& key, const std::optional<std::string>& from_stage = {},
               const std::optional<std::string>& to_stage = {});

  ConnectorHealth health() const;
  /// Withdraws what this connector published and stops answering. Idempotent. The node goes on.
  void close();
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  const ConnectorOptions& options() const noexcept { return options_; }
  /// Where it listens: what metadata names. Empty and 0 for receivers.
  const std::string& host() const noexcept { return host_; }
  std::uint16_t port() const noexcept { return port_; }
  const std::shared_ptr<Node>& node() const noexcept { return node_; }

 private:
  Connector(std::shared_ptr<Node> node, ConnectorOptions options, LogSink log);
  Status start();
  std::optional<Source> source_of(const std::string& from_stage, const std::string& to_stage,
                                  const std::string& key, const std::optional<ConnectorMetadata>& metadata);
  std::optional<Got> run_get(const Source& source, GetOptions options);
  void report(std::string_view level, const std::string& text) const;
  void note_error(const Error& error);
  void start_connecting(const std::string& address);

  std::shared_ptr<Node> node_;
  ConnectorOptions options_;
  LogSink log_;
  std::string host_;
  std::uint16_t port_ = 0;
  std::string name_space_;
  std::atomic<bool> closed_{false};
  struct Published;
  std::shared_ptr<Published> published_;  // what this connector has put and has not ended
  mutable std::mutex mutex_;              // guards the members below
  std::string sender_host_;
  std::uint16_t sender_port_ = 0;
  ConnectorHealth counts_;
};

}  // namespace stagewire
