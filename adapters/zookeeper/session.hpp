#pragma once

// Session: one session with a ZooKeeper ensemble over the C client (libzookeeper-mt 3.8). It heals a broken
// connection, to whatever server of the ensemble, for as long as the session lives; a session that expired is
// over for good, and its owner opens another.
//
// A Code that the server answered is a value; what is left is a fault. A call that only reads throws
// Unavailable where no answer came. One that writes throws OutcomeUnknown where it was, or may have been,
// sent and no answer came within address.timeout, and Unavailable where it certainly was not sent, as while
// the session is not connected. Nothing is ever repeated here.
//
// The calls come in two forms: begin_…() sends and returns at once, and the answer is waited for with
// Pending::get(). ZooKeeper answers one session's calls in the order in which they were begun, so several
// that are begun one after the other cost one round trip, and a read sees every write that was begun before
// it.
//
// Thread-safe, but for the handlers: those are called one at a time on a thread of the session's own, and
// must neither block nor call the session. The C client's own log is not written.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/zookeeper/address.hpp"
#include "adapters/zookeeper/answer.hpp"
#include "adapters/zookeeper/wire/session_state.hpp"

namespace fenceguard::zookeeper {

class SessionHandle;

class Session {
 public:
  using State = SessionState;
  using Watch = NodeWatch;
  using Listener = std::function<void(State)>;

  // Begins to connect; does not wait. listener hears of every change of state until the destructor begins.
  // session_timeout is what is asked for; the server bounds it. Throws Unavailable where no host's name is
  // known.
  explicit Session(const Address& address, std::chrono::milliseconds session_timeout, Listener listener = {});
  // Ends the session, and with it every ephemeral node, if a server can be reached; a server that went silent
  // delays it by seconds. REQUIRES: no other call is under way.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns once connected. Throws Unavailable with a sentence that says what to do where it does not come to
  // that within address.timeout.
  void wait_until_connected();
  // The same without waiting.
  void require_connected() const;
  // The same without a fault: whether it is connected, waiting for at most this long, and not once it is
  // over.
  [[nodiscard]] bool connects_within(std::chrono::milliseconds wait) const;

  [[nodiscard]] State state() const noexcept;
  // The present connection's number, never the same twice in a process; 0 while it is not connected.
  [[nodiscard]] std::uint64_t generation() const noexcept;
  // What was agreed with the server, once connected.
  [[nodiscard]] std::chrono::milliseconds session_timeout() const;
  [[nodiscard]] std::int64_t id() const;

  // watch: told at once where the node is not there.
  [[nodiscard]] Pending<Answer> begin_get(const std::string& path, Watch watch = {});
  // watch: of a node that is not there, it waits for its creation.
  [[nodiscard]] Pending<Answer> begin_exists(const std::string& path, Watch watch = {});
  [[nodiscard]] Pending<Answer> begin_get_children(const std::string& path);
  // What is read behind it is no older than whatever the ensemble answered to any client before it was begun.
  // Answers no path.
  [[nodiscard]] Pending<Answer> begin_sync(const std::string& path);
  [[nodiscard]] Pending<Answer> begin_create(const std::string& path, const std::string& data, Mode mode);
  [[nodiscard]] Pending<Answer> begin_set(const std::string& path, const std::string& data,
                                          std::int32_t version = any_version);
  [[nodiscard]] Pending<Answer> begin_remove(const std::string& path, std::int32_t version = any_version);
  // With a generation over that connection alone: Unavailable where the session has another by now. What was
  // read before may have been undone between the two, by a restored backup.
  [[nodiscard]] Pending<MultiAnswer> begin_multi(const std::vector<Op>& ops,
                                                 std::optional<std::uint64_t> generation = {});

  // The same, waiting.
  Answer get(const std::string& path, Watch watch = {}) { return begin_get(path, std::move(watch)).get(); }
  Answer exists(const std::string& path, Watch watch = {}) {
    return begin_exists(path, std::move(watch)).get();
  }
  Answer get_children(const std::string& path) { return begin_get_children(path).get(); }
  Answer create(const std::string& path, const std::string& data, Mode mode = Mode::persistent) {
    return begin_create(path, data, mode).get();
  }
  Answer set(const std::string& path, const std::string& data, std::int32_t version = any_version) {
    return begin_set(path, data, version).get();
  }
  Answer remove(const std::string& path, std::int32_t version = any_version) {
    return begin_remove(path, version).get();
  }
  MultiAnswer multi(const std::vector<Op>& ops, std::optional<std::uint64_t> generation = {}) {
    return begin_multi(ops, generation).get();
  }

  // Makes path and what is above it, each in mode; what exists stays as it is. Throws as a write does.
  void make_path(const std::string& path, Mode mode = Mode::persistent);

 private:
  struct Calls;
  std::unique_ptr<SessionHandle> handle_;
};

}  // namespace fenceguard::zookeeper
