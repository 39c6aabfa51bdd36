// The public face of NodeCore.
#include <utility>

#include <stagewire/node/node.h>

#include "node/core.h"
#include "node/node_maker.h"
#include "transport/verbs/verbs_real.h"

namespace stagewire {

Node::Node(std::unique_ptr<NodeCore> core) : core_(std::move(core)) {}
Node::~Node() = default;

Result<std::shared_ptr<Node>> Node::create(NodeConfig config) {
  return NodeMaker::make(std::move(config),
                         {.open_verbs = [] { return open_real_verbs(); }, .reached = nullptr});
}

Result<std::shared_ptr<Node>> NodeMaker::make(NodeConfig config, Seams seams) {
  Result<std::unique_ptr<NodeCore>> core = NodeCore::create(std::move(config), std::move(seams));
  if (!core.ok()) return std::move(core.error().with_operation("create node"));
  return std::shared_ptr<Node>(new Node(std::move(core).value()));
}

const NodeId& Node::id() const noexcept {
  return core_->id();
}
std::vector<std::string> Node::addresses() const {
  return core_->addresses();
}
bool Node::unlisten(const std::string& address) {
  return core_->unlisten(address);
}
bool Node::is_own(const std::string& address) const {
  return core_->is_own_address(address);
}
std::uint64_t Node::withdraw_everywhere(const std::string& name_space, const std::string& key) {
  return core_->withdraw_everywhere(name_space, key);
}
Result<std::string> Node::listen(const std::string& address) {
  return core_->listen(address);
}

Result<Ticket> Node::put(const Key& key, const Payload& payload, PutOptions options) {
  return core_->put(key, payload, std::move(options));
}
Result<Ticket> Node::put_in_place(const Key& key, const Payload& payload,
                                  std::vector<std::shared_ptr<Buffer>> buffers, PutOptions options) {
  return core_->put_in_place(key, payload, std::move(buffers), std::move(options));
}
Result<std::shared_ptr<Region>> Node::register_region(const void* data, std::uint64_t size,
                                                      RegionOptions options) {
  return core_->register_region(data, size, std::move(options));
}
Result<Ticket> Node::put_in_regions(const Key& key, const Payload& payload,
                                    const std::vector<std::shared_ptr<Region>>& regions, PutOptions options) {
  return core_->put_in_regions(key, payload, regions, std::move(options));
}
bool Node::withdraw(const Key& key, std::uint64_t generation) {
  return core_->withdraw(key, generation);
}
std::uint64_t Node::withdraw_prefix(const std::string& name_space, const std::string& prefix) {
  return core_->withdraw_prefix(name_space, prefix);
}

Result<Got> Node::get(const Source& source, GetOptions options) {
  return core_->get(source, std::move(options));
}
GetHandle Node::get_async(const Source& source, GetOptions options) {
  return std::move(core_->get_async({source}, {std::move(options)}).front());
}
std::vector<GetHandle> Node::get_many_async(const std::vector<Source>& sources,
                                            const std::vector<GetOptions>& options) {
  if (sources.size() == options.size()) return core_->get_async(sources, options);
  std::vector<GetHandle> handles;
  for (const Source& source : sources) {
    Oneshot<Result<Got>> refused = Oneshot<Result<Got>>::make();
    Error error(ErrorKind::invalid_argument, "get_many of " + std::to_string(sources.size()) +
                                                 " sources was given " + std::to_string(options.size()) +
                                                 " options; it needs one for each");
    refused.promise.set(std::move(error.with_operation("get").with_key(source.key.to_string())));
    auto state = std::make_shared<GetHandle::State>();
    state->future = std::move(refused.future);
    handles.emplace_back(std::move(state));
  }
  return handles;
}
std::vector<Result<Got>> Node::get_many(const std::vector<Source>& sources,
                                        const std::vector<GetOptions>& options) {
  std::vector<GetHandle> handles = get_many_async(sources, options);
  std::vector<Result<Got>> results;
  results.reserve(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    // The loop ends each get by its deadline and the abort grace; the rest guards against a bug.
    const Deadline until = i < options.size() ? options[i].deadline : Deadline::now();
    const Deadline guard(until.at() + core_->config().abort_grace + std::chrono::seconds(5));
    const Status waited = handles[i].wait(guard);
    results.push_back(waited.ok() ? handles[i].take() : Result<Got>(waited.error()));
  }
  return results;
}
void Node::connect(const std::string& address, std::function<void(const Status&)> done) {
  core_->start_connecting(address, std::move(done));
}
bool Node::connected(const std::string& address) const {
  return core_->connected(address);
}

const std::shared_ptr<Pool>& Node::publish_pool() const noexcept {
  return core_->publish_pool();
}
const std::shared_ptr<Pool>& Node::receive_pool() const noexcept {
  return core_->receive_pool();
}
NodeStats Node::stats() const {
  return core_->stats();
}
std::string Node::metrics_text() const {
  return core_->metrics_text();
}
std::string Node::explain() const {
  return core_->explain();
}
const NodeConfig& Node::config() const noexcept {
  return core_->config();
}
void Node::close() {
  core_->close();
}
bool Node::closed() const noexcept {
  return core_->closed();
}

}  // namespace stagewire
