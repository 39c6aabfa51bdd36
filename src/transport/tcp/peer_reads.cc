// See peer_reads.h. Every public method collects under the mutex what is to be done (After) and does it once
// the mutex is released, so that no callback and no connection ever runs under it.
#include "transport/tcp/peer_reads.h"

#include <algorithm>
#include <utility>

#include "transport/tcp/data_client.h"

namespace stagewire {

namespace {

// A slot whose dialling failed is left alone for this long while another connection still carries the reads.
constexpr std::chrono::seconds kRedialPause{1};

}  // namespace

PeerReads::PeerReads(TcpOptions options, DataThreads& threads, std::vector<SocketAddress> addresses,
                     std::string peer)
    : options_(std::move(options)),
      threads_(threads),
      addresses_(std::move(addresses)),
      peer_(std::move(peer)),
      first_thread_(threads.next()),
      slots_(options_.connections) {}

std::size_t PeerReads::hellos_in_stock() const {
  const std::lock_guard lock(mutex_);
  return hellos_.size();
}

void PeerReads::stock_hello(std::string hello) {
  const std::lock_guard lock(mutex_);
  hellos_.push_back(std::move(hello));
}

ReadId PeerReads::start(ReadRequest request, std::uint64_t total, ReadDone done) {
  auto planned = plan_read(std::move(request), chunk_size_for(total, options_));
  if (!planned.ok()) return refuse(std::move(planned).error(), std::move(done));
  const ReadId id = table_.add(std::move(done));
  if (id == 0) return id;
  if (planned->chunks.empty()) {
    table_.finish(id, Status());
    return id;
  }
  auto read = std::make_shared<TcpRead>(std::move(*planned));
  read->id = id;
  After after;
  {
    const std::lock_guard lock(mutex_);
    reads_.emplace(id, read);
    ready_.push_back(read);
    unasked_ += read->chunks.size();
    dial(after);
    wake(read->chunks.size(), after);
    fail_stranded(after);
  }
  run(after);
  return id;
}

ReadId PeerReads::refuse(Error error, ReadDone done) {
  const ReadId id = table_.add(std::move(done));
  if (id != 0) table_.finish(id, std::move(error.with_transport("tcp").with_peer(peer_)));
  return id;
}

void PeerReads::abort(ReadId id, std::function<void()> settled) {
  if (!table_.when_settled(id, std::move(settled))) return;
  After after;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = reads_.find(id); found != reads_.end()) {
      const std::shared_ptr<TcpRead> read = found->second;
      begin_end(read, Error(ErrorKind::cancelled, "the read was aborted"), after);
    }
  }
  run(after);
}

void PeerReads::close(std::function<void()> closed) {
  table_.refuse_new();
  After after;
  std::vector<std::shared_ptr<ReadConnection>> connections;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    std::vector<std::shared_ptr<TcpRead>> reads;
    reads.reserve(reads_.size());
    for (const auto& [id, read] : reads_) reads.push_back(read);
    for (const auto& read : reads) {
      begin_end(read, Error(ErrorKind::peer_lost, "the session to the peer ended during the read"), after);
    }
    for (const Slot& slot : slots_) {
      if (slot.connection) connections.push_back(slot.connection);
    }
  }
  run(after);
  // Runs `closed` when the last of the connections and reads lets go of it.
  const std::shared_ptr<void> barrier(nullptr, [closed = std::move(closed)](void*) { closed(); });
  for (const auto& connection : connections) connection->shut(barrier);
  table_.when_empty([barrier] {});
}

void PeerReads::opened(unsigned slot) {
  const std::lock_guard lock(mutex_);
  slots_[slot].open = true;
  ever_open_ = true;
}

unsigned PeerReads::budget(unsigned slot) {
  const std::lock_guard lock(mutex_);
  slots_[slot].waking = false;
  std::uint64_t open = 0;
  for (const Slot& each : slots_) open += each.open ? 1U : 0U;
  if (open == 0 || !slots_[slot].open) return 0;
  const std::uint64_t share = (unasked_ + open - 1) / open;
  const unsigned room = options_.window - std::min(options_.window, slots_[slot].outstanding);
  return static_cast<unsigned>(std::min<std::uint64_t>(room, share));
}

bool PeerReads::take(unsigned slot, ChunkJob& job) {
  const std::lock_guard lock(mutex_);
  if (ready_.empty()) return false;
  std::shared_ptr<TcpRead> read = std::move(ready_.front());
  ready_.pop_front();
  if (!read->again.empty()) {
    job.chunk = read->again.back();
    read->again.pop_back();
  } else {
    job.chunk = read->next++;
  }
  ++read->chunks[job.chunk].attempts;
  ++read->outstanding;
  ++slots_[slot].outstanding;
  --unasked_;
  if (read->has_work()) ready_.push_back(read);
  job.read = std::move(read);
  return true;
}

void PeerReads::complete(unsigned slot, const ChunkJob& job) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    TcpRead& read = *job.read;
    --slots_[slot].outstanding;
    --read.outstanding;
    Chunk& chunk = read.chunks[job.chunk];
    if (!chunk.complete) {
      chunk.complete = true;
      ++read.complete;
    }
    if (read.error) {
      end_if_idle(job.read, after);
    } else if (read.complete == read.chunks.size()) {
      reads_.erase(read.id);
      after.finish.emplace_back(read.id, Status());
    }
  }
  run(after);
}

void PeerReads::refused(unsigned slot, const ChunkJob& job, const Error& error) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    --slots_[slot].outstanding;
    --job.read->outstanding;
    begin_end(job.read, error, after);
  }
  run(after);
}

void PeerReads::detached(const std::shared_ptr<TcpRead>& read, std::uint32_t count) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    read->outstanding -= count;
    end_if_idle(read, after);
  }
  run(after);
}

void PeerReads::drained(unsigned slot) {
  const std::lock_guard lock(mutex_);
  --slots_[slot].outstanding;
}

void PeerReads::lost(unsigned slot, const std::vector<ChunkJob>& jobs, const Error& error) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    Slot fresh;
    if (!slots_[slot].open) fresh.dial_after = std::chrono::steady_clock::now() + kRedialPause;
    slots_[slot] = std::move(fresh);  // the connection that calls this keeps itself alive
    last_error_ = error;
    for (const ChunkJob& job : jobs) {
      TcpRead& read = *job.read;
      --read.outstanding;
      if (read.error) {
        end_if_idle(job.read, after);
      } else if (read.chunks[job.chunk].attempts > options_.retries) {
        begin_end(
            job.read,
            Error(error.kind(), "a chunk was asked for " + std::to_string(read.chunks[job.chunk].attempts) +
                                    " times and each time its data connection broke")
                .with_cause(error),
            after);
      } else {
        if (!read.has_work()) ready_.push_back(job.read);
        read.again.push_back(job.chunk);
        ++unasked_;
        threads_.counters().chunks_repeated.add();
      }
    }
    if (!closing_ && !reads_.empty()) {
      dial(after);
      wake(slots_.size(), after);
      fail_stranded(after);
    }
  }
  run(after);
}

void PeerReads::run(const After& after) {
  for (const auto& connection : after.start) connection->start();
  for (const auto& connection : after.wake) connection->wake();
  for (const auto& [connection, read] : after.detach) connection->detach(read);
  for (const auto& [id, status] : after.finish) table_.finish(id, status);
}

bool PeerReads::any_connection() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.connection != nullptr; });
}

void PeerReads::dial(After& after) {
  const bool any = any_connection();
  const auto now = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < slots_.size() && !hellos_.empty(); ++i) {
    Slot& slot = slots_[i];
    if (slot.connection || (any && now < slot.dial_after)) continue;
    slot.connection = std::make_shared<ReadConnection>(shared_from_this(), i, threads_.at(first_thread_ + i),
                                                       threads_, addresses_, std::move(hellos_.front()));
    hellos_.pop_front();
    after.start.push_back(slot.connection);
  }
}

void PeerReads::wake(std::size_t chunks, After& after) {
  // The least busy first, so that many small reads spread over the connections.
  for (; chunks != 0; --chunks) {
    Slot* best = nullptr;
    for (Slot& slot : slots_) {
      if (!slot.open || slot.waking || slot.outstanding >= options_.window) continue;
      if (best == nullptr || slot.outstanding < best->outstanding) best = &slot;
    }
    if (best == nullptr) return;
    best->waking = true;
    after.wake.push_back(best->connection);
  }
}

void PeerReads::drop_ready(const std::shared_ptr<TcpRead>& read) {
  unasked_ -= read->again.size() + (read->chunks.size() - read->next);
  std::erase(ready_, read);
}

void PeerReads::begin_end(const std::shared_ptr<TcpRead>& read, const Error& error, After& after) {
  if (!read->error) {
    drop_ready(read);
    read->error = error;
    read->error->with_transport("tcp").with_peer(peer_);
    if (read->outstanding != 0) {
      for (const Slot& slot : slots_) {
        if (slot.open) after.detach.emplace_back(slot.connection, read);
      }
    }
  }
  end_if_idle(read, after);
}

void PeerReads::end_if_idle(const std::shared_ptr<TcpRead>& read, After& after) {
  if (read->outstanding != 0 || !read->error || reads_.erase(read->id) == 0) return;
  after.finish.emplace_back(read->id, *read->error);
}

void PeerReads::fail_stranded(After& after) {
  if (any_connection()) return;
  const Error cause = last_error_.value_or(Error(ErrorKind::unreachable, "no data connection could be made"));
  // A peer that was reached before and refuses connections now is one that died.
  const bool lost = ever_open_ && cause.kind() == ErrorKind::unreachable;
  std::vector<std::shared_ptr<TcpRead>> reads;
  reads.reserve(reads_.size());
  for (const auto& [id, read] : reads_) reads.push_back(read);
  for (const auto& read : reads) {
    begin_end(read,
              Error(lost ? ErrorKind::peer_lost : cause.kind(), "no data connection to the peer is left")
                  .with_cause(cause),
              after);
  }
}

}  // namespace stagewire
